/* The layouts of weights and pages in device memory, computed on the host. */
#include <assert.h>

#include "compute/backend/backend.h"
#include "compute/cuda/kernels.h"

enum { PLANE_ALIGN = 256, GROUP = 32, GROUPS_OF_SUPER = 8, PIECE_BYTES = 16, FLOAT_LANES = 16 };

/* Bytes of a plane for one row and group, and for one row and eight groups. */
struct planes {
    size_t codes, high, scales, supers;
};

static struct planes planes_of(enum dtype type)
{
    switch (type) {
    case DTYPE_Q4_0:
        return (struct planes){.codes = 16, .scales = 2};
    case DTYPE_Q4_1:
        return (struct planes){.codes = 16, .scales = 4};
    case DTYPE_Q5_0:
        return (struct planes){.codes = 16, .high = 4, .scales = 2};
    case DTYPE_Q5_1:
        return (struct planes){.codes = 16, .high = 4, .scales = 4};
    case DTYPE_Q8_0:
        return (struct planes){.codes = 32, .scales = 2};
    case DTYPE_Q4_K:
        return (struct planes){.codes = 16, .scales = 2, .supers = 4};
    case DTYPE_Q5_K:
        return (struct planes){.codes = 16, .high = 4, .scales = 2, .supers = 4};
    case DTYPE_Q6_K:
        return (struct planes){.codes = 16, .high = 8, .scales = 2, .supers = 2};
    default:
        assert(type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16);
        return (struct planes){0};
    }
}

/* Takes the next bytes; NULL if size_bytes is 0 or if there is no memory to take from. */
static uint8_t *layout_take(uint8_t *at, size_t *used, size_t size_bytes)
{
    size_t offset = *used;

    *used += (size_bytes + PLANE_ALIGN - 1) / PLANE_ALIGN * PLANE_ALIGN;
    return at == NULL || size_bytes == 0 ? NULL : at + offset;
}

size_t cuda_matrix_lay_out(struct cuda_matrix *out, enum dtype type, size_t n_rows, size_t n_cols,
                           uint8_t *at)
{
    struct planes p = planes_of(type);
    size_t n_padded = (n_rows + CUDA_PANEL_ROWS - 1) / CUDA_PANEL_ROWS * CUDA_PANEL_ROWS;
    size_t n_groups = n_cols / GROUP, used = 0;

    *out = (struct cuda_matrix){type, (uint32_t)n_rows, (uint32_t)n_cols, NULL, NULL, NULL, NULL};
    if (p.codes == 0) {
        size_t piece = FLOAT_LANES * PIECE_BYTES / dtype_block_bytes(type);

        out->codes = layout_take(
            at, &used, n_rows * ((n_cols + piece - 1) / piece) * FLOAT_LANES * PIECE_BYTES);
        return used;
    }
    assert(n_cols % dtype_block_values(type) == 0);
    out->codes = layout_take(at, &used, n_padded * n_groups * p.codes);
    out->high = layout_take(at, &used, n_padded * n_groups * p.high);
    out->scales = layout_take(at, &used, n_padded * n_groups * p.scales);
    out->supers = layout_take(at, &used, n_padded * n_groups / GROUPS_OF_SUPER * p.supers);
    return used;
}

void cuda_kv_lay_out(struct cuda_kv *out, enum kv_type type, size_t n_layers, size_t n_kv_heads,
                     size_t head_dim)
{
    size_t padded_dim = (head_dim + 15) / 16 * 16;
    size_t part_bytes = KV_PAGE_TOKENS * kv_head_bytes(type, padded_dim);

    *out = (struct cuda_kv){
        .page_bytes = n_layers * n_kv_heads * 2 * part_bytes,
        .layer_bytes = (uint32_t)(n_kv_heads * 2 * part_bytes),
        .head_bytes = (uint32_t)(2 * part_bytes),
        .values_at = (uint32_t)part_bytes,
        .n_kv_heads = (uint32_t)n_kv_heads,
        .head_dim = (uint32_t)head_dim,
        .padded_dim = (uint32_t)padded_dim,
        .type = type,
    };
}
