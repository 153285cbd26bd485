/* Tensors of transformers that hold what GGUF has as several, or in another order: the experts of a
 * layer in one, gates and ups together, columns before rows. Nothing is copied: what a tensor of
 * GGUF reads is described by strides into the file. */
#include <stdio.h>
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { MX_HALF = 16, MX_VALUES = 32 };

static const struct hf_merge {
    size_t n_dims;
    bool is_pair; /* gate and up */
    bool is_bias;
} merges[] = {
    [HF_PLAIN] = {0, false, false},          [HF_SLAB] = {3, false, false},
    [HF_SLAB_GATE_UP] = {3, true, false},    [HF_COLUMNS] = {3, false, false},
    [HF_COLUMNS_GATE_UP] = {3, true, false}, [HF_ROWS] = {2, false, true},
    [HF_ROWS_GATE_UP] = {2, true, true},     [HF_GATE_UP] = {2, true, false},
    [HF_BLOCKS] = {4, false, false},         [HF_BLOCKS_GATE_UP] = {4, true, false},
};

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
    const char *gate = strstr(t->name, "gate");

    if (!merges[kind].is_pair || i == 0 || gate == NULL)
        return;
    (void)snprintf(name, sizeof(name), "%.*sup%s", (int)(gate - t->name), t->name, gate + 4);
    t->name_len = (size_t)snprintf(t->name, sizeof(t->name), "%s", name);
}

/* Strides of part i of what `from` holds. */
static void set_strides(struct tensor *w, enum hf_kind kind, const uint64_t *d, size_t i)
{
    size_t offset = 0;

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
    default: /* HF_SLAB: [part][row][column] */
        w->n_part_rows = d[1];
        w->n_cols = d[2];
        w->strides = (struct tensor_strides){d[1] * d[2], d[2], 1};
    }
    w->n_rows = w->n_part_rows * (kind == HF_GATE_UP ? 1 : d[0]);
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

enum status hf_merged_form(struct named_tensor *t, enum hf_kind kind, const struct hf_tensor *from,
                           size_t i, struct error *err)
{
    const struct hf_merge *m = &merges[kind];
    const uint64_t *d = from->dims;
    const uint64_t halved =
        kind == HF_SLAB_GATE_UP || kind == HF_BLOCKS_GATE_UP || kind == HF_ROWS_GATE_UP ? d[1]
        : kind == HF_COLUMNS_GATE_UP                                                    ? d[2]
                                                                                        : d[0];
    struct tensor *w = &t->tensor;

    if (from->n_dims != m->n_dims || (m->is_pair && halved % 2 != 0) ||
        from->is_bytes != hf_merged_is_blocks(kind) || from->is_fp8 ||
        (from->is_bytes && d[3] != MX_HALF))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "has %zu dimensions or a type that is not supported for it", from->n_dims);
    hf_merged_name(t, kind, i);
    if (hf_merged_is_blocks(kind)) {
        set_blocks(w, kind, d, i);
    } else {
        w->form = TENSOR_STRIDED;
        w->file_type = from->type;
        w->type = m->is_bias ? DTYPE_F32 : from->type;
        set_strides(w, kind, d, i);
    }
    w->size_bytes = w->n_rows * dtype_row_bytes(w->type, w->n_cols);
    return STATUS_OK;
}
