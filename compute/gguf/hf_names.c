/* The names of tensors: transformers' and GGUF's. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "compute/gguf/hf_parts.h"

enum { SHOWN_MAX = 80 };

static const struct hf_name whole_names[] =
    {
        {"model.embed_tokens.weight", "token_embd.weight", false},
        {"model.norm.weight", "output_norm.weight", false},
        {"lm_head.weight", "output.weight", false},
},
                            layer_names[] =
                                {
                                    {"input_layernorm", "attn_norm", false},
                                    {"self_attn.q_proj", "attn_q", true},
                                    {"self_attn.k_proj", "attn_k", true},
                                    {"self_attn.v_proj", "attn_v", false},
                                    {"self_attn.o_proj", "attn_output", false},
                                    {"self_attn.q_norm", "attn_q_norm", false},
                                    {"self_attn.k_norm", "attn_k_norm", false},
                                    {"post_attention_layernorm", "ffn_norm", false},
                                    {"mlp.gate_proj", "ffn_gate", false},
                                    {"mlp.up_proj", "ffn_up", false},
                                    {"mlp.down_proj", "ffn_down", false},
                                    {"self_attn.qkv_proj", "attn_qkv", false},
                                    {"mlp.gate_up_proj", "ffn_up",
                                     false}, /* phi3: the gate's rows first, as in GGUF */
                                    {"block_sparse_moe.gate", "ffn_gate_inp", false},
                                    {"mlp.gate", "ffn_gate_inp", false},
},
                            expert_names[] = {
                                {"w1", "ffn_gate_exps", false},
                                {"w3", "ffn_up_exps", false},
                                {"w2", "ffn_down_exps", false},
                                {"gate_proj", "ffn_gate_exps", false},
                                {"up_proj", "ffn_up_exps", false},
                                {"down_proj", "ffn_down_exps", false},
};

const struct hf_name hf_names_around[] = {
    {"post_attention_layernorm", "post_attention_norm", false},
    {"pre_feedforward_layernorm", "ffn_norm", false},
    {"post_feedforward_layernorm", "post_ffw_norm", false},
    {NULL, NULL, false},
};

/* What may stand before a name where the language model is one of several. */
static const char *const language_prefixes[] = {"model.language_model.", "language_model.model.",
                                                "language_model."};
static const char *const other_models[] = {"vision_tower.", "multi_modal_projector.",
                                           "model.vision_tower.", "model.multi_modal_projector."};

enum {
    N_LAYER_NAMES = sizeof(layer_names) / sizeof(layer_names[0]),
    N_EXPERT_NAMES = sizeof(expert_names) / sizeof(expert_names[0])
};

static bool hf_begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static const struct hf_name *find_whole(const char *name)
{
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

/* The part of a layer whose name begins at name; its ending is behind *ret_end. */
static const struct hf_name *find_part(const struct hf_model *m, const char *name,
                                       const char **ret_end, struct hf_place *ret)
{
    const struct hf_name *found;
    const char *dot = strrchr(name, '.');
    size_t len;

    if (dot == NULL)
        return NULL;
    *ret_end = dot;
    len = (size_t)(dot - name);
    found = find_among(m->family->names, n_names(m->family->names), name, len);
    if (found == NULL)
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
    return strstr(name, "norm.weight") != NULL;
}

/* Vectors are F32 in GGUF files; Gemma's norms are stored less 1. */
static enum status set_form(struct named_tensor *t, const struct hf_model *m, bool has_pairs,
                            int64_t expert, struct error *err)
{
    struct tensor *w = &t->tensor;
    size_t n = w->n_rows == 1 ? w->n_cols : w->n_rows;

    if (has_pairs && n % m->head_dim != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "has %zu rows, which is not a multiple of a head's %llu", n,
                         (unsigned long long)m->head_dim);
    w->head_dim = has_pairs ? m->head_dim : 0;
    if (expert != HF_NO_EXPERT) {
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

/* The name as the language model alone would have it; `room` holds it where it is none of the
 * file's. */
static const char *language_name(const struct hf_model *m, const char *name,
                                 char room[GGUF_TENSOR_NAME_MAX * 2])
{
    for (size_t i = 0; m->family->nested_type != NULL && i < 3; i++)
        if (hf_begins_with(name, language_prefixes[i])) {
            const char *rest = name + strlen(language_prefixes[i]);
            const bool is_head = hf_begins_with(rest, "lm_head.");

            (void)snprintf(room, GGUF_TENSOR_NAME_MAX * 2, "%s%s", is_head ? "" : "model.", rest);
            return room;
        }
    return name;
}

static bool is_unused(const struct hf_model *m, const char *name)
{
    for (size_t i = 0;
         m->family->nested_type != NULL && i < sizeof(other_models) / sizeof(other_models[0]); i++)
        if (hf_begins_with(name, other_models[i]))
            return true;
    return (m->is_tied && strcmp(name, "lm_head.weight") == 0) ||
           strstr(name, ".rotary_emb.inv_freq") != NULL; /* older files; it is computed */
}

enum status hf_name_tensor(struct named_tensor *t, const struct hf_model *m, const char *name,
                           struct hf_place *ret, struct error *err)
{
    char room[GGUF_TENSOR_NAME_MAX * 2];
    const char *end = "", *rest, *of_language = language_name(m, name, room);
    const struct hf_name *known = find_whole(of_language);
    unsigned long layer = 0;
    size_t len;

    *ret = (struct hf_place){.is_unused = is_unused(m, of_language), .expert = HF_NO_EXPERT};
    if (ret->is_unused)
        return STATUS_OK;
    if (known != NULL) {
        len = (size_t)snprintf(t->name, sizeof(t->name), "%s", known->to);
    } else {
        rest = name_in_layer(m, of_language, &layer);
        known = rest == NULL ? NULL : find_part(m, rest, &end, ret);
        if (known == NULL || (strcmp(end, ".weight") != 0 && strcmp(end, ".bias") != 0))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "tensor '%.*s' does not belong to a model of type '%s' in safetensors",
                             SHOWN_MAX, name, m->family->model_type);
        len = (size_t)snprintf(t->name, sizeof(t->name), "blk.%lu.%s%s", layer, known->to, end);
    }
    t->name_len = len;
    return set_form(t, m, known->has_pairs && m->family->has_pairs, ret->expert, err);
}
