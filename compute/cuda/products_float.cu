/* Products with float weights: sixteen lanes per output, each with every sixteenth column in order,
 * folded as scalar_sum_lanes does. Nothing is fused, so the bits are those of `ref`. */
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.h"
#include "compute/cuda/weights.h"
#include "compute/numerics/scalar.h"

static constexpr unsigned THREADS = 128;
static constexpr unsigned OUTPUTS = THREADS / FLOAT_LANES; /* of a block */
static constexpr unsigned MAX_ROWS = 8;

template <dtype T, unsigned R>
static __global__ void __launch_bounds__(THREADS)
    products_float(struct product_list list, const float *in, struct cuda_count n, bool adds)
{
    constexpr unsigned size = piece_values(T);
    unsigned block, lane = threadIdx.x % FLOAT_LANES, row = blockIdx.y * R, n_rows = count_of(n);
    struct cuda_product product = product_of(&list, blockIdx.x, &block);
    unsigned output = block * OUTPUTS + threadIdx.x / FLOAT_LANES, n_cols = product.w.n_cols;
    unsigned n_pieces = (n_cols + size * FLOAT_LANES - 1) / (size * FLOAT_LANES);
    bool there = output < product.w.n_rows;
    const uint4 *pieces = (const uint4 *)product.w.codes +
                          (size_t)(there ? output : 0) * n_pieces * FLOAT_LANES + lane;
    const float *from[R];
    float y[R] = {};

    if (row >= n_rows)
        return;
#pragma unroll
    for (unsigned r = 0; r < R; r++)
        from[r] = in + (size_t)(row + r < n_rows ? row + r : n_rows - 1) * n_cols;
    for (unsigned piece = 0; piece < n_pieces; piece++) {
        uint4 w = pieces[piece * FLOAT_LANES];

#pragma unroll
        for (unsigned i = 0; i < size; i++) {
            unsigned column = (piece * size + i) * FLOAT_LANES + lane;

            if (column < n_cols) {
#pragma unroll
                for (unsigned r = 0; r < R; r++)
                    y[r] = y[r] + piece_value<T>(w, i) * from[r][column];
            }
        }
    }
#pragma unroll
    for (unsigned r = 0; r < R; r++) {
#pragma unroll
        for (unsigned half = FLOAT_LANES / 2; half > 0; half /= 2)
            y[r] = y[r] + __shfl_down_sync(WARP_ALL, y[r], half, FLOAT_LANES);
        if (lane == 0 && there && row + r < n_rows) {
            float *to = product.out + (size_t)(row + r) * product.w.n_rows + output;

            *to = adds ? *to + y[r] : y[r];
        }
    }
}

template <dtype T>
static void launch_float(const struct product_list *list, const float *in, struct cuda_count n,
                         bool adds, struct CUstream_st *stream)
{
    unsigned n_blocks = list->first_block[CUDA_MAX_PRODUCTS];

    if (n.most == 1)
        LAUNCH((products_float<T, 1>), n_blocks, THREADS, 0, stream, *list, in, n, adds);
    else
        LAUNCH((products_float<T, MAX_ROWS>), dim3(n_blocks, (n.most + MAX_ROWS - 1) / MAX_ROWS),
               THREADS, 0, stream, *list, in, n, adds);
}

void cuda_products_float(const struct cuda_product *products, size_t n_products, const float *in,
                         struct cuda_count n, bool adds, struct CUstream_st *stream)
{
    struct product_list list;

    (void)list_products(&list, products, n_products, OUTPUTS);
    FOR_FLOAT_TYPE(products->w.type, launch_float<T>(&list, in, n, adds, stream))
}
