/* How kernels read a repacked weight; kernels.h has its layout. The type is a constant where these
 * are called. */
#ifndef COMPUTE_CUDA_WEIGHTS_H
#define COMPUTE_CUDA_WEIGHTS_H

#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.h"

static constexpr unsigned GROUP_VALUES = 32, GROUPS_OF_SUPER = 8, PIECE_BYTES = 16,
                          FLOAT_LANES = 16;

/* Runs body with T, a template argument, set to the type, which is quantised. */
#define FOR_BLOCK_TYPE(type, body)      \
    switch (type) {                     \
    case DTYPE_Q4_0: {                  \
        constexpr dtype T = DTYPE_Q4_0; \
        body;                           \
    } break;                            \
    case DTYPE_Q4_1: {                  \
        constexpr dtype T = DTYPE_Q4_1; \
        body;                           \
    } break;                            \
    case DTYPE_Q5_0: {                  \
        constexpr dtype T = DTYPE_Q5_0; \
        body;                           \
    } break;                            \
    case DTYPE_Q5_1: {                  \
        constexpr dtype T = DTYPE_Q5_1; \
        body;                           \
    } break;                            \
    case DTYPE_Q8_0: {                  \
        constexpr dtype T = DTYPE_Q8_0; \
        body;                           \
    } break;                            \
    case DTYPE_Q4_K: {                  \
        constexpr dtype T = DTYPE_Q4_K; \
        body;                           \
    } break;                            \
    case DTYPE_Q5_K: {                  \
        constexpr dtype T = DTYPE_Q5_K; \
        body;                           \
    } break;                            \
    case DTYPE_Q6_K: {                  \
        constexpr dtype T = DTYPE_Q6_K; \
        body;                           \
    } break;                            \
    default:                            \
        break;                          \
    }

#define FOR_FLOAT_TYPE(type, body)      \
    switch (type) {                     \
    case DTYPE_F32: {                   \
        constexpr dtype T = DTYPE_F32;  \
        body;                           \
    } break;                            \
    case DTYPE_F16: {                   \
        constexpr dtype T = DTYPE_F16;  \
        body;                           \
    } break;                            \
    case DTYPE_BF16: {                  \
        constexpr dtype T = DTYPE_BF16; \
        body;                           \
    } break;                            \
    default:                            \
        break;                          \
    }

static __host__ __device__ constexpr bool is_float_type(dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16;
}

/* The bias that is subtracted from a code. */
static __host__ __device__ constexpr int bias_of(dtype t)
{
    return t == DTYPE_Q4_0 ? 8 : t == DTYPE_Q5_0 ? 16 : t == DTYPE_Q6_K ? 32 : 0;
}

static __host__ __device__ constexpr bool has_halves(dtype t)
{
    return t == DTYPE_Q6_K;
}

static __host__ __device__ constexpr bool has_min(dtype t)
{
    return t == DTYPE_Q4_1 || t == DTYPE_Q5_1 || t == DTYPE_Q4_K || t == DTYPE_Q5_K;
}

static __host__ __device__ constexpr bool has_fifth(dtype t)
{
    return t == DTYPE_Q5_0 || t == DTYPE_Q5_1 || t == DTYPE_Q5_K;
}

static __host__ __device__ constexpr bool is_k(dtype t)
{
    return t == DTYPE_Q4_K || t == DTYPE_Q5_K || t == DTYPE_Q6_K;
}

/* Columns of 16 bytes of a float weight. */
static __host__ __device__ constexpr unsigned piece_values(dtype t)
{
    return t == DTYPE_F32 ? 4 : 8;
}

/* A weight's row and group. */
struct weight_place {
    size_t panel_group; /* panel * groups + group */
    size_t super;       /* panel * (groups / 8) + group / 8 */
    unsigned row;       /* of the panel */
};

static __device__ __forceinline__ struct weight_place place_of(unsigned panel, unsigned row,
                                                               unsigned group, unsigned n_groups)
{
    struct weight_place p = {(size_t)panel * n_groups + group,
                             (size_t)panel * (n_groups / GROUPS_OF_SUPER) + group / GROUPS_OF_SUPER,
                             row};

    return p;
}

/* A group as it is in memory, before unpacking. */
template <dtype T> struct raw_group {
    uint4 codes, upper; /* upper: of Q8_0 */
    uint2 high;
};

template <dtype T>
static __device__ __forceinline__ struct raw_group<T> load_group(const struct cuda_matrix *m,
                                                                 struct weight_place p) {
    struct raw_group<T> raw = {
    };
    size_t i = p.panel_group * CUDA_PANEL_ROWS + p.row;

    if (T == DTYPE_Q8_0) {
        const uint4 *at = (const uint4 *)m->codes + p.panel_group * 2 * CUDA_PANEL_ROWS + p.row;

        raw.codes = at[0];
        raw.upper = at[CUDA_PANEL_ROWS];
    } else {
        raw.codes = ((const uint4 *)m->codes)[i];
    }
    if (has_fifth(T))
        raw.high.x = ((const uint32_t *)m->high)[i];
    if (T == DTYPE_Q6_K)
        raw.high = ((const uint2 *)m->high)[i];
    return raw;
}

/* Codes 4w … 4w + 3 and 16 + 4w … of a group, a byte each: the words of the two halves. `nibbles`
 * is word w of the codes, `upper` of the upper half of Q8_0. */
template <dtype T>
static __device__ __forceinline__ void code_words(uint32_t nibbles, uint32_t upper, uint2 high,
                                                  unsigned w, uint32_t *low_word,
                                                  uint32_t *high_word)
{
    if (T == DTYPE_Q8_0) {
        *low_word = nibbles;
        *high_word = upper;
        return;
    }
    *low_word = nibbles & 0x0f0f0f0f;
    *high_word = nibbles >> 4 & 0x0f0f0f0f;
    if (has_fifth(T)) {
        *low_word |= high.x << (4 - w) & 0x10101010;
        *high_word |= high.x >> w & 0x10101010;
    }
    if (T == DTYPE_Q6_K) {
        *low_word |= high.x >> 2 * w << 4 & 0x30303030;
        *high_word |= high.y >> 2 * w << 4 & 0x30303030;
    }
}

/* The scale or, for formats with halves, two; and the min. */
struct group_scale {
    float scale, second, min;
};

/* Their bytes, which are read before they are needed. */
struct raw_scale {
    uint32_t scale, super;
};

template <dtype T>
static __device__ __forceinline__ struct raw_scale load_scale(const struct cuda_matrix *m,
                                                              struct weight_place p)
{
    size_t i = p.panel_group * CUDA_PANEL_ROWS + p.row, j = p.super * CUDA_PANEL_ROWS + p.row;
    struct raw_scale raw = {0, 0};

    if (has_min(T) && !is_k(T))
        raw.scale = ((const uint32_t *)m->scales)[i];
    else
        raw.scale = ((const uint16_t *)m->scales)[i];
    if (T == DTYPE_Q6_K)
        raw.super = ((const uint16_t *)m->supers)[j];
    else if (is_k(T))
        raw.super = ((const uint32_t *)m->supers)[j];
    return raw;
}

template <dtype T>
static __device__ __forceinline__ struct group_scale scale_of(struct raw_scale raw)
{
    struct group_scale s = {0.0f, 0.0f, 0.0f};

    if (T == DTYPE_Q6_K) {
        float super = f16_widen((uint16_t)raw.super);

        s.scale = super * (float)(int8_t)(raw.scale & 0xff);
        s.second = super * (float)(int8_t)(raw.scale >> 8);
    } else if (is_k(T)) {
        s.scale = f16_widen((uint16_t)raw.super) * (float)(raw.scale & 0xff);
        s.min = -(f16_widen((uint16_t)(raw.super >> 16)) * (float)(raw.scale >> 8));
    } else {
        s.scale = f16_widen((uint16_t)raw.scale);
        if (has_min(T))
            s.min = f16_widen((uint16_t)(raw.scale >> 16));
    }
    return s;
}

/* Number i of a piece of a float weight. */
template <dtype T> static __device__ __forceinline__ float piece_value(uint4 piece, unsigned i)
{
    unsigned word = T == DTYPE_F32 ? i : i / 2;
    uint32_t bits = word == 0 ? piece.x : word == 1 ? piece.y : word == 2 ? piece.z : piece.w;
    uint32_t half = i % 2 == 0 ? bits & 0xffff : bits >> 16;

    if (T == DTYPE_F32)
        return __uint_as_float(bits);
    return T == DTYPE_F16 ? f16_widen((uint16_t)half) : __uint_as_float(half << 16);
}

/* How many rows there are. */
static __device__ __forceinline__ unsigned count_of(struct cuda_count n)
{
    unsigned have = n.n == NULL ? n.most : *n.n;

    return have < n.most ? have : n.most;
}

/* The products of a launch, as a kernel's argument. */
struct product_list {
    struct cuda_product at[CUDA_MAX_PRODUCTS];
    unsigned first_block[CUDA_MAX_PRODUCTS + 1]; /* each product's part of the grid */
    unsigned none;                               /* where there would be a hole */
};

/* Assigns rows_of_block rows of the products' weights to each block; returns the number of
 * blocks. */
static inline unsigned list_products(struct product_list *out, const struct cuda_product *products,
                                     size_t n_products, unsigned rows_of_block)
{
    unsigned n_blocks = 0;

    for (unsigned i = 0; i < CUDA_MAX_PRODUCTS; i++) {
        out->at[i] = products[i < n_products ? i : 0];
        out->first_block[i] = n_blocks;
        if (i < n_products)
            n_blocks += (products[i].w.n_rows + rows_of_block - 1) / rows_of_block;
    }
    out->first_block[CUDA_MAX_PRODUCTS] = n_blocks;
    out->none = 0;
    return n_blocks;
}

/* The product of a block, found by constant indices only, so that the list is not copied. */
static __device__ __forceinline__ struct cuda_product
pick_product(const struct product_list *list, unsigned block, unsigned *ret_block)
{
    if (block < list->first_block[1]) {
        *ret_block = block;
        return list->at[0];
    }
    if (block < list->first_block[2]) {
        *ret_block = block - list->first_block[1];
        return list->at[1];
    }
    if (block < list->first_block[3]) {
        *ret_block = block - list->first_block[2];
        return list->at[2];
    }
    *ret_block = block - list->first_block[3];
    return list->at[3];
}

/* The same. Pointers that were chosen between products are to global memory, which the compiler no
 * longer knows by itself. */
static __device__ __forceinline__ struct cuda_product
product_of(const struct product_list *list, unsigned block, unsigned *ret_block)
{
    struct cuda_product p = pick_product(list, block, ret_block);

    p.w.codes = in_global(p.w.codes);
    p.w.high = in_global(p.w.high);
    p.w.scales = in_global(p.w.scales);
    p.w.supers = in_global(p.w.supers);
    p.out = in_global(p.out);
    return p;
}

#endif
