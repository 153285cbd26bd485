/* The operators on rows of activations between products. */
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.h"
#include "compute/cuda/weights.h"
#include "compute/numerics/activation_scale.h"

static constexpr unsigned THREADS = 128;
static constexpr unsigned TILE = 4096;    /* numbers of a row that a block holds at once */
static constexpr unsigned QUAD_LANES = 8; /* of a group, four values each */

/* The greatest and the second greatest of these numbers and two more. */
static __device__ __forceinline__ void keep_two(uint32_t *greatest, uint32_t *second,
                                                uint32_t other, uint32_t other_second)
{
    uint32_t lesser = other > *greatest ? *greatest : other;

    *greatest = other > *greatest ? other : *greatest;
    *second = other_second > *second ? other_second : *second;
    *second = lesser > *second ? lesser : *second;
}

/* Rounds a group to int8, four numbers by each of eight lanes, whose first is the row's in
 * `column`. All lanes of the warp call this; those with `there` false contribute and write
 * nothing. */
static __device__ __forceinline__ void quantise_quad(float4 x, bool there, float above,
                                                     uint32_t column, uint32_t *values,
                                                     struct cuda_group *group,
                                                     struct cuda_outlier *outlier)
{
    unsigned lane = threadIdx.x % QUAD_LANES;
    float v[4] = {x.x, x.y, x.z, x.w};
    uint32_t greatest = 0, second = 0, word = 0;
    int sum = 0, upper;
    struct activation_scale scale;
    bool is_outlier;

#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        uint32_t magnitude = __float_as_uint(v[i]) & 0x7fffffff;

        keep_two(&greatest, &second, magnitude, 0);
    }
#pragma unroll
    for (unsigned by = 1; by < QUAD_LANES; by *= 2)
        keep_two(&greatest, &second, __shfl_xor_sync(WARP_ALL, greatest, by),
                 __shfl_xor_sync(WARP_ALL, second, by));
    is_outlier = activation_is_outlier(greatest, second, above);
    scale = activation_scale_of(is_outlier ? second : greatest);
    if (there && lane == 0 && !is_outlier) {
        struct cuda_outlier none = {0.0f, UINT32_MAX};

        *outlier = none;
    }
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        bool is_it = is_outlier && (__float_as_uint(v[i]) & 0x7fffffff) == greatest;
        int value = scale.inverse == 0.0f || is_it ? 0 : (int)rintf(v[i] * scale.inverse);

        if (there && is_it) {
            struct cuda_outlier o = {v[i], column + i};

            *outlier = o;
        }
        sum += value;
        word |= ((uint32_t)value & 0xff) << 8 * i;
    }
    sum += __shfl_xor_sync(WARP_ALL, sum, 1);
    sum += __shfl_xor_sync(WARP_ALL, sum, 2);
    upper = __shfl_xor_sync(WARP_ALL, sum, 4);
    if (!there)
        return;
    *values = word;
    if (lane == 0) {
        struct cuda_group g = {scale.scale, scale.scale * (float)(sum + upper), sum, upper};

        *group = g;
    }
}

/* A row's values before rounding; i counts fours. */
struct normed_row {
    const float *x, *gain; /* gain NULL: x as it is */
    float scale;

    __device__ __forceinline__ bool is_normed() const
    {
        return gain != NULL;
    }

    __device__ __forceinline__ float4 at(unsigned i) const
    {
        float4 v = ((const float4 *)x)[i];

        if (gain != NULL) {
            float4 g = ((const float4 *)gain)[i];

            v.x = v.x * scale * g.x;
            v.y = v.y * scale * g.y;
            v.z = v.z * scale * g.z;
            v.w = v.w * scale * g.w;
        }
        return v;
    }
};

struct gated_row {
    const float *gate, *up;
    bool gelu;

    __device__ __forceinline__ gated_row(const struct cuda_gate_rows &rows, unsigned index)
        : gate(rows.gate + (size_t)index * rows.width), up(rows.up + (size_t)index * rows.width),
          gelu(rows.gelu)
    {
    }

    __device__ __forceinline__ bool is_normed() const
    {
        return false;
    }

    __device__ __forceinline__ float gated(float g, float u) const
    {
        return (gelu ? scalar_gelu(g) : scalar_silu(g)) * u;
    }

    __device__ __forceinline__ float4 at(unsigned i) const
    {
        float4 g = ((const float4 *)gate)[i], u = ((const float4 *)up)[i];

        return make_float4(gated(g.x, u.x), gated(g.y, u.y), gated(g.z, u.z), gated(g.w, u.w));
    }
};

/* Moves a row's outliers to the front, by a block of threads. */
static __device__ __forceinline__ void list_outliers(struct cuda_outlier *of_row, unsigned n_groups)
{
    unsigned lane = threadIdx.x, n = 0;

    __syncthreads();
    if (lane >= WARP_LANES)
        return;
    for (unsigned first = 0; first < n_groups; first += WARP_LANES) {
        struct cuda_outlier own = {0.0f, UINT32_MAX};
        uint32_t have;

        if (first + lane < n_groups)
            own = of_row[first + lane];
        have = __ballot_sync(WARP_ALL, own.column != UINT32_MAX);
        __syncwarp();
        if (own.column != UINT32_MAX)
            of_row[n + (unsigned)__popc(have & ((1u << lane) - 1))] = own;
        n += (unsigned)__popc(have);
        __syncwarp();
    }
    if (lane == 0 && n < n_groups)
        of_row[n].column = UINT32_MAX;
}

/* Quantises a row, by a block of threads. */
template <typename R>
static __device__ __forceinline__ void quantise_row(const R *row, unsigned index, unsigned width,
                                                    const struct cuda_acts *out)
{
    uint32_t *values = (uint32_t *)out->values + (size_t)index * width / 4;
    struct cuda_group *groups = out->groups + (size_t)index * (width / GROUP_VALUES);
    struct cuda_outlier *outliers = out->outliers + (size_t)index * (width / GROUP_VALUES);

    for (unsigned first = 0; first < width / 4; first += THREADS) {
        unsigned i = first + threadIdx.x;
        bool there = i < width / 4;
        float4 x = there ? row->at(i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);

        quantise_quad(x, there, activation_outlier_above(row->is_normed()), 4 * i, values + i,
                      groups + i / QUAD_LANES, outliers + i / QUAD_LANES);
    }
    list_outliers(outliers, width / GROUP_VALUES);
}

/* 1 / the root of a row's mean square: sixteen lanes of sums, as scalar.h has them. */
static __device__ __forceinline__ float norm_scale(const float *x, unsigned width, float eps)
{
    SHARED(float, held, TILE);
    SHARED(float, scale, 1);
    unsigned i = threadIdx.x;
    float sum = 0.0f;

    for (unsigned first = 0; first < width; first += TILE) {
        unsigned n = width - first < TILE ? width - first : TILE;

        for (unsigned k = i; k < n; k += THREADS)
            held[k] = x[first + k];
        __syncthreads();
        if (i < SCALAR_LANES) {
#pragma unroll 8
            for (unsigned k = i; k < n; k += SCALAR_LANES)
                sum = sum + held[k] * held[k];
        }
        __syncthreads();
    }
    if (i < WARP_LANES) {
        for (unsigned half = SCALAR_LANES / 2; half > 0; half /= 2)
            sum = sum + __shfl_down_sync(WARP_ALL, sum, half);
        if (i == 0)
            scale[0] = 1.0f / sqrtf(sum / (float)width + eps);
    }
    __syncthreads();
    return scale[0];
}

static __global__ void __launch_bounds__(THREADS)
    norm_quantise(const float *x, const float *gain, float eps, struct cuda_count n, unsigned width,
                  struct cuda_acts out)
{
    struct normed_row row = {x + (size_t)blockIdx.x * width, gain, 1.0f};

    if (blockIdx.x >= count_of(n))
        return;
    if (gain != NULL)
        row.scale = norm_scale(row.x, width, eps);
    quantise_row(&row, blockIdx.x, width, &out);
}

void cuda_norm_quantise(const float *x, const float *gain, float eps, struct cuda_count n,
                        uint32_t width, const struct cuda_acts *out, struct CUstream_st *stream)
{
    LAUNCH(norm_quantise, n.most, THREADS, 0, stream, x, gain, eps, n, width, *out);
}

static __global__ void __launch_bounds__(THREADS)
    norm(const float *x, const float *gain, float eps, struct cuda_count n, unsigned width,
         float *out)
{
    const float *row = x + (size_t)blockIdx.x * width;
    float *to = out + (size_t)blockIdx.x * width, scale = 1.0f;

    if (blockIdx.x >= count_of(n))
        return;
    if (gain != NULL)
        scale = norm_scale(row, width, eps);
    for (unsigned i = threadIdx.x; i < width; i += THREADS)
        to[i] = gain != NULL ? row[i] * scale * gain[i] : row[i];
}

void cuda_norm(const float *x, const float *gain, float eps, struct cuda_count n, uint32_t width,
               float *out, struct CUstream_st *stream)
{
    LAUNCH(norm, n.most, THREADS, 0, stream, x, gain, eps, n, width, out);
}

/* Some models have a few activations beyond the range of half. They are clamped, so that they do
 * not make all of a row's products infinite. */
static __device__ __forceinline__ uint16_t f16_held(float x)
{
    constexpr float most = 65504.0f;

    if (fabsf(x) > most && fabsf(x) < INFINITY)
        x = copysignf(most, x);
    return f16_round(x);
}

static __global__ void __launch_bounds__(THREADS)
    norm_f16(const float *x, const float *gain, float eps, struct cuda_count n, unsigned width,
             uint16_t *out)
{
    const float *row = x + (size_t)blockIdx.x * width;
    uint16_t *to = out + (size_t)blockIdx.x * width;
    float scale = 1.0f;

    if (blockIdx.x >= count_of(n))
        return;
    if (gain != NULL)
        scale = norm_scale(row, width, eps);
    for (unsigned i = threadIdx.x; i < width; i += THREADS)
        to[i] = f16_held(gain != NULL ? row[i] * scale * gain[i] : row[i]);
}

void cuda_norm_f16(const float *x, const float *gain, float eps, struct cuda_count n,
                   uint32_t width, uint16_t *out, struct CUstream_st *stream)
{
    LAUNCH(norm_f16, n.most, THREADS, 0, stream, x, gain, eps, n, width, out);
}

static __global__ void __launch_bounds__(THREADS)
    gate_quantise(struct cuda_gate_rows rows, struct cuda_acts out)
{
    struct gated_row row(rows, blockIdx.x);

    if (blockIdx.x < count_of(rows.n))
        quantise_row(&row, blockIdx.x, rows.width, &out);
}

void cuda_gate_quantise(const struct cuda_gate_rows *rows, const struct cuda_acts *out,
                        struct CUstream_st *stream)
{
    LAUNCH(gate_quantise, rows->n.most, THREADS, 0, stream, *rows, *out);
}

static __global__ void __launch_bounds__(THREADS)
    gate_floats(struct cuda_gate_rows rows, float *out)
{
    struct gated_row row(rows, blockIdx.x);

    if (blockIdx.x >= count_of(rows.n))
        return;
    for (unsigned i = threadIdx.x; i < rows.width; i += THREADS)
        out[(size_t)blockIdx.x * rows.width + i] = row.gated(row.gate[i], row.up[i]);
}

void cuda_gate(const struct cuda_gate_rows *rows, float *out, struct CUstream_st *stream)
{
    LAUNCH(gate_floats, rows->n.most, THREADS, 0, stream, *rows, out);
}

static __global__ void __launch_bounds__(THREADS)
    gate_f16(struct cuda_gate_rows rows, uint16_t *out)
{
    struct gated_row row(rows, blockIdx.x);

    if (blockIdx.x >= count_of(rows.n))
        return;
    for (unsigned i = threadIdx.x; i < rows.width; i += THREADS)
        out[(size_t)blockIdx.x * rows.width + i] = f16_held(row.gated(row.gate[i], row.up[i]));
}

void cuda_gate_f16(const struct cuda_gate_rows *rows, uint16_t *out, struct CUstream_st *stream)
{
    LAUNCH(gate_f16, rows->n.most, THREADS, 0, stream, *rows, out);
}

static __global__ void __launch_bounds__(THREADS)
    add_rows(float *x, const float *from, float factor, bool is_row, struct cuda_count n,
             unsigned width)
{
    size_t skip = (size_t)blockIdx.x * width;

    if (blockIdx.x >= count_of(n))
        return;
    from += is_row ? 0 : skip;
    for (unsigned i = threadIdx.x; i < width; i += THREADS)
        x[skip + i] = x[skip + i] + factor * from[i];
}

void cuda_add(float *x, const float *from, float factor, bool is_row, struct cuda_count n,
              uint32_t width, struct CUstream_st *stream)
{
    LAUNCH(add_rows, n.most, THREADS, 0, stream, x, from, factor, is_row, n, width);
}

static __global__ void __launch_bounds__(THREADS)
    scatter_rows(float *x, const float *from, const uint32_t *rows, const float *factors,
                 struct cuda_count n, unsigned width)
{
    float factor;

    if (blockIdx.x >= count_of(n))
        return;
    factor = factors[blockIdx.x];
    x += (size_t)rows[blockIdx.x] * width;
    from += (size_t)blockIdx.x * width;
    for (unsigned i = threadIdx.x; i < width; i += THREADS)
        x[i] = x[i] + factor * from[i];
}

void cuda_scatter(float *x, const float *from, const uint32_t *rows, const float *factors,
                  struct cuda_count n, uint32_t width, struct CUstream_st *stream)
{
    LAUNCH(scatter_rows, n.most, THREADS, 0, stream, x, from, rows, factors, n, width);
}

static __global__ void __launch_bounds__(THREADS)
    scale_rows(float *x, const float *factors, float factor, float cap, struct cuda_count n,
               unsigned width)
{
    float inverse = cap > 0.0f ? 1.0f / cap : 0.0f;

    if (blockIdx.x >= count_of(n))
        return;
    factor = factors != NULL ? factors[blockIdx.x] : factor;
    x += (size_t)blockIdx.x * width;
    for (unsigned i = threadIdx.x; i < width; i += THREADS)
        x[i] = scalar_scaled(x[i], factor, cap, inverse);
}

void cuda_scale(float *x, const float *factors, float factor, float cap, struct cuda_count n,
                uint32_t width, struct CUstream_st *stream)
{
    LAUNCH(scale_rows, n.most, THREADS, 0, stream, x, factors, factor, cap, n, width);
}

static __global__ void __launch_bounds__(THREADS)
    gather_rows(const float *in, const uint32_t *rows, struct cuda_count n, unsigned width,
                float *out)
{
    if (blockIdx.x >= count_of(n))
        return;
    for (unsigned i = threadIdx.x; i < width; i += THREADS)
        out[(size_t)blockIdx.x * width + i] = in[(size_t)rows[blockIdx.x] * width + i];
}

void cuda_gather(const float *in, const uint32_t *rows, struct cuda_count n, uint32_t width,
                 float *out, struct CUstream_st *stream)
{
    LAUNCH(gather_rows, n.most, THREADS, 0, stream, in, rows, n, width, out);
}
