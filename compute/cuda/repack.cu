/* Repacks weights from the file's format to panels, and decodes panels to numbers. */
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.h"
#include "compute/cuda/weights.h"

static constexpr unsigned THREADS = 128;

static __host__ __device__ constexpr unsigned block_bytes(dtype t)
{
    return t == DTYPE_Q4_0   ? 18
           : t == DTYPE_Q4_1 ? 20
           : t == DTYPE_Q5_0 ? 22
           : t == DTYPE_Q5_1 ? 24
           : t == DTYPE_Q8_0 ? 34
           : t == DTYPE_Q4_K ? 144
           : t == DTYPE_Q5_K ? 176
                             : 210;
}

/* Code i of group g of a block; dtype.c says where its bits are. */
template <dtype T>
static __device__ __forceinline__ uint32_t code_at(const uint8_t *block, unsigned g, unsigned i)
{
    constexpr unsigned nibbles = T == DTYPE_Q4_0   ? 2
                                 : T == DTYPE_Q4_1 ? 4
                                 : T == DTYPE_Q5_0 ? 6
                                                   : 8;

    if (T == DTYPE_Q8_0)
        return block[2 + i];
    if (T == DTYPE_Q4_K)
        return block[16 + g / 2 * 32 + i] >> g % 2 * 4 & 15;
    if (T == DTYPE_Q5_K)
        return (block[48 + g / 2 * 32 + i] >> g % 2 * 4 & 15) | (block[16 + i] >> g & 1) << 4;
    if (T == DTYPE_Q6_K)
        return (block[g / 4 * 64 + g % 2 * 32 + i] >> g % 4 / 2 * 4 & 15) |
               (block[128 + g / 4 * 32 + i] >> g % 4 * 2 & 3) << 4;
    return (block[nibbles + i % 16] >> i / 16 * 4 & 15) |
           (has_fifth(T) ? (block[nibbles - 4 + i / 8] >> i % 8 & 1) << 4 : 0);
}

static __device__ __forceinline__ uint32_t load_half(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

/* The scales plane's entry. */
template <dtype T>
static __device__ __forceinline__ uint32_t scale_entry(const uint8_t *block, unsigned g)
{
    const uint8_t *packed = block + 4;
    uint32_t scale, min;

    if (T == DTYPE_Q6_K)
        return load_half(block + 192 + g * 2);
    if (!is_k(T))
        return load_half(block) | (has_min(T) ? load_half(block + 2) << 16 : 0);
    if (g < 4) {
        scale = packed[g] & 63;
        min = packed[g + 4] & 63;
    } else {
        scale = (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
        min = packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    }
    return scale | min << 8;
}

template <dtype T>
static __device__ __forceinline__ void put_codes(const struct cuda_matrix *to,
                                                 struct weight_place p, const uint8_t *block,
                                                 unsigned g, bool there)
{
    size_t i = p.panel_group * CUDA_PANEL_ROWS + p.row;
    uint32_t words[8] = {}, high[2] = {};

#pragma unroll
    for (unsigned k = 0; k < GROUP_VALUES && there; k++) {
        uint32_t code = code_at<T>(block, g, k);
        unsigned w = k % 16 / 4, b = k % 4, half = k / 16;

        if (T == DTYPE_Q8_0)
            words[half * 4 + w] |= code << 8 * b;
        else
            words[w] |= (code & 15) << (8 * b + 4 * half);
        if (has_fifth(T))
            high[0] |= code >> 4 << (8 * b + 4 * half + w);
        if (T == DTYPE_Q6_K)
            high[half] |= code >> 4 << (8 * b + 2 * w);
    }
    if (T == DTYPE_Q8_0) {
        uint4 *at = (uint4 *)to->codes + p.panel_group * 2 * CUDA_PANEL_ROWS + p.row;

        at[0] = make_uint4(words[0], words[1], words[2], words[3]);
        at[CUDA_PANEL_ROWS] = make_uint4(words[4], words[5], words[6], words[7]);
    } else {
        ((uint4 *)to->codes)[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
    if (has_fifth(T))
        ((uint32_t *)to->high)[i] = high[0];
    if (T == DTYPE_Q6_K)
        ((uint2 *)to->high)[i] = make_uint2(high[0], high[1]);
}

template <dtype T>
static __device__ __forceinline__ void put_scales(const struct cuda_matrix *to,
                                                  struct weight_place p, const uint8_t *block,
                                                  unsigned g, bool there)
{
    size_t i = p.panel_group * CUDA_PANEL_ROWS + p.row, j = p.super * CUDA_PANEL_ROWS + p.row;
    uint32_t scale = there ? scale_entry<T>(block, g) : 0;

    if (has_min(T) && !is_k(T))
        ((uint32_t *)to->scales)[i] = scale;
    else
        ((uint16_t *)to->scales)[i] = (uint16_t)scale;
    if (!is_k(T) || g != 0)
        return;
    if (T == DTYPE_Q6_K)
        ((uint16_t *)to->supers)[j] = (uint16_t)(there ? load_half(block + 208) : 0);
    else
        ((uint32_t *)to->supers)[j] = there ? load_half(block) | load_half(block + 2) << 16 : 0;
}

/* One thread per group of a row; rows that fill up the last panel are zeros. */
template <dtype T>
static __global__ void __launch_bounds__(THREADS)
    repack_blocks(struct cuda_matrix to, const uint8_t *rows, unsigned first, unsigned n)
{
    constexpr unsigned n_of_block = is_k(T) ? GROUPS_OF_SUPER : 1; /* groups */
    unsigned n_groups = to.n_cols / GROUP_VALUES, i = blockIdx.y;
    unsigned group = blockIdx.x * THREADS + threadIdx.x, row = first + i;
    size_t row_bytes = (size_t)(n_groups / n_of_block) * block_bytes(T);
    const uint8_t *block = rows + i * row_bytes + group / n_of_block * block_bytes(T);
    struct weight_place p;

    if (group >= n_groups)
        return;
    p = place_of(row / CUDA_PANEL_ROWS, row % CUDA_PANEL_ROWS, group, n_groups);
    put_codes<T>(&to, p, block, group % n_of_block, i < n);
    put_scales<T>(&to, p, block, group % n_of_block, i < n);
}

/* One thread per 16 bytes. */
template <dtype T>
static __global__ void __launch_bounds__(THREADS)
    repack_floats(struct cuda_matrix to, const uint8_t *rows, unsigned first)
{
    constexpr unsigned n = piece_values(T), size = PIECE_BYTES / n;
    unsigned n_pieces = (to.n_cols + n * FLOAT_LANES - 1) / (n * FLOAT_LANES);
    unsigned at = blockIdx.x * THREADS + threadIdx.x, lane = at % FLOAT_LANES;
    const uint8_t *row = rows + (size_t)blockIdx.y * to.n_cols * size;
    uint32_t words[4] = {};

    if (at >= n_pieces * FLOAT_LANES)
        return;
#pragma unroll
    for (unsigned i = 0; i < n; i++) {
        unsigned column = (at / FLOAT_LANES * n + i) * FLOAT_LANES + lane;
        uint32_t bits = column < to.n_cols ? load_half(row + (size_t)column * size) : 0;

        if (size == 4 && column < to.n_cols)
            bits |= load_half(row + (size_t)column * size + 2) << 16;
        words[i * size / 4] |= bits << i * size % 4 * 8;
    }
    ((uint4 *)to.codes)[(size_t)(first + blockIdx.y) * n_pieces * FLOAT_LANES + at] =
        make_uint4(words[0], words[1], words[2], words[3]);
}

static constexpr unsigned MAX_GRID_Y = 65528; /* a multiple of a panel's rows */

void cuda_repack(const struct cuda_matrix *to, const void *rows, uint32_t first, uint32_t n,
                 struct CUstream_st *stream)
{
    const uint8_t *from = (const uint8_t *)rows;
    size_t row_bytes = dtype_row_bytes(to->type, to->n_cols);

    for (uint32_t done = 0; done < n; done += MAX_GRID_Y) {
        uint32_t left = n - done < MAX_GRID_Y ? n - done : MAX_GRID_Y;
        uint32_t padded = (left + CUDA_PANEL_ROWS - 1) / CUDA_PANEL_ROWS * CUDA_PANEL_ROWS;
        const uint8_t *at = from + done * row_bytes;

        FOR_BLOCK_TYPE(to->type,
                       LAUNCH((repack_blocks<T>),
                              dim3((to->n_cols / GROUP_VALUES + THREADS - 1) / THREADS, padded),
                              THREADS, 0, stream, *to, at, first + done, left))
        FOR_FLOAT_TYPE(to->type, LAUNCH((repack_floats<T>),
                                        dim3((to->n_cols + THREADS - 1) / THREADS + 1, left),
                                        THREADS, 0, stream, *to, at, first + done))
    }
}

/* Values 4q … 4q + 3 of a group of a row, rounded as dtype_decode does. */
template <dtype T>
static __device__ __forceinline__ float4 decode_quad(const struct cuda_matrix *m,
                                                     struct weight_place p, unsigned q)
{
    struct raw_group<T> raw = load_group<T>(m, p);
    struct group_scale s = scale_of<T>(load_scale<T>(m, p));
    unsigned w = q % 4;
    uint32_t nibbles = w == 0   ? raw.codes.x
                       : w == 1 ? raw.codes.y
                       : w == 2 ? raw.codes.z
                                : raw.codes.w;
    uint32_t upper = w == 0   ? raw.upper.x
                     : w == 1 ? raw.upper.y
                     : w == 2 ? raw.upper.z
                              : raw.upper.w;
    uint32_t low_word, high_word, word;
    float scale = has_halves(T) && q >= 4 ? s.second : s.scale, x[4];

    code_words<T>(nibbles, upper, raw.high, w, &low_word, &high_word);
    word = q < 4 ? low_word : high_word;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        uint32_t code = word >> 8 * i & 0xff;
        int value = T == DTYPE_Q8_0 ? (int)(int8_t)code : (int)code - bias_of(T);

        x[i] = (float)value * scale;
        if (has_min(T))
            x[i] = x[i] + s.min;
    }
    return make_float4(x[0], x[1], x[2], x[3]);
}

template <dtype T>
static __device__ __forceinline__ float4 decode_four(const struct cuda_matrix *m, unsigned row,
                                                     unsigned i)
{
    constexpr unsigned n = piece_values(T);
    unsigned n_pieces = (m->n_cols + n * FLOAT_LANES - 1) / (n * FLOAT_LANES);
    const uint4 *pieces = (const uint4 *)m->codes + (size_t)row * n_pieces * FLOAT_LANES;
    float x[4];

#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
        unsigned column = 4 * i + k, turn = column / FLOAT_LANES;

        x[k] = piece_value<T>(pieces[turn / n * FLOAT_LANES + column % FLOAT_LANES], turn % n);
    }
    return make_float4(x[0], x[1], x[2], x[3]);
}

/* Columns 4i … 4i + 3 of a row; those of a float weight beyond the last are zeros. */
template <dtype T>
static __device__ __forceinline__ float4 decode(const struct cuda_matrix *m, unsigned row,
                                                unsigned i)
{
    if constexpr (is_float_type(T))
        return decode_four<T>(m, row, i);
    else
        return decode_quad<T>(
            m,
            place_of(row / CUDA_PANEL_ROWS, row % CUDA_PANEL_ROWS, i / 8, m->n_cols / GROUP_VALUES),
            i % 8);
}

template <dtype T>
static __global__ void __launch_bounds__(THREADS)
    embed_rows(struct cuda_matrix table, const int32_t *ids, struct cuda_count n, float *out)
{
    unsigned row = blockIdx.x, width = table.n_cols;

    if (row >= count_of(n))
        return;
    for (unsigned i = threadIdx.x; 4 * i < width; i += THREADS) {
        float4 x = decode<T>(&table, (unsigned)ids[row], i);
        float *to = out + (size_t)row * width + 4 * i;

        to[0] = x.x;
        if (4 * i + 1 < width)
            to[1] = x.y;
        if (4 * i + 2 < width)
            to[2] = x.z;
        if (4 * i + 3 < width)
            to[3] = x.w;
    }
}

void cuda_embed(const struct cuda_matrix *table, const int32_t *ids, struct cuda_count n,
                float *out, struct CUstream_st *stream)
{
    FOR_BLOCK_TYPE(table->type,
                   LAUNCH((embed_rows<T>), n.most, THREADS, 0, stream, *table, ids, n, out))
    FOR_FLOAT_TYPE(table->type,
                   LAUNCH((embed_rows<T>), n.most, THREADS, 0, stream, *table, ids, n, out))
}

template <dtype T>
static __global__ void __launch_bounds__(THREADS)
    decode_rows(struct cuda_matrix from, unsigned first, uint16_t *to)
{
    unsigned width = from.n_cols;
    uint16_t *row = to + (size_t)blockIdx.x * width;

    for (unsigned i = threadIdx.x; 4 * i < width; i += THREADS) {
        float4 x = decode<T>(&from, first + blockIdx.x, i);
        uint32_t half[4] = {f16_round(x.x), f16_round(x.y), f16_round(x.z), f16_round(x.w)};

        if (width % 4 == 0) { /* so that each row of them is aligned */
            ((uint2 *)row)[i] = make_uint2(half[0] | half[1] << 16, half[2] | half[3] << 16);
            continue;
        }
#pragma unroll
        for (unsigned k = 0; k < 4; k++)
            if (4 * i + k < width)
                row[4 * i + k] = (uint16_t)half[k];
    }
}

void cuda_matrix_f16(const struct cuda_matrix *from, uint32_t first, uint32_t n, uint16_t *to,
                     struct CUstream_st *stream)
{
    FOR_BLOCK_TYPE(from->type, LAUNCH((decode_rows<T>), n, THREADS, 0, stream, *from, first, to))
    FOR_FLOAT_TYPE(from->type, LAUNCH((decode_rows<T>), n, THREADS, 0, stream, *from, first, to))
}

/* A thread adds to one output of a row. */
template <dtype T>
static __global__ void __launch_bounds__(THREADS)
    add_outliers(struct product_list list, struct cuda_acts in, struct cuda_count n)
{
    unsigned tile, row = blockIdx.x;
    struct cuda_product product = product_of(&list, blockIdx.y, &tile);
    unsigned n_groups = product.w.n_cols / GROUP_VALUES, output = tile * THREADS + threadIdx.x;
    const struct cuda_outlier *of_row = in.outliers + (size_t)row * n_groups;
    float *to = product.out + (size_t)row * product.w.n_rows + output, y;

    if (row >= count_of(n) || output >= product.w.n_rows)
        return;
    y = *to;
    for (unsigned i = 0; i < n_groups && of_row[i].column != UINT32_MAX; i++) {
        struct cuda_outlier o = of_row[i];
        float4 w = decode<T>(&product.w, output, o.column / 4);
        unsigned at = o.column % 4;

        y = fmaf(o.value, at == 0 ? w.x : at == 1 ? w.y : at == 2 ? w.z : w.w, y);
    }
    *to = y;
}

void cuda_add_outliers(const struct cuda_product *products, size_t n_products,
                       const struct cuda_acts *in, struct cuda_count n, struct CUstream_st *stream)
{
    struct product_list list;
    unsigned n_blocks = list_products(&list, products, n_products, THREADS);

    FOR_BLOCK_TYPE(products->w.type, LAUNCH((add_outliers<T>), dim3(n.most, n_blocks), THREADS, 0,
                                            stream, list, *in, n))
}
