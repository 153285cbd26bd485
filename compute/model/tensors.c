#include "compute/model/tensors.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"
#include "compute/model/shape.h"

enum { TENSOR_NAME_MAX = 64 };

enum extent {
    ONE,
    WIDTH,
    QUERIES,
    KEYS,
    HIDDEN,
    QUERY_NORM,
    KEY_NORM,
    EXPERTS,
    EXPERTS_WIDTH,
    EXPERTS_HIDDEN
};
enum presence { ALWAYS, OPTIONAL, BEFORE, AFTER, HEAD_NORMED, DENSE, SPARSE };

static const struct part_rule {
    const char *name;
    enum extent rows, cols;
    enum presence presence;
} rules[N_PARTS] = {
    [PART_ATTN_NORM] = {"attn_norm.weight", ONE, WIDTH, BEFORE},
    [PART_Q] = {"attn_q.weight", QUERIES, WIDTH, ALWAYS},
    [PART_K] = {"attn_k.weight", KEYS, WIDTH, ALWAYS},
    [PART_V] = {"attn_v.weight", KEYS, WIDTH, ALWAYS},
    [PART_Q_BIAS] = {"attn_q.bias", ONE, QUERIES, OPTIONAL},
    [PART_K_BIAS] = {"attn_k.bias", ONE, KEYS, OPTIONAL},
    [PART_V_BIAS] = {"attn_v.bias", ONE, KEYS, OPTIONAL},
    [PART_Q_NORM] = {"attn_q_norm.weight", ONE, QUERY_NORM, HEAD_NORMED},
    [PART_K_NORM] = {"attn_k_norm.weight", ONE, KEY_NORM, HEAD_NORMED},
    [PART_ATTN_OUT] = {"attn_output.weight", WIDTH, QUERIES, ALWAYS},
    [PART_ATTN_OUT_BIAS] = {"attn_output.bias", ONE, WIDTH, OPTIONAL},
    [PART_ATTN_POST_NORM] = {"post_attention_norm.weight", ONE, WIDTH, AFTER},
    [PART_FFN_NORM] = {"ffn_norm.weight", ONE, WIDTH, BEFORE},
    [PART_GATE] = {"ffn_gate.weight", HIDDEN, WIDTH, DENSE},
    [PART_UP] = {"ffn_up.weight", HIDDEN, WIDTH, DENSE},
    [PART_DOWN] = {"ffn_down.weight", WIDTH, HIDDEN, DENSE},
    [PART_FFN_POST_NORM] = {"post_ffw_norm.weight", ONE, WIDTH, AFTER},
    [PART_ROUTER] = {"ffn_gate_inp.weight", EXPERTS, WIDTH, SPARSE},
    [PART_GATE_EXPERTS] = {"ffn_gate_exps.weight", EXPERTS_HIDDEN, WIDTH, SPARSE},
    [PART_UP_EXPERTS] = {"ffn_up_exps.weight", EXPERTS_HIDDEN, WIDTH, SPARSE},
    [PART_DOWN_EXPERTS] = {"ffn_down_exps.weight", EXPERTS_WIDTH, HIDDEN, SPARSE},
};

static size_t extent_of(const struct transformer_shape *s, enum extent e)
{
    const bool whole = s->arch->head_norms == HEAD_NORMS_ALL;

    switch (e) {
    case ONE:
        return 1;
    case WIDTH:
        return s->width;
    case QUERIES:
        return s->n_heads * s->head_dim;
    case KEYS:
        return s->n_kv_heads * s->head_dim;
    case QUERY_NORM:
        return whole ? s->n_heads * s->head_dim : s->head_dim;
    case KEY_NORM:
        return whole ? s->n_kv_heads * s->head_dim : s->head_dim;
    case EXPERTS:
        return s->n_experts;
    case EXPERTS_WIDTH:
        return s->n_experts * s->width;
    case EXPERTS_HIDDEN:
        return s->n_experts * s->ffn_width;
    case HIDDEN:
        break;
    }
    return s->ffn_width;
}

static bool shape_has(const struct transformer_shape *s, enum transformer_part part)
{
    const struct arch *a = s->arch;

    switch (rules[part].presence) {
    case BEFORE:
        return a->norms != NORMS_AFTER;
    case AFTER:
        return a->norms != NORMS_BEFORE;
    case HEAD_NORMED:
        return a->head_norms != HEAD_NORMS_NONE;
    case DENSE:
        return s->n_experts == 0;
    case SPARSE:
        return s->n_experts > 0;
    default:
        return true;
    }
}

static enum status wrong_shape(const struct gguf *g, const struct tensor *t, size_t n_rows,
                               size_t n_cols, struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS,
                     "%s: tensor '%s' is %zu x %zu, but by the metadata it must be %zu x %zu",
                     gguf_path(g), t->name, t->n_rows, t->n_cols, n_rows, n_cols);
}

enum status transformer_tensor_of_shape(const struct tensor **out, const struct gguf *g,
                                        const char *name, size_t n_rows, size_t n_cols,
                                        struct error *err)
{
    const struct tensor *t;
    enum status rc = gguf_tensor(g, name, &t, err);

    if (rc != STATUS_OK)
        return rc;
    if (t->n_rows != n_rows || t->n_cols != n_cols)
        return wrong_shape(g, t, n_rows, n_cols, err);
    *out = t;
    return STATUS_OK;
}

/* Leaves size_bytes of a tensor, from at_bytes on. */
static void tensor_cut(struct tensor *t, size_t at_bytes, size_t size_bytes)
{
    if (t->data != NULL)
        t->data = (const unsigned char *)t->data + at_bytes;
    t->file_at += at_bytes;
    t->size_bytes = size_bytes;
}

struct tensor tensor_rows(const struct tensor *t, size_t first, size_t n)
{
    size_t row_bytes = dtype_row_bytes(t->type, t->n_cols);
    struct tensor part = *t;

    part.n_rows = n;
    if (t->form == TENSOR_PLAIN) {
        tensor_cut(&part, first * row_bytes, n * row_bytes);
    } else {
        part.first_row += first;
        part.size_bytes = n * row_bytes;
    }
    return part;
}

/* Numbers first … first + n - 1 of a tensor of one row of floats. */
static struct tensor columns_of(const struct tensor *t, size_t first, size_t n)
{
    struct tensor part = *t;

    part.n_cols = n;
    tensor_cut(&part, dtype_row_bytes(t->type, first), dtype_row_bytes(t->type, n));
    return part;
}

static const char *layer_name(char name[TENSOR_NAME_MAX], size_t layer, const char *part)
{
    (void)snprintf(name, TENSOR_NAME_MAX, "blk.%zu.%s", layer, part);
    return name;
}

/* A part of attn_qkv, whose rows are those of queries, keys and values. */
static enum status qkv_rows(struct tensor *out, const struct gguf *g,
                            const struct transformer_shape *s, size_t layer,
                            enum transformer_part part, struct error *err)
{
    size_t q = extent_of(s, QUERIES), k = extent_of(s, KEYS);
    size_t first = part == PART_Q ? 0 : part == PART_K ? q : q + k;
    const struct tensor *all = NULL;
    char name[TENSOR_NAME_MAX];
    enum status rc = transformer_tensor_of_shape(
        &all, g, layer_name(name, layer, "attn_qkv.weight"), q + 2 * k, s->width, err);

    if (rc == STATUS_OK)
        *out = tensor_rows(all, first, part == PART_Q ? q : k);
    return rc;
}

static enum status qkv_bias(struct tensor *out, const struct gguf *g,
                            const struct transformer_shape *s, size_t layer,
                            enum transformer_part part, struct error *err)
{
    size_t q = extent_of(s, QUERIES), k = extent_of(s, KEYS);
    size_t first = part == PART_Q_BIAS ? 0 : part == PART_K_BIAS ? q : q + k;
    const struct tensor *all = NULL;
    char name[TENSOR_NAME_MAX];
    enum status rc = transformer_tensor_of_shape(&all, g, layer_name(name, layer, "attn_qkv.bias"),
                                                 1, q + 2 * k, err);

    if (rc != STATUS_OK)
        return rc;
    if (dtype_block_values(all->type) != 1)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: tensor '%s' is %s, it must have floating-point numbers", gguf_path(g),
                         all->name, dtype_name(all->type));
    *out = columns_of(all, first, part == PART_Q_BIAS ? q : k);
    return rc;
}

/* Half of ffn_up, whose rows are those of the gate, then of up. */
static enum status gate_or_up(struct tensor *out, const struct gguf *g,
                              const struct transformer_shape *s, size_t layer,
                              enum transformer_part part, struct error *err)
{
    const struct tensor *both = NULL;
    char name[TENSOR_NAME_MAX];
    enum status rc = transformer_tensor_of_shape(
        &both, g, layer_name(name, layer, rules[PART_UP].name), 2 * s->ffn_width, s->width, err);

    if (rc == STATUS_OK)
        *out = tensor_rows(both, part == PART_UP ? s->ffn_width : 0, s->ffn_width);
    return rc;
}

static enum status layer_tensor_own(struct tensor *out, const struct gguf *g,
                                    const struct transformer_shape *s, size_t layer,
                                    enum transformer_part part, struct error *err)
{
    const struct part_rule *rule = &rules[part];
    const struct tensor *t = NULL;
    char name[TENSOR_NAME_MAX];
    enum status rc =
        transformer_tensor_of_shape(&t, g, layer_name(name, layer, rule->name),
                                    extent_of(s, rule->rows), extent_of(s, rule->cols), err);

    if (rc == STATUS_OK)
        *out = *t;
    return rc;
}

/* The part in a fused tensor: NOT_FOUND where there is none. */
static enum status layer_tensor_fused(struct tensor *out, const struct gguf *g,
                                      const struct transformer_shape *s, size_t layer,
                                      enum transformer_part part, struct error *err)
{
    if (part == PART_Q || part == PART_K || part == PART_V)
        return qkv_rows(out, g, s, layer, part, err);
    if (part == PART_Q_BIAS || part == PART_K_BIAS || part == PART_V_BIAS)
        return qkv_bias(out, g, s, layer, part, err);
    return STATUS_NOT_FOUND;
}

enum status transformer_layer_tensor(struct tensor *out, const struct gguf *g,
                                     const struct transformer_shape *s, size_t layer,
                                     enum transformer_part part, struct error *err)
{
    struct error of_fused;
    enum status rc;

    *out = (struct tensor){0};
    if (!shape_has(s, part))
        return STATUS_OK;
    if (s->arch->gate_is_in_up && (part == PART_GATE || part == PART_UP))
        return gate_or_up(out, g, s, layer, part, err);
    rc = layer_tensor_own(out, g, s, layer, part, err);
    if (rc != STATUS_NOT_FOUND)
        return rc;
    rc = layer_tensor_fused(out, g, s, layer, part, &of_fused);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        *err = of_fused;
    return rc == STATUS_NOT_FOUND && rules[part].presence == OPTIONAL ? STATUS_OK : rc;
}

enum status transformer_embed_tensor(const struct tensor **out, const struct gguf *g,
                                     const struct transformer_shape *s, struct error *err)
{
    return transformer_tensor_of_shape(out, g, "token_embd.weight", s->n_vocab, s->width, err);
}

enum status transformer_norm_tensor(const struct tensor **out, const struct gguf *g,
                                    const struct transformer_shape *s, struct error *err)
{
    return transformer_tensor_of_shape(out, g, "output_norm.weight", 1, s->width, err);
}

enum status transformer_head_tensor(const struct tensor **out, const struct gguf *g,
                                    const struct transformer_shape *s, struct error *err)
{
    enum status rc =
        transformer_tensor_of_shape(out, g, "output.weight", s->n_vocab, s->width, err);

    return rc == STATUS_NOT_FOUND ? transformer_embed_tensor(out, g, s, err) : rc;
}

enum status transformer_head_bias_tensor(const struct tensor **out, const struct gguf *g,
                                         const struct transformer_shape *s, struct error *err)
{
    enum status rc = transformer_tensor_of_shape(out, g, "output.bias", 1, s->n_vocab, err);

    if (rc != STATUS_NOT_FOUND)
        return rc;
    *out = NULL;
    return STATUS_OK;
}

/* Whether the model has a use for a layer's tensor of that name, which stands after "blk.N.". */
static bool is_part(const struct transformer_shape *s, const char *name)
{
    if (strcmp(name, "attn_qkv.weight") == 0 || strcmp(name, "attn_qkv.bias") == 0)
        return true;
    for (int part = 0; part < N_PARTS; part++)
        if (strcmp(name, rules[part].name) == 0)
            return shape_has(s, (enum transformer_part)part) &&
                   !(s->arch->gate_is_in_up && part == PART_GATE);
    return false;
}

static bool is_known_tensor(const struct transformer_shape *s, const char *name)
{
    static const char *const of_model[] = {"token_embd.weight",
                                           "output_norm.weight",
                                           "output.weight",
                                           "output.bias",
                                           "rope_freqs.weight",
                                           "rope_factors_long.weight",
                                           "rope_factors_short.weight"};
    uint64_t layer;
    size_t len;

    for (size_t i = 0; i < sizeof(of_model) / sizeof(of_model[0]); i++)
        if (strcmp(name, of_model[i]) == 0)
            return true;
    if (strncmp(name, "blk.", 4) != 0)
        return false;
    name += 4;
    len = number_take(&layer, name, SIZE_MAX, UINT64_MAX);
    return len > 0 && layer < s->n_layers && name[len] == '.' && !(name[0] == '0' && len > 1) &&
           is_part(s, name + len + 1);
}

enum status transformer_refuse_unknown_tensors(const struct transformer_shape *s,
                                               const struct gguf *g, struct error *err)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;

        if (!is_known_tensor(s, name))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "%s: tensor '%.60s' is not supported for the %s architecture",
                             gguf_path(g), name, s->arch->name);
    }
    return STATUS_OK;
}
