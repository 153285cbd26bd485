/* The names of tensors: transformers' and GGUF's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { SHOWN_MAX = 80 };

static const struct hf_name {
    const char *from, *to;
    bool has_pairs; /* where the family has them */
} whole_names[] =
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
          {"pre_feedforward_layernorm", "ffn_norm", false},
          {"post_feedforward_layernorm", "post_ffw_norm", false},
          {"mlp.gate_proj", "ffn_gate", false},
          {"mlp.up_proj", "ffn_up", false},
          {"mlp.down_proj", "ffn_down", false},
},
  after_attention[] = {
      {"post_attention_layernorm", "ffn_norm", false},
      {"post_attention_layernorm", "post_attention_norm", false}, /* norms_around */
};

static const struct hf_name *find_whole(const char *name)
{
    for (size_t i = 0; i < sizeof whole_names / sizeof whole_names[0]; i++)
        if (strcmp(whole_names[i].from, name) == 0)
            return &whole_names[i];
    return NULL;
}

/* The part of a layer whose name begins at name; its ending is behind *ret_end. */
static const struct hf_name *find_part(const struct hf_model *m, const char *name,
                                       const char **ret_end)
{
    const struct hf_name *after = &after_attention[m->family->norms_around];
    size_t len = strcspn(name, "");
    const char *dot = strrchr(name, '.');

    if (dot == NULL)
        return NULL;
    *ret_end = dot;
    len = (size_t)(dot - name);
    if (strlen(after->from) == len && memcmp(after->from, name, len) == 0)
        return after;
    for (size_t i = 0; i < sizeof layer_names / sizeof layer_names[0]; i++)
        if (strlen(layer_names[i].from) == len && memcmp(layer_names[i].from, name, len) == 0)
            return &layer_names[i];
    return NULL;
}

/* The name in a layer, of model.layers.N.; NULL for another. */
static const char *name_in_layer(const struct hf_model *m, const char *name,
                                 unsigned long *ret_layer)
{
    static const char prefix[] = "model.layers.";
    char *end;

    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return NULL;
    name += sizeof prefix - 1;
    if (*name < '0' || *name > '9')
        return NULL;
    *ret_layer = strtoul(name, &end, 10);
    return *end == '.' && *ret_layer < m->n_layers ? end + 1 : NULL;
}

static bool is_norm(const char *name)
{
    return strstr(name, "norm.weight") != NULL;
}

/* Vectors are F32 in GGUF files; Gemma's norms are stored less 1. */
static enum status set_form(struct named_tensor *t, const struct hf_model *m, bool has_pairs,
                            struct error *err)
{
    struct tensor *w = &t->tensor;
    size_t n = w->n_rows == 1 ? w->n_cols : w->n_rows;

    if (has_pairs && n % m->head_dim != 0)
        return error_set(err, STATUS_DATA_LOSS, "has %zu rows, no multiple of a head's %llu", n,
                         (unsigned long long)m->head_dim);
    w->head_dim = has_pairs ? m->head_dim : 0;
    if (w->n_rows == 1) {
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

enum status hf_name_tensor(struct named_tensor *t, const struct hf_model *m, const char *name,
                           bool *ret_unused, struct error *err)
{
    const struct hf_name *known = find_whole(name);
    const char *end = "", *rest;
    unsigned long layer = 0;
    size_t len;

    *ret_unused = (m->is_tied && strcmp(name, "lm_head.weight") == 0) ||
                  strstr(name, ".rotary_emb.inv_freq") != NULL; /* older files; it is computed */
    if (*ret_unused)
        return STATUS_OK;
    if (known != NULL) {
        len = (size_t)snprintf(t->name, sizeof t->name, "%s", known->to);
    } else {
        rest = name_in_layer(m, name, &layer);
        known = rest == NULL ? NULL : find_part(m, rest, &end);
        if (known == NULL || (strcmp(end, ".weight") != 0 && strcmp(end, ".bias") != 0))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "tensor '%.*s' is none of a model of type '%s' that is read from "
                             "safetensors",
                             SHOWN_MAX, name, m->family->model_type);
        len = (size_t)snprintf(t->name, sizeof t->name, "blk.%lu.%s%s", layer, known->to, end);
    }
    t->name_len = len;
    return set_form(t, m, known->has_pairs && m->family->has_pairs, err);
}
