/* The names of tensors: transformers' and GGUF's. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "compute/gguf/hf_parts.h"

enum { SHOWN_MAX = 80 };

static const struct hf_name whole_names[] = {
    {.from = "model.embed_tokens.weight", .to = "token_embd.weight", .factor = HF_FACTOR_EMBEDDING},
    {.from = "model.norm.weight", .to = "output_norm.weight"},
    {.from = "model.norm.bias", .to = "output_norm.bias"},
    {.from = "model.embedding_norm.weight", .to = "token_embd_norm.weight"}, /* LFM2's last norm */
    {.from = "lm_head.weight", .to = "output.weight", .factor = HF_FACTOR_HEAD},
    {.from = "lm_head.bias", .to = "output.bias"},
    /* encoders' */
    {.from = "embeddings.word_embeddings.weight", .to = "token_embd.weight"},
    {.from = "embeddings.tok_embeddings.weight", .to = "token_embd.weight"},
    {.from = "embeddings.position_embeddings.weight", .to = "position_embd.weight"},
    {.from = "embeddings.token_type_embeddings.weight", .to = "token_types.weight"},
    {.from = "embeddings.LayerNorm.weight", .to = "token_embd_norm.weight"},
    {.from = "embeddings.LayerNorm.bias", .to = "token_embd_norm.bias"},
    {.from = "emb_ln.weight", .to = "token_embd_norm.weight"},
    {.from = "emb_ln.bias", .to = "token_embd_norm.bias"},
    {.from = "embeddings.norm.weight", .to = "token_embd_norm.weight"},
    {.from = "final_norm.weight", .to = "output_norm.weight"},
    {.from = "model.embeddings.weight", .to = "token_embd.weight"},       /* Nemotron's */
    {.from = "model.final_layernorm.weight", .to = "output_norm.weight"}, /* Falcon's */
    {.from = "model.norm_f.weight", .to = "output_norm.weight"},
    {.from = "model.embed_tokens_per_layer.weight", .to = "per_layer_token_embd.weight"},
    {.from = "model.per_layer_model_projection.weight", .to = "per_layer_model_proj.weight"},
    {.from = "model.per_layer_projection_norm.weight", .to = "per_layer_proj_norm.weight"},
    {.from = "model.altup_projections.0.weight", .to = "altup_proj.0.weight"},
    {.from = "model.altup_projections.1.weight", .to = "altup_proj.1.weight"},
    {.from = "model.altup_projections.2.weight", .to = "altup_proj.2.weight"},
    {.from = "model.altup_unembed_projections.0.weight", .to = "altup_unembd_proj.0.weight"},
    {.from = "model.altup_unembed_projections.1.weight", .to = "altup_unembd_proj.1.weight"},
    {.from = "model.altup_unembed_projections.2.weight", .to = "altup_unembd_proj.2.weight"},
};

static const struct hf_name layer_names[] = {
    {.from = "input_layernorm", .to = "attn_norm"},
    {.from = "self_attn.q_proj",
     .to = "attn_q",
     .has_pairs = true,
     .factor = HF_FACTOR_ATTENTION_IN},
    {.from = "self_attn.k_proj", .to = "attn_k", .has_pairs = true, .factor = HF_FACTOR_KEY},
    {.from = "self_attn.v_proj", .to = "attn_v", .factor = HF_FACTOR_ATTENTION_IN},
    {.from = "self_attn.o_proj", .to = "attn_output", .factor = HF_FACTOR_ATTENTION_OUT},
    {.from = "self_attn.q_norm", .to = "attn_q_norm"},
    {.from = "self_attn.k_norm", .to = "attn_k_norm"},
    {.from = "self_attn.qkv_proj", .to = "attn_qkv"},
    {.from = "post_attention_layernorm", .to = "ffn_norm"},
    {.from = "mlp.gate_proj", .to = "ffn_gate"},
    {.from = "mlp.up_proj", .to = "ffn_up"},
    {.from = "mlp.down_proj", .to = "ffn_down"},
    {.from = "mlp.gate_up_proj", .to = "ffn_up"}, /* phi3: the gate's rows first, as in GGUF */
    {.from = "block_sparse_moe.gate", .to = "ffn_gate_inp"},
    {.from = "mlp.gate", .to = "ffn_gate_inp"},
};

static const struct hf_name expert_names[] = {
    {.from = "w1", .to = "ffn_gate_exps"},    {.from = "w3", .to = "ffn_up_exps"},
    {.from = "w2", .to = "ffn_down_exps"},    {.from = "gate_proj", .to = "ffn_gate_exps"},
    {.from = "up_proj", .to = "ffn_up_exps"}, {.from = "down_proj", .to = "ffn_down_exps"},
};

/* What may stand before a name where the language model is one of several. */
static const char *const language_prefixes[] = {"model.language_model.", "language_model.model.",
                                                "language_model."};
static const char *const other_models[] = {"vision_tower.",       "multi_modal_projector.",
                                           "model.vision_tower.", "model.audio_tower.",
                                           "model.embed_vision.", "model.embed_audio.",
                                           "model.visual.",       "model.multi_modal_projector."};

enum {
    N_LAYER_NAMES = sizeof(layer_names) / sizeof(layer_names[0]),
    N_EXPERT_NAMES = sizeof(expert_names) / sizeof(expert_names[0])
};

/* The heads of models that rank; of other encoders they are not used. */
static const struct hf_name head_names[] = {
    {.from = "pooler.dense.weight", .to = "cls.weight"},
    {.from = "pooler.dense.bias", .to = "cls.bias"},
    {.from = "classifier.dense.weight", .to = "cls.weight"}, /* RoBERTa's */
    {.from = "classifier.dense.bias", .to = "cls.bias"},
    {.from = "classifier.out_proj.weight", .to = "cls.output.weight"},
    {.from = "classifier.out_proj.bias", .to = "cls.output.bias"},
    {.from = "head.dense.weight", .to = "cls.weight"}, /* ModernBERT's */
    {.from = "head.norm.weight", .to = "cls.norm.weight"},
    {.from = "classifier.weight", .to = "cls.output.weight"},
    {.from = "classifier.bias", .to = "cls.output.bias"},
    {.from = "score.weight", .to = "cls.output.weight"}, /* of language models */
};
/* What encoders have that gives no embedding: heads that were trained with, tables of numbers. */
static const char *const encoder_leftovers[] = {
    "pooler.", "cls.", "lm_head.", "decoder.", "head.", "classifier.", "embeddings.position_ids",
};

static bool hf_begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static const struct hf_name *find_whole(const struct hf_model *m, const char *name)
{
    for (size_t i = 0; m->is_ranker && i < sizeof(head_names) / sizeof(head_names[0]); i++)
        if (strcmp(head_names[i].from, name) == 0)
            return &head_names[i];
    if (m->family->encoder_layers != NULL && hf_begins_with(name, "lm_head."))
        return NULL; /* what it was trained with */
    for (size_t i = 0; i < sizeof(whole_names) / sizeof(whole_names[0]); i++)
        if (strcmp(whole_names[i].from, name) == 0)
            return &whole_names[i];
    return NULL;
}

static const struct hf_name *find_among(const struct hf_name *names, size_t n, const char *name,
                                        size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i].from) == len && memcmp(names[i].from, name, len) == 0)
            return &names[i];
    return NULL;
}

static size_t n_names(const struct hf_name *names)
{
    size_t n = 0;

    while (names != NULL && names[n].from != NULL)
        n++;
    return n;
}

/* "mlp.experts.N.gate_proj", whose name is of len bytes. */
static const struct hf_name *find_expert(const struct hf_model *m, const char *name, size_t len,
                                         struct hf_place *ret)
{
    static const char middle[] = ".experts.";
    const char *number = strstr(name, middle);
    const char *end;
    uint64_t expert;

    if (number == NULL || m->n_experts == 0)
        return NULL;
    number += sizeof(middle) - 1;
    end = number + number_take(&expert, number, SIZE_MAX, m->n_experts - 1);
    if (end == number || *end != '.' || end + 1 > name + len)
        return NULL;
    ret->expert = (int64_t)expert;
    return find_among(expert_names, N_EXPERT_NAMES, end + 1, (size_t)(name + len - end - 1));
}

/* The part of a layer whose name begins at name; its ending is behind *ret_end, "" of a whole name.
 */
static const struct hf_name *find_part(const struct hf_model *m, const char *name,
                                       const char **ret_end, struct hf_place *ret)
{
    const struct hf_name *own = m->n_experts == 0 && m->family->names_dense != NULL
                                    ? m->family->names_dense
                                    : m->family->names;
    const struct hf_name *found = find_among(own, n_names(own), name, strlen(name));
    const char *dot = strrchr(name, '.');
    size_t len;

    *ret_end = "";
    if (found != NULL && (found->is_whole || strchr(found->to, '.') != NULL))
        return found;
    if (dot == NULL)
        return NULL;
    *ret_end = dot;
    len = (size_t)(dot - name);
    found = find_among(own, n_names(own), name, len);
    if (found == NULL && m->family->encoder_layers == NULL)
        found = find_among(layer_names, N_LAYER_NAMES, name, len);
    return found != NULL ? found : find_expert(m, name, len, ret);
}

/* The name in a layer, of model.layers.N.; NULL for another. */
static const char *name_in_layer(const struct hf_model *m, const char *name, uint64_t *ret_layer)
{
    static const char prefix[] = "model.layers.";
    size_t len;

    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
        return NULL;
    name += sizeof(prefix) - 1;
    len = number_take(ret_layer, name, SIZE_MAX, UINT64_MAX);
    return len > 0 && name[len] == '.' && *ret_layer < m->n_layers ? name + len + 1 : NULL;
}

static bool is_norm(const char *name)
{
    return strstr(name, "norm.weight") != NULL && strstr(name, "ssm_norm") == NULL;
}

/* Vectors are F32 in GGUF files; Gemma's norms are stored less 1. */
static enum status set_form(struct named_tensor *t, const struct hf_model *m, bool has_pairs,
                            int64_t expert, struct error *err)
{
    struct tensor *w = &t->tensor;
    size_t n = w->n_rows == 1 ? w->n_cols : w->n_rows;
    const size_t n_unused =
        strcmp(t->name, "position_embd.weight") == 0 ? m->family->n_unused_positions : 0;
    const size_t row_bytes = dtype_row_bytes(w->type, w->n_cols);

    if (n_unused > 0 && w->n_rows > n_unused) {
        w->n_rows -= n_unused;
        w->size_bytes -= n_unused * row_bytes;
        w->file_at += n_unused * row_bytes;
    }

    if (has_pairs && n % m->head_dim != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "has %zu rows, which is not a multiple of a head's %llu", n,
                         (unsigned long long)m->head_dim);
    w->head_dim = has_pairs ? m->head_dim : 0;
    if (expert != HF_NO_EXPERT || w->source == SOURCE_FP8) {
        w->form = TENSOR_PARTS;
        w->n_part_rows = w->n_rows;
    } else if (w->n_rows == 1) {
        w->form = TENSOR_WIDE;
        w->file_type = w->type;
        w->type = DTYPE_F32;
        w->size_bytes = w->n_cols * sizeof(float);
        w->add = is_norm(t->name) ? m->family->norm_add : 0;
    } else if (has_pairs) {
        w->form = TENSOR_PAIRS;
    }
    return STATUS_OK;
}

/* Of an encoder, which may stand below a prefix; its layers as those of a language model. */
static const char *encoder_name(const struct hf_family *f, const char *name,
                                char room[GGUF_TENSOR_NAME_MAX * 2])
{
    if (f->prefix != NULL && hf_begins_with(name, f->prefix))
        name += strlen(f->prefix);
    if (!hf_begins_with(name, f->encoder_layers))
        return name;
    (void)snprintf(room, GGUF_TENSOR_NAME_MAX * 2, "model.layers.%s",
                   name + strlen(f->encoder_layers));
    return room;
}

/* A name of a model that was saved without what it is for: the prefix of all is left out. */
static bool lacks_prefix(const char *name)
{
    return hf_begins_with(name, "layers.") || strcmp(name, "embed_tokens.weight") == 0 ||
           strcmp(name, "norm.weight") == 0;
}

/* The name as the language model alone would have it; `room` holds it where it is none of the
 * file's. */
static const char *language_name(const struct hf_model *m, const char *name,
                                 char room[GGUF_TENSOR_NAME_MAX * 2])
{
    if (m->family->encoder_layers != NULL)
        return encoder_name(m->family, name, room);
    if (m->family->prefix != NULL && hf_begins_with(name, m->family->prefix)) {
        (void)snprintf(room, GGUF_TENSOR_NAME_MAX * 2, "model.%s",
                       name + strlen(m->family->prefix));
        return room;
    }
    for (size_t i = 0; m->family->nested_type != NULL && i < 3; i++)
        if (hf_begins_with(name, language_prefixes[i])) {
            const char *rest = name + strlen(language_prefixes[i]);
            const bool is_head = hf_begins_with(rest, "lm_head.");

            (void)snprintf(room, GGUF_TENSOR_NAME_MAX * 2, "%s%s", is_head ? "" : "model.", rest);
            return room;
        }
    if (lacks_prefix(name)) {
        (void)snprintf(room, GGUF_TENSOR_NAME_MAX * 2, "model.%s", name);
        return room;
    }
    return name;
}

/* A tensor of a layer behind the last one, which predicts further tokens. */
static bool is_of_later_layer(const struct hf_model *m, const char *name)
{
    static const char prefix[] = "model.layers.";
    uint64_t layer;

    if (!m->family->has_later_layers)
        return false;
    return hf_begins_with(name, "mtp.") ||
           (hf_begins_with(name, prefix) &&
            number_take(&layer, name + strlen(prefix), SIZE_MAX, UINT64_MAX) > 0 &&
            layer >= m->n_layers);
}

static bool hf_ends_with(const char *name, const char *end)
{
    const size_t len = strlen(name), n = strlen(end);

    return len >= n && strcmp(name + len - n, end) == 0;
}

static bool is_unused(const struct hf_model *m, const char *name)
{
    for (size_t i = 0;
         m->family->nested_type != NULL && i < sizeof(other_models) / sizeof(other_models[0]); i++)
        if (hf_begins_with(name, other_models[i]))
            return true;
    for (size_t i = 0; m->family->encoder_layers != NULL &&
                       i < sizeof(encoder_leftovers) / sizeof(encoder_leftovers[0]);
         i++)
        if (hf_begins_with(name, encoder_leftovers[i]) && find_whole(m, name) == NULL)
            return true;
    return is_of_later_layer(m, name) ||
           hf_ends_with(name,
                        "_proj.activation_scale") || /* of FP8: activations stay floats here */
           hf_ends_with(name, "_proj.input_scale") ||
           hf_ends_with(name, ".mamba.mup_vector") ||    /* Falcon's factors */
           strstr(name, ".rotary_emb.inv_freq") != NULL; /* older files; it is computed */
}

/* The name of what a tensor has the scales of; room holds it. NULL: it has none. */
static const char *scaled_name(const char *name, char room[GGUF_TENSOR_NAME_MAX * 2])
{
    static const struct {
        const char *end, *of;
    } ends[] = {{".weight_scale_inv", ".weight"}, {"_scale_inv", ""}, {"_scales", "_blocks"}};

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (hf_ends_with(name, ends[i].end)) {
            (void)snprintf(room, GGUF_TENSOR_NAME_MAX * 2, "%.*s%s",
                           (int)(strlen(name) - strlen(ends[i].end)), name, ends[i].of);
            return room;
        }
    return NULL;
}

enum status hf_name_tensor(struct named_tensor *t, const struct hf_model *m, const char *name,
                           struct hf_place *ret, struct error *err)
{
    char room[GGUF_TENSOR_NAME_MAX * 2], scaled_room[GGUF_TENSOR_NAME_MAX * 2];
    const char *end = "", *rest, *of_language = language_name(m, name, room), *scaled;
    const struct hf_name *known;
    unsigned long layer = 0;
    size_t len;

    *ret = (struct hf_place){.is_unused = is_unused(m, of_language), .expert = HF_NO_EXPERT};
    if (ret->is_unused)
        return STATUS_OK;
    scaled = scaled_name(of_language, scaled_room);
    ret->is_scale = scaled != NULL;
    of_language = scaled != NULL ? scaled : of_language;
    known = find_whole(m, of_language);
    if (known != NULL) {
        len = (size_t)snprintf(t->name, sizeof(t->name), "%s", known->to);
    } else {
        rest = name_in_layer(m, of_language, &layer);
        known = rest == NULL ? NULL : find_part(m, rest, &end, ret);
        if (known == NULL ||
            (*end != '\0' && strcmp(end, ".weight") != 0 && strcmp(end, ".bias") != 0))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "tensor '%.*s' does not belong to a model of type '%s' in safetensors",
                             SHOWN_MAX, name, m->family->model_type);
        len = (size_t)snprintf(t->name, sizeof(t->name), "blk.%lu.%s%s", layer, known->to, end);
    }
    t->name_len = len;
    ret->kind = known->kind;
    if (known->kind != HF_PLAIN || ret->is_scale)
        return STATUS_OK;
    if (set_form(t, m, known->has_pairs && m->family->has_pairs, ret->expert, err) != STATUS_OK)
        return err->status;
    return hf_factors_form(&t->tensor, m, known->factor, err);
}
