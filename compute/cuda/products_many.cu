/* Products of many rows with quantised weights, by tensor cores. A block computes a tile of rows by
 * 64 outputs. Its warps share the rows, whose values are in shared memory four groups at a time,
 * and read the weights directly, in the order of a fragment, which is that of the panels. A
 * fragment's integer sum is one group's dot; each is scaled and added at once, so the order is that
 * of groups. */
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.h"
#include "compute/cuda/weights.h"

static constexpr unsigned THREADS = 128;
static constexpr unsigned STEP = 4; /* groups in shared memory at a time */
static constexpr unsigned VALUE_STRIDE =
    STEP * GROUP_VALUES + 16; /* bytes: rows are in different banks */
static constexpr unsigned GROUP_STRIDE = STEP * PIECE_BYTES + 16; /* the same */
static constexpr unsigned OUTPUTS = 64;                           /* of a block */
static constexpr int START = 0x4b400000; /* the bits of 1.5 * 2^23, whose last place is 1 */
#define MAGIC 12582912.0f

/* Loads values and scales of `rows` rows, groups first … first + STEP - 1; zeros where there are
 * none. */
static __device__ __forceinline__ void hold_rows(uint8_t *values, uint8_t *groups,
                                                 const struct cuda_acts *in, unsigned row,
                                                 unsigned n_rows, unsigned rows, unsigned first,
                                                 unsigned n_groups)
{
    const uint4 none = make_uint4(0, 0, 0, 0);

    for (unsigned i = threadIdx.x; i < rows * STEP * 2; i += THREADS) {
        unsigned r = i / (STEP * 2), piece = i % (STEP * 2), group = first + piece / 2;
        bool there = row + r < n_rows && group < n_groups;
        size_t at = ((size_t)(row + r) * n_groups + group) * 2 + piece % 2;

        *(uint4 *)(void *)(values + r * VALUE_STRIDE + piece * PIECE_BYTES) =
            there ? ((const uint4 *)in->values)[at] : none;
    }
    for (unsigned i = threadIdx.x; i < rows * STEP; i += THREADS) {
        unsigned r = i / STEP, group = first + i % STEP;
        bool there = row + r < n_rows && group < n_groups;
        size_t at = (size_t)(row + r) * n_groups + group;

        *(uint4 *)(void *)(groups + r * GROUP_STRIDE + i % STEP * PIECE_BYTES) =
            there ? ((const uint4 *)in->groups)[at] : none;
    }
}

static __device__ __forceinline__ uint32_t word_at(const uint8_t *from)
{
    return *(const uint32_t *)(const void *)from;
}

/* Adds a group's dots to a fragment: y[row][column], rows g and g + 8, columns 2t and 2t + 1. */
template <dtype T>
static __device__ __forceinline__ void
add_fragment(float y[4], const uint32_t a[4], const struct cuda_group rows[2], uint32_t low_word,
             uint32_t high_word, const struct group_scale columns[2])
{
    constexpr int bias = bias_of(T);
    int32_t dot[4], second[4];

#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        int low = rows[i / 2].low, high = rows[i / 2].high;

        dot[i] = START - bias * (has_halves(T) ? low : low + high);
        second[i] = START - bias * high;
    }
    if (has_halves(T)) {
        mma_16x16x8(dot, a[0], a[1], low_word);
        mma_16x16x8(second, a[2], a[3], high_word);
    } else {
        mma_16x32x8(dot, a, low_word, high_word);
    }
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        float scale = rows[i / 2].scale, back = scale * -MAGIC;

        y[i] = fmaf(fmaf(__int_as_float(dot[i]), scale, back), columns[i % 2].scale, y[i]);
        if (has_halves(T))
            y[i] = fmaf(fmaf(__int_as_float(second[i]), scale, back), columns[i % 2].second, y[i]);
        if (has_min(T))
            y[i] = fmaf(columns[i % 2].min, rows[i / 2].sum, y[i]);
    }
}

/* Loads a lane's share of a panel's weights in a group. */
template <dtype T>
static __device__ __forceinline__ void
load_fragment(const struct cuda_matrix *m, unsigned panel, unsigned group, unsigned n_groups,
              unsigned lane, uint32_t *low_word, uint32_t *high_word, struct group_scale columns[2])
{
    unsigned t = lane % 4;
    struct weight_place p = place_of(panel, lane / 4, group, n_groups);
    size_t i = p.panel_group * CUDA_PANEL_ROWS + p.row;
    const uint32_t *codes = (const uint32_t *)m->codes;
    uint32_t nibbles, upper = 0;
    uint2 high = make_uint2(0, 0);

    if (T == DTYPE_Q8_0) {
        codes += (p.panel_group * 2 * CUDA_PANEL_ROWS + p.row) * 4 + t;
        nibbles = codes[0];
        upper = codes[CUDA_PANEL_ROWS * 4];
    } else {
        nibbles = codes[i * 4 + t];
    }
    if (has_fifth(T))
        high.x = ((const uint32_t *)m->high)[i];
    if (T == DTYPE_Q6_K)
        high = ((const uint2 *)m->high)[i];
    code_words<T>(nibbles, upper, high, t, low_word, high_word);
    p.row = 2 * t;
    columns[0] = scale_of<T>(load_scale<T>(m, p));
    p.row = 2 * t + 1;
    columns[1] = scale_of<T>(load_scale<T>(m, p));
}

/* Warps are in WARP_ROWS bands of TILES fragments of 16 rows, and side by side within a band. */
template <dtype T, unsigned WARP_ROWS, unsigned TILES>
static __global__ void __launch_bounds__(THREADS, WARP_ROWS == 1 ? 6 : 3)
    products_many(struct product_list list, struct cuda_acts in, struct cuda_count n, bool adds)
{
    constexpr unsigned rows = WARP_ROWS * TILES * 16, panels = 2 * WARP_ROWS; /* of a warp */
    SHARED(uint4, values, rows * VALUE_STRIDE / sizeof(uint4));
    SHARED(uint4, groups, rows * GROUP_STRIDE / sizeof(uint4));
    unsigned tile, lane = threadIdx.x % WARP_LANES, warp = threadIdx.x / WARP_LANES;
    unsigned band = warp % WARP_ROWS * TILES * 16, row = blockIdx.x * rows, n_rows = count_of(n);
    struct cuda_product product = product_of(&list, blockIdx.y, &tile);
    unsigned n_groups = product.w.n_cols / GROUP_VALUES;
    unsigned n_panels = (product.w.n_rows + CUDA_PANEL_ROWS - 1) / CUDA_PANEL_ROWS;
    unsigned panel = tile * (OUTPUTS / CUDA_PANEL_ROWS) + warp / WARP_ROWS * panels;
    float y[TILES][panels][4] = {};

    if (row >= n_rows)
        return;
    for (unsigned first = 0; first < n_groups; first += STEP) {
        unsigned n_here = n_groups - first < STEP ? n_groups - first : STEP;

        __syncthreads();
        hold_rows((uint8_t *)values, (uint8_t *)groups, &in, row, n_rows, rows, first, n_groups);
        __syncthreads();
#pragma unroll 1
        for (unsigned g = 0; g < n_here; g++) {
            uint32_t a[TILES][4];
            struct cuda_group of_rows[TILES][2];

#pragma unroll
            for (unsigned m = 0; m < TILES; m++) {
                unsigned r = band + m * 16 + lane / 4;
                const uint8_t *at =
                    (const uint8_t *)values + r * VALUE_STRIDE + g * GROUP_VALUES + lane % 4 * 4;

                a[m][0] = word_at(at);
                a[m][1] = word_at(at + 8 * VALUE_STRIDE);
                a[m][2] = word_at(at + 16);
                a[m][3] = word_at(at + 8 * VALUE_STRIDE + 16);
#pragma unroll
                for (unsigned half = 0; half < 2; half++) {
                    uint4 bits = groups[((r + half * 8) * GROUP_STRIDE + g * PIECE_BYTES) / 16];
                    struct cuda_group own = {__uint_as_float(bits.x), __uint_as_float(bits.y),
                                             (int32_t)bits.z, (int32_t)bits.w};

                    of_rows[m][half] = own;
                }
            }
#pragma unroll
            for (unsigned p = 0; p < panels; p++) {
                uint32_t low_word, high_word;
                struct group_scale columns[2];
                unsigned at = panel + p < n_panels ? panel + p : n_panels - 1;

                load_fragment<T>(&product.w, at, first + g, n_groups, lane, &low_word, &high_word,
                                 columns);
#pragma unroll
                for (unsigned m = 0; m < TILES; m++)
                    add_fragment<T>(y[m][p], a[m], of_rows[m], low_word, high_word, columns);
            }
        }
    }
#pragma unroll
    for (unsigned m = 0; m < TILES; m++)
#pragma unroll
        for (unsigned p = 0; p < panels; p++)
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                unsigned r = row + band + m * 16 + lane / 4 + i / 2 * 8;
                unsigned column = (panel + p) * CUDA_PANEL_ROWS + lane % 4 * 2 + i % 2;

                if (r < n_rows && column < product.w.n_rows) {
                    float *to = product.out + (size_t)r * product.w.n_rows + column;

                    *to = adds ? *to + y[m][p][i] : y[m][p][i];
                }
            }
}

/* Tiles of 16 rows and of 64. Blocks with the same weights follow one another, so that these are
 * read from memory once. */
template <dtype T>
static void launch_many(const struct product_list *list, const struct cuda_acts *in,
                        struct cuda_count n, bool adds, struct CUstream_st *stream)
{
    unsigned n_blocks = list->first_block[CUDA_MAX_PRODUCTS];

    if (n.most <= 32)
        LAUNCH((products_many<T, 1, 1>), dim3((n.most + 15) / 16, n_blocks), THREADS, 0, stream,
               *list, *in, n, adds);
    else
        LAUNCH((products_many<T, 2, 2>), dim3((n.most + 63) / 64, n_blocks), THREADS, 0, stream,
               *list, *in, n, adds);
}

void cuda_products_many(const struct cuda_product *products, size_t n_products,
                        const struct cuda_acts *in, struct cuda_count n, bool adds,
                        struct CUstream_st *stream)
{
    struct product_list list;

    (void)list_products(&list, products, n_products, OUTPUTS);
    FOR_BLOCK_TYPE(products->w.type, launch_many<T>(&list, in, n, adds, stream))
    cuda_add_outliers(products, n_products, in, n, stream);
}
