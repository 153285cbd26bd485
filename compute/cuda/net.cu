/* Small networks that learn. The arithmetic on one number or one row is the host's own code
 * (net_rows.h, optim_rows.h); sums are in the order of net.h, so that the bits are the same and a
 * row's never depend on other rows. */
#include "compute/cuda/launch.h"
#include "compute/cuda/net_kernels.h"
#include "compute/numerics/net_rows.h"
#include "compute/numerics/optim_rows.h"

static constexpr unsigned THREADS = 256;
static constexpr unsigned LINEAR_ROWS = 4; /* rows that share one read of a weight */

static __device__ __forceinline__ uint32_t rows_of(const struct cuda_count &n)
{
    return n.n != NULL ? *n.n : n.most;
}

static unsigned blocks_for(size_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

static __device__ __forceinline__ size_t my_number(void)
{
    return (size_t)blockIdx.x * THREADS + threadIdx.x;
}

static __global__ void __launch_bounds__(THREADS)
    zero_kernel(float *x, struct cuda_count n, uint32_t width)
{
    size_t i = my_number();

    if (i < (size_t)rows_of(n) * width)
        x[i] = 0.0f;
}

void cuda_net_zero(float *x, struct cuda_count n, uint32_t width, struct CUstream_st *stream)
{
    LAUNCH(zero_kernel, blocks_for((size_t)n.most * width), THREADS, 0, stream, x, n, width);
}

static __global__ void __launch_bounds__(THREADS)
    add_kernel(float *x, const float *y, struct cuda_count n, uint32_t width)
{
    size_t i = my_number();

    if (i < (size_t)rows_of(n) * width)
        x[i] += y[i];
}

void cuda_net_add(float *x, const float *y, struct cuda_count n, uint32_t width,
                  struct CUstream_st *stream)
{
    LAUNCH(add_kernel, blocks_for((size_t)n.most * width), THREADS, 0, stream, x, y, n, width);
}

static __global__ void __launch_bounds__(THREADS)
    keep_rows_kernel(const bool *keep, struct cuda_count n, uint32_t width, float *x)
{
    size_t i = my_number();

    if (i < (size_t)rows_of(n) * width && !keep[i / width])
        x[i] = 0.0f;
}

void cuda_net_keep_rows(const bool *keep, struct cuda_count n, uint32_t width, float *x,
                        struct CUstream_st *stream)
{
    LAUNCH(keep_rows_kernel, blocks_for((size_t)n.most * width), THREADS, 0, stream, keep, n, width,
           x);
}

static __global__ void __launch_bounds__(THREADS)
    relu_kernel(float *x, struct cuda_count n, uint32_t width)
{
    size_t i = my_number();

    if (i < (size_t)rows_of(n) * width)
        x[i] = 0.0f > x[i] ? 0.0f : x[i]; /* a NaN is not hidden */
}

void cuda_net_relu(float *x, struct cuda_count n, uint32_t width, struct CUstream_st *stream)
{
    LAUNCH(relu_kernel, blocks_for((size_t)n.most * width), THREADS, 0, stream, x, n, width);
}

static __global__ void __launch_bounds__(THREADS)
    relu_backward_kernel(const float *out, struct cuda_count n, uint32_t width, float *dx)
{
    size_t i = my_number();

    if (i < (size_t)rows_of(n) * width)
        dx[i] = out[i] > 0.0f ? dx[i] : 0.0f;
}

void cuda_net_relu_backward(const float *out, struct cuda_count n, uint32_t width, float *dx,
                            struct CUstream_st *stream)
{
    LAUNCH(relu_backward_kernel, blocks_for((size_t)n.most * width), THREADS, 0, stream, out, n,
           width, dx);
}

/* Sixteen lanes compute an output of LINEAR_ROWS rows: lane l the chain of inputs l, l + 16, … */
static __global__ void __launch_bounds__(THREADS)
    linear_kernel(const float *in, const float *w, const float *bias, struct cuda_count n,
                  uint32_t n_in, uint32_t n_out, float *out)
{
    unsigned lane = threadIdx.x % SCALAR_LANES;
    uint32_t j = blockIdx.x * (THREADS / SCALAR_LANES) + threadIdx.x / SCALAR_LANES;
    uint32_t first = blockIdx.y * LINEAR_ROWS, n_rows = rows_of(n);
    float chains[LINEAR_ROWS] = {0};

    if (first >= n_rows)
        return; /* all of the block */
    for (uint32_t k = lane; j < n_out && k < n_in; k += SCALAR_LANES) {
        float factor = w[(size_t)j * n_in + k];

#pragma unroll
        for (uint32_t r = 0; r < LINEAR_ROWS; r++)
            if (first + r < n_rows)
                chains[r] = fmaf(in[(size_t)(first + r) * n_in + k], factor, chains[r]);
    }
#pragma unroll
    for (uint32_t r = 0; r < LINEAR_ROWS; r++) {
#pragma unroll
        for (unsigned half = SCALAR_LANES / 2; half > 0; half /= 2)
            chains[r] += __shfl_down_sync(WARP_ALL, chains[r], half, SCALAR_LANES);
        if (lane == 0 && j < n_out && first + r < n_rows)
            out[(size_t)(first + r) * n_out + j] = bias[j] + chains[r];
    }
}

void cuda_net_linear(const float *in, const float *w, const float *bias, struct cuda_count n,
                     uint32_t n_in, uint32_t n_out, float *out, struct CUstream_st *stream)
{
    const unsigned outputs = THREADS / SCALAR_LANES;

    LAUNCH(linear_kernel,
           dim3((n_out + outputs - 1) / outputs, (n.most + LINEAR_ROWS - 1) / LINEAR_ROWS), THREADS,
           0, stream, in, w, bias, n, n_in, n_out, out);
}

/* One thread per input of a row: the chain over the outputs. */
static __global__ void __launch_bounds__(THREADS)
    linear_din_kernel(const float *w, const float *dout, struct cuda_count n, uint32_t n_in,
                      uint32_t n_out, float *din)
{
    size_t at = my_number();
    float chain = 0.0f;

    if (at >= (size_t)rows_of(n) * n_in)
        return;
    for (uint32_t j = 0; j < n_out; j++)
        chain = fmaf(dout[at / n_in * n_out + j], w[(size_t)j * n_in + at % n_in], chain);
    din[at] = chain;
}

/* One thread per weight: the chain over the rows; the thread of each output's first weight also
 * does the bias. */
static __global__ void __launch_bounds__(THREADS)
    linear_dw_kernel(const float *in, const float *dout, struct cuda_count n, uint32_t n_in,
                     uint32_t n_out, float *dw, float *dbias)
{
    size_t at = my_number(), j = at / n_in, k = at % n_in;
    uint32_t n_rows = rows_of(n);
    float chain, sum;

    if (at >= (size_t)n_out * n_in)
        return;
    chain = dw[at];
    for (uint32_t i = 0; i < n_rows; i++)
        chain = fmaf(dout[(size_t)i * n_out + j], in[(size_t)i * n_in + k], chain);
    dw[at] = chain;
    if (k > 0)
        return;
    sum = dbias[j];
    for (uint32_t i = 0; i < n_rows; i++)
        sum += dout[(size_t)i * n_out + j];
    dbias[j] = sum;
}

void cuda_net_linear_backward(const float *in, const float *w, const float *dout,
                              struct cuda_count n, uint32_t n_in, uint32_t n_out, float *din,
                              float *dw, float *dbias, struct CUstream_st *stream)
{
    if (din != NULL)
        LAUNCH(linear_din_kernel, blocks_for((size_t)n.most * n_in), THREADS, 0, stream, w, dout, n,
               n_in, n_out, din);
    LAUNCH(linear_dw_kernel, blocks_for((size_t)n_out * n_in), THREADS, 0, stream, in, dout, n,
           n_in, n_out, dw, dbias);
}

/* One thread per four numbers, which take one block of Philox. */
static __global__ void __launch_bounds__(THREADS)
    dropout_kernel(const struct net_draw *draws, uint32_t layer, float rate, struct cuda_count n,
                   uint32_t width, float *x)
{
    uint32_t fours = (width + 3) / 4;
    size_t at = my_number(), i = at / fours;

    if (i < rows_of(n) && draws[i].drops)
        net_four_dropout(&draws[i], layer, rate, width, at % fours * 4, x + i * width);
}

void cuda_net_dropout(const struct net_draw *draws, uint32_t layer, float rate, struct cuda_count n,
                      uint32_t width, float *x, struct CUstream_st *stream)
{
    LAUNCH(dropout_kernel, blocks_for((size_t)n.most * ((width + 3) / 4)), THREADS, 0, stream,
           draws, layer, rate, n, width, x);
}

static __global__ void __launch_bounds__(THREADS)
    softmax_kernel(const float *in, struct cuda_count n, uint32_t width, bool is_log, float *out)
{
    size_t i = my_number();

    if (i >= rows_of(n))
        return;
    if (is_log)
        net_row_log_softmax(in + i * width, width, out + i * width);
    else
        net_row_softmax(in + i * width, width, out + i * width);
}

void cuda_net_softmax(const float *in, struct cuda_count n, uint32_t width, bool is_log, float *out,
                      struct CUstream_st *stream)
{
    LAUNCH(softmax_kernel, blocks_for(n.most), THREADS, 0, stream, in, n, width, is_log, out);
}

static __global__ void __launch_bounds__(THREADS)
    log_prob_backward_kernel(const float *logp, const int32_t *actions, const float *weights,
                             float entropy_weight, struct cuda_count n, uint32_t width,
                             float *dlogits)
{
    size_t i = my_number();

    if (i < rows_of(n))
        net_row_log_prob_backward(logp + i * width, actions[i], weights[i], entropy_weight, width,
                                  dlogits + i * width);
}

void cuda_net_log_prob_backward(const float *logp, const int32_t *actions, const float *weights,
                                float entropy_weight, struct cuda_count n, uint32_t width,
                                float *dlogits, struct CUstream_st *stream)
{
    LAUNCH(log_prob_backward_kernel, blocks_for(n.most), THREADS, 0, stream, logp, actions, weights,
           entropy_weight, n, width, dlogits);
}

static __global__ void __launch_bounds__(THREADS)
    lstm_kernel(float *gates, const float *from_h, const float *c_in, struct cuda_count n,
                uint32_t width, float *c_out, float *h_out)
{
    size_t at = my_number(), i = at / width;

    if (i < rows_of(n))
        net_one_lstm(gates + i * 4 * width, from_h + i * 4 * width, c_in + i * width, width,
                     at % width, c_out + i * width, h_out + i * width);
}

void cuda_net_lstm(float *gates, const float *from_h, const float *c_in, struct cuda_count n,
                   uint32_t width, float *c_out, float *h_out, struct CUstream_st *stream)
{
    LAUNCH(lstm_kernel, blocks_for((size_t)n.most * width), THREADS, 0, stream, gates, from_h, c_in,
           n, width, c_out, h_out);
}

static __global__ void __launch_bounds__(THREADS)
    lstm_backward_kernel(const float *gates, const float *c_in, const float *c_out, const float *dh,
                         struct cuda_count n, uint32_t width, float *dc, float *dgates)
{
    size_t at = my_number(), i = at / width;

    if (i < rows_of(n))
        net_one_lstm_backward(gates + i * 4 * width, c_in + i * width, c_out + i * width,
                              dh + i * width, width, at % width, dc + i * width,
                              dgates + i * 4 * width);
}

void cuda_net_lstm_backward(const float *gates, const float *c_in, const float *c_out,
                            const float *dh, struct cuda_count n, uint32_t width, float *dc,
                            float *dgates, struct CUstream_st *stream)
{
    LAUNCH(lstm_backward_kernel, blocks_for((size_t)n.most * width), THREADS, 0, stream, gates,
           c_in, c_out, dh, n, width, dc, dgates);
}

static __global__ void __launch_bounds__(THREADS)
    optim_kernel(const struct optim_rates *rates, size_t n, const float *g, float *p, float *m,
                 float *v)
{
    struct optim_rates r = *rates;
    size_t i = my_number();

    if (i >= n)
        return;
    if (v != NULL)
        optim_adam_one(&r, g[i], &p[i], &m[i], &v[i]);
    else /* m is not read without a momentum */
        optim_sgd_one(&r, g[i], &p[i], r.has_momentum ? &m[i] : &p[i]);
}

void cuda_optim_step(const struct optim_rates *rates, size_t n, const float *g, float *p, float *m,
                     float *v, struct CUstream_st *stream)
{
    LAUNCH(optim_kernel, blocks_for(n), THREADS, 0, stream, rates, n, g, p, m, v);
}
