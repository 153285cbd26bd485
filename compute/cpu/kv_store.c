/* Stores a token's keys and values in their pages, in the layout of kv_view. */
#include "compute/cpu/isa.h"
#include "compute/cpu/pairs.h"

/* Store x [n] at every step-th place of `to`, in the type; return the f32 that goes after the
 * page's numbers. */
static float store_f32(float *to, size_t step, const float *x, size_t n)
{
    for (size_t d = 0; d < n; d++)
        to[d * step] = x[d];
    return greatest_magnitude(x, n);
}

static float store_f16(uint16_t *to, size_t step, const float *x, size_t n)
{
    uint16_t half[LANES];
    float stored[KERNELS_HEAD_DIM];

    for (size_t d = 0; d < n; d += LANES) {
        size_t some = n - d < LANES ? n - d : LANES;

        v16_store_f16(half, some < LANES ? v16_load_some(x + d, some) : v16_load(x + d));
        v16_store(stored + d, v16_load_f16(half));
        for (size_t i = 0; i < some; i++)
            to[(d + i) * step] = half[i];
    }
    return greatest_magnitude(stored, n);
}

static float store_q8(int8_t *to, size_t step, const float *x, size_t n)
{
    int8_t rounded[KERNELS_HEAD_DIM];
    float scale = kv_q8_round(x, n, rounded);

    for (size_t d = 0; d < n; d++)
        to[d * step] = rounded[d];
    return scale;
}

/* Stores a key or value whose numbers begin at `at`, and its f32 at the page's `scales`. */
static void kv_store_values(enum kv_type type, uint8_t *page, size_t at, size_t step, size_t scales,
                            size_t slot, const float *x, size_t n)
{
    uint8_t *to = page + kv_row_bytes(type, at);
    float scale;

    switch (type) {
    case KV_F32:
        scale = store_f32((float *)(void *)to, step, x, n);
        break;
    case KV_F16:
        scale = store_f16((uint16_t *)(void *)to, step, x, n);
        break;
    default:
        scale = store_q8((int8_t *)to, step, x, n);
    }
    memcpy(page + kv_row_bytes(type, scales) + slot * sizeof(scale), &scale, sizeof(scale));
}

void FLOAT_NAME(kv_store)(const struct kv_view *kv, int32_t page, size_t slot, size_t head,
                          const float *k, const float *v)
{
    uint8_t *to = kv->base + (size_t)page * kv->page_bytes + head * kv->head_bytes;

    kv_store_values(kv->type, to, slot, KV_PAGE_TOKENS, kv->head_dim * KV_PAGE_TOKENS, slot, k,
                    kv->head_dim);
    kv_store_values(kv->type, to + kv->values_at, slot * kv->padded_dim, 1,
                    kv->padded_dim * KV_PAGE_TOKENS, slot, v, kv->head_dim);
}
