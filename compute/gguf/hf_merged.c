/* Tensors of transformers that hold what GGUF has as several, or in another order: the experts of a
 * layer in one, gates and ups together, columns before rows. Nothing is copied: what a tensor of
 * GGUF reads is described by strides into the file. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { MX_HALF = 16, MX_VALUES = 32 };

static const struct hf_merge {
    size_t n_dims;
    bool is_pair; /* two of GGUF's */
    bool is_bias;
} merges[] = {
    [HF_PLAIN] = {0, false, false},          [HF_SLAB] = {3, false, false},
    [HF_SLAB_GATE_UP] = {3, true, false},    [HF_COLUMNS] = {3, false, false},
    [HF_COLUMNS_GATE_UP] = {3, true, false}, [HF_ROWS] = {2, false, true},
    [HF_COLUMNS_HALVES] = {3, true, false},  [HF_ROWS_GATE_UP] = {2, true, true},
    [HF_GATE_UP] = {2, true, false},         [HF_BLOCKS] = {4, false, false},
    [HF_BLOCKS_GATE_UP] = {4, true, false},  [HF_LATENT] = {2, true, false},
    [HF_STATE_HEADS] = {2, true, false},     [HF_DECAYS] = {1, false, true},
    [HF_GROUPS] = {1, false, true},
};

/* The first and the second of two that one tensor holds. */
static const char *const pair_names[][2] = {
    {"attn_k_b", "attn_v_b"}, {"attn_qkv", "attn_gate"}, {"gate", "up"}};

bool hf_merged_is_blocks(enum hf_kind kind)
{
    return kind == HF_BLOCKS || kind == HF_BLOCKS_GATE_UP;
}

size_t hf_merged_n(enum hf_kind kind)
{
    return merges[kind].is_pair ? 2 : 1;
}

void hf_merged_name(struct named_tensor *t, enum hf_kind kind, size_t i)
{
    char name[GGUF_TENSOR_NAME_MAX + 1];

    for (size_t k = 0; merges[kind].is_pair && i > 0 && k < 3; k++) {
        const char *first = strstr(t->name, pair_names[k][0]);

        if (first == NULL)
            continue;
        (void)snprintf(name, sizeof(name), "%.*s%s%s", (int)(first - t->name), t->name,
                       pair_names[k][1], first + strlen(pair_names[k][0]));
        t->name_len = (size_t)snprintf(t->name, sizeof(t->name), "%s", name);
        return;
    }
}

bool hf_merged_is_slab(enum hf_kind kind)
{
    return kind == HF_SLAB || kind == HF_SLAB_GATE_UP;
}

size_t hf_merged_n_parts(enum hf_kind kind, const struct hf_model *m, const struct hf_tensor *from,
                         size_t i)
{
    if (from->is_fp8)
        return from->dims[0];
    if (kind != HF_STATE_HEADS)
        return 0;
    return (i == 0 ? 2 * m->n_key_heads : 0) + m->n_state_heads;
}

/* Parts are heads: of the first all queries, all keys, all values; of the second all gates. */
size_t hf_merged_part_row(enum hf_kind kind, const struct hf_model *m, const struct hf_tensor *from,
                          size_t i, size_t part)
{
    const size_t n_keys = m->n_key_heads, each = n_keys > 0 ? m->n_state_heads / n_keys : 0;
    const size_t value = i == 0 ? part - 2 * n_keys : part, all = 2 + 2 * each;
    size_t head;

    if (from->is_fp8)
        return part * from->dims[1] + i * from->dims[1] / 2;
    assert(kind == HF_STATE_HEADS);
    if (i == 0 && part < 2 * n_keys)
        head = part % n_keys * all + part / n_keys;
    else
        head = value / each * all + 2 + (i == 0 ? 0 : each) + value % each;
    return head * m->state_dim;
}

/* Strides of part i of what `from` holds. */
static void set_strides(struct tensor *w, enum hf_kind kind, const struct hf_model *m,
                        const uint64_t *d, size_t i)
{
    size_t offset = 0, n_parts = kind == HF_GATE_UP || kind == HF_GROUPS ? 1 : d[0];

    switch (kind) {
    case HF_SLAB_GATE_UP: /* [part][gates, ups][column] */
        w->n_part_rows = d[1] / 2;
        w->n_cols = d[2];
        w->strides = (struct tensor_strides){d[1] * d[2], d[2], 1};
        offset = i * d[1] / 2 * d[2];
        break;
    case HF_COLUMNS: /* [part][column][row] */
        w->n_part_rows = d[2];
        w->n_cols = d[1];
        w->strides = (struct tensor_strides){d[1] * d[2], 1, d[2]};
        break;
    case HF_COLUMNS_GATE_UP: /* [part][column][a gate, an up, …] */
        w->n_part_rows = d[2] / 2;
        w->n_cols = d[1];
        w->strides = (struct tensor_strides){d[1] * d[2], 2, d[2]};
        offset = i;
        break;
    case HF_COLUMNS_HALVES: /* [part][column][gates, ups] */
        w->n_part_rows = d[2] / 2;
        w->n_cols = d[1];
        w->strides = (struct tensor_strides){d[1] * d[2], 1, d[2]};
        offset = i * d[2] / 2;
        break;
    case HF_ROWS: /* [part][column] */
        w->n_part_rows = 1;
        w->n_cols = d[1];
        w->strides = (struct tensor_strides){d[1], 1, 1};
        break;
    case HF_ROWS_GATE_UP: /* [part][a gate, an up, …] */
        w->n_part_rows = 1;
        w->n_cols = d[1] / 2;
        w->strides = (struct tensor_strides){d[1], 1, 2};
        offset = i;
        break;
    case HF_GATE_UP: /* [gates, ups][column] */
        w->n_part_rows = d[0] / 2;
        w->n_cols = d[1];
        w->strides = (struct tensor_strides){0, d[1], 1};
        offset = i * d[0] / 2 * d[1];
        break;
    case HF_GROUPS: /* [group][number] */
        w->n_part_rows = m->n_key_heads;
        w->n_cols = d[0] / m->n_key_heads;
        w->strides = (struct tensor_strides){0, w->n_cols, 1};
        break;
    case HF_LATENT: /* [head][numbers of a key, then of a value][latent number] */
        n_parts = m->n_heads;
        w->n_part_rows = i == 0 ? d[1] : m->value_dim;
        w->n_cols = i == 0 ? m->plain_dim : d[1];
        w->strides = (struct tensor_strides){(m->plain_dim + m->value_dim) * d[1],
                                             i == 0 ? 1 : d[1], i == 0 ? d[1] : 1};
        offset = i * m->plain_dim * d[1];
        break;
    default: /* HF_SLAB: [part][row][column] */
        w->n_part_rows = d[1];
        w->n_cols = d[2];
        w->strides = (struct tensor_strides){d[1] * d[2], d[2], 1};
    }
    w->n_rows = w->n_part_rows * n_parts;
    w->file_at += offset * dtype_block_bytes(w->file_type);
}

static void set_blocks(struct tensor *w, enum hf_kind kind, const uint64_t *d, size_t i)
{
    const bool is_pair = merges[kind].is_pair;

    w->form = TENSOR_PARTS;
    w->source = SOURCE_MXFP4;
    w->type = DTYPE_MXFP4;
    w->n_cols = d[2] * MX_VALUES;
    w->n_rows = w->n_part_rows = d[0] * d[1] / (is_pair ? 2 : 1);
    w->row_step = is_pair ? 2 : 1;
    w->row_from = i;
}

/* One part of the i-th. */
static void set_heads(struct tensor *w, const struct hf_tensor *from, const struct hf_model *m)
{
    w->form = TENSOR_PARTS;
    w->source = SOURCE_AS_IS;
    w->type = from->type;
    w->n_cols = from->dims[1];
    w->n_rows = w->n_part_rows = m->state_dim;
}

/* One expert of a slab in FP8. */
static void set_expert(struct tensor *w, enum hf_kind kind, const struct hf_tensor *from)
{
    w->form = TENSOR_PARTS;
    w->source = SOURCE_FP8;
    w->type = DTYPE_F32;
    w->n_cols = from->dims[2];
    w->n_rows = w->n_part_rows = from->dims[1] / (merges[kind].is_pair ? 2 : 1);
}

static void set_decays(struct tensor *w, const struct hf_tensor *from)
{
    w->form = TENSOR_WIDE;
    w->file_type = from->type;
    w->type = DTYPE_F32;
    w->n_rows = 1;
    w->n_cols = from->dims[0];
    w->is_decay = true;
}

/* Whether the file's tensor has the rows that the model's numbers require. */
static bool has_merged_rows(enum hf_kind kind, const struct hf_model *m, const uint64_t *d)
{
    if (kind == HF_LATENT)
        return m->latent_rank == d[1] && d[0] == m->n_heads * (m->plain_dim + m->value_dim);
    if (kind == HF_GROUPS)
        return m->n_key_heads > 0 && d[0] % m->n_key_heads == 0;
    return kind != HF_STATE_HEADS ||
           (m->n_key_heads > 0 && d[0] == 2 * (m->n_key_heads + m->n_state_heads) * m->state_dim);
}

enum status hf_merged_form(struct named_tensor *t, enum hf_kind kind, const struct hf_model *model,
                           const struct hf_tensor *from, size_t i, struct error *err)
{
    const struct hf_merge *m = &merges[kind];
    const uint64_t *d = from->dims;
    const uint64_t halved =
        kind == HF_SLAB_GATE_UP || kind == HF_BLOCKS_GATE_UP || kind == HF_ROWS_GATE_UP ? d[1]
        : kind == HF_COLUMNS_GATE_UP || kind == HF_COLUMNS_HALVES                       ? d[2]
                                                                                        : d[0];
    struct tensor *w = &t->tensor;

    if (from->n_dims != m->n_dims || (m->is_pair && halved % 2 != 0) ||
        from->is_bytes != hf_merged_is_blocks(kind) || (from->is_fp8 && !hf_merged_is_slab(kind)) ||
        (from->is_bytes && d[3] != MX_HALF) || !has_merged_rows(kind, model, d))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "has %zu dimensions, a size or a type that is not supported for it",
                         from->n_dims);
    hf_merged_name(t, kind, i);
    if (from->is_fp8) {
        set_expert(w, kind, from);
    } else if (hf_merged_is_blocks(kind)) {
        set_blocks(w, kind, d, i);
    } else if (kind == HF_STATE_HEADS) {
        set_heads(w, from, model);
    } else if (kind == HF_DECAYS) {
        set_decays(w, from);
    } else {
        w->form = TENSOR_STRIDED;
        w->file_type = from->type;
        w->type = m->is_bias ? DTYPE_F32 : from->type;
        set_strides(w, kind, model, d, i);
    }
    w->size_bytes = w->n_rows * dtype_row_bytes(w->type, w->n_cols);
    return STATUS_OK;
}
