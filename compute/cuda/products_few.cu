/* Products of few rows with quantised weights, by dp4a. A block computes a panel of eight outputs.
 * Its threads process the groups sixteen at a time, each for one output: integer dots in parallel.
 * One thread per output and row then adds the dots up in the order of groups, while the others read
 * on. */
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.h"
#include "compute/cuda/weights.h"

static constexpr unsigned THREADS = 128;
static constexpr unsigned PASS = THREADS / CUDA_PANEL_ROWS; /* groups at a time */
static constexpr unsigned STRIDE = PASS + 1; /* so that eight outputs are in eight banks */
static constexpr unsigned MAX_ROWS = 8;

/* The partial sums of a pass; there is room for two passes, so that one is added up while the next
 * is computed. */
template <unsigned R> struct parts {
    float dot[R][CUDA_PANEL_ROWS][STRIDE], second[R][CUDA_PANEL_ROWS][STRIDE];
    float sum[R][STRIDE]; /* of activations */
    float scale[CUDA_PANEL_ROWS][STRIDE], min[CUDA_PANEL_ROWS][STRIDE];
};

template <dtype T, unsigned R>
static __device__ __forceinline__ void
multiply_group(struct parts<R> *to, unsigned slot, unsigned output, struct raw_group<T> raw,
               struct group_scale scale, const struct cuda_acts *in, unsigned row, unsigned n_rows,
               unsigned group, unsigned n_groups)
{
    uint32_t low[4], high[4];
    const uint32_t codes[4] = {raw.codes.x, raw.codes.y, raw.codes.z, raw.codes.w};
    const uint32_t upper[4] = {raw.upper.x, raw.upper.y, raw.upper.z, raw.upper.w};

#pragma unroll
    for (unsigned w = 0; w < 4; w++)
        code_words<T>(codes[w], upper[w], raw.high, w, &low[w], &high[w]);
    to->scale[output][slot] = scale.scale;
    if (has_min(T) || has_halves(T))
        to->min[output][slot] = has_halves(T) ? scale.second : scale.min;
#pragma unroll
    for (unsigned r = 0; r < R; r++) {
        unsigned i = row + r < n_rows ? row + r : n_rows - 1;
        size_t at = (size_t)i * n_groups + group;
        struct cuda_group g = in->groups[at];
        uint4 a = ((const uint4 *)in->values)[at * 2], b = ((const uint4 *)in->values)[at * 2 + 1];
        int first =
            dot4(low[3], a.w,
                 dot4(low[2], a.z, dot4(low[1], a.y, dot4(low[0], a.x, -bias_of(T) * g.low))));
        int second =
            dot4(high[3], b.w,
                 dot4(high[2], b.z, dot4(high[1], b.y, dot4(high[0], b.x, -bias_of(T) * g.high))));

        if (has_halves(T)) {
            to->dot[r][output][slot] = (float)first * g.scale;
            to->second[r][output][slot] = (float)second * g.scale;
        } else {
            to->dot[r][output][slot] = (float)(first + second) * g.scale;
        }
        if (has_min(T) && output == 0)
            to->sum[r][slot] = g.sum;
    }
}

template <dtype T, unsigned R>
static __device__ __forceinline__ float add_up(float y, const struct parts<R> *from, unsigned r,
                                               unsigned output, unsigned n)
{
#pragma unroll 4
    for (unsigned slot = 0; slot < n; slot++) {
        y = fmaf(from->dot[r][output][slot], from->scale[output][slot], y);
        if (has_halves(T))
            y = fmaf(from->second[r][output][slot], from->min[output][slot], y);
        if (has_min(T))
            y = fmaf(from->min[output][slot], from->sum[r][slot], y);
    }
    return y;
}

template <dtype T, unsigned R>
static __global__ void __launch_bounds__(THREADS)
    products_few(struct product_list list, struct cuda_acts in, struct cuda_count n, bool adds)
{
    SHARED(struct parts<R>, held, 2);
    unsigned panel, thread = threadIdx.x, output = thread % CUDA_PANEL_ROWS;
    unsigned slot = thread / CUDA_PANEL_ROWS, row = blockIdx.y * R, n_rows = count_of(n);
    struct cuda_product product = product_of(&list, blockIdx.x, &panel);
    unsigned n_groups = product.w.n_cols / GROUP_VALUES;
    struct raw_group<T> raw = {
    };
    struct raw_scale scale = {};
    float y = 0.0f;

    if (row >= n_rows)
        return;
    if (slot < n_groups) {
        struct weight_place p = place_of(panel, output, slot, n_groups);

        raw = load_group<T>(&product.w, p);
        scale = load_scale<T>(&product.w, p);
    }
    for (unsigned first = 0; first < n_groups; first += PASS) {
        struct parts<R> *now = &held[first / PASS % 2];
        unsigned group = first + slot, next = group + PASS;

        if (group < n_groups)
            multiply_group<T, R>(now, slot, output, raw, scale_of<T>(scale), &in, row, n_rows,
                                 group, n_groups);
        if (next < n_groups) {
            struct weight_place p = place_of(panel, output, next, n_groups);

            raw = load_group<T>(&product.w, p);
            scale = load_scale<T>(&product.w, p);
        }
        __syncthreads();
        if (slot < R)
            y = add_up<T, R>(y, now, slot, output,
                             n_groups - first < PASS ? n_groups - first : PASS);
    }
    row += slot;
    panel = panel * CUDA_PANEL_ROWS + output;
    if (slot < R && row < n_rows && panel < product.w.n_rows) {
        float *to = product.out + (size_t)row * product.w.n_rows + panel;

        *to = adds ? *to + y : y;
    }
}

template <dtype T>
static void launch_few(const struct product_list *list, const struct cuda_acts *in,
                       struct cuda_count n, bool adds, struct CUstream_st *stream)
{
    unsigned n_blocks = list->first_block[CUDA_MAX_PRODUCTS];

    if (n.most == 1)
        LAUNCH((products_few<T, 1>), n_blocks, THREADS, 0, stream, *list, *in, n, adds);
    else if (n.most == 2)
        LAUNCH((products_few<T, 2>), n_blocks, THREADS, 0, stream, *list, *in, n, adds);
    else if (n.most <= 4)
        LAUNCH((products_few<T, 4>), n_blocks, THREADS, 0, stream, *list, *in, n, adds);
    else
        LAUNCH((products_few<T, MAX_ROWS>), dim3(n_blocks, (n.most + MAX_ROWS - 1) / MAX_ROWS),
               THREADS, 0, stream, *list, *in, n, adds);
}

void cuda_products_few(const struct cuda_product *products, size_t n_products,
                       const struct cuda_acts *in, struct cuda_count n, bool adds,
                       struct CUstream_st *stream)
{
    struct product_list list;

    (void)list_products(&list, products, n_products, CUDA_PANEL_ROWS);
    FOR_BLOCK_TYPE(products->w.type, launch_few<T>(&list, in, n, adds, stream))
    cuda_add_outliers(products, n_products, in, n, stream);
}
