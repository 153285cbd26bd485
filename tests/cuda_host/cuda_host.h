/* The host form of launch.h: the parts of CUDA C++ that our kernels use, on fibres. Each block of a
 * launch is a set of fibres, one per thread, which yield to one another where a kernel waits; a
 * wait that cannot end is an error with the kernel's name and line. */
#ifndef TESTS_CUDA_HOST_CUDA_HOST_H
#define TESTS_CUDA_HOST_CUDA_HOST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

#include "tests/cuda_host/fibres.h"

extern "C" {
#include "compute/numerics/dtype.h"
}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define CUDA_HOST_VECTOR(name, type, n_bytes)                            \
    struct __attribute__((aligned(n_bytes))) name##2                     \
    {                                                                    \
        type x, y;                                                       \
    };                                                                   \
    struct __attribute__((aligned(2 * n_bytes))) name##4                 \
    {                                                                    \
        type x, y, z, w;                                                 \
    };                                                                   \
    static inline name##2 make_##name##2(type x, type y)                 \
    {                                                                    \
        return {x, y};                                                   \
    }                                                                    \
    static inline name##4 make_##name##4(type x, type y, type z, type w) \
    {                                                                    \
        return {x, y, z, w};                                             \
    }

CUDA_HOST_VECTOR(int, int, 8)
CUDA_HOST_VECTOR(uint, unsigned, 8)
CUDA_HOST_VECTOR(float, float, 8)
#undef CUDA_HOST_VECTOR

#define threadIdx (fibres_here.thread)
#define blockIdx (fibres_here.block)
#define blockDim (fibres_here.block_size)
#define gridDim (fibres_here.grid_size)

/* Shared memory: identified by its declaration, the same for all fibres of a block. */
#define SHARED(type, name, count)               \
    static const char cuda_host_key_##name = 0; \
    type *const name =                          \
        static_cast<type *>(fibres_shared(&cuda_host_key_##name, sizeof(type) * (count), #name))
#define DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(fibres_dynamic_shared())

#define __syncthreads() fibres_sync_block(__LINE__)
#define __syncthreads_or(yes) fibres_sync_block_or(__LINE__, (yes) != 0)
#define __syncwarp(...) fibres_sync_warp(__LINE__, fibres_mask(__VA_ARGS__))
#define __ballot_sync(mask, yes) fibres_ballot(__LINE__, mask, (yes) != 0)
#define __popc(bits) __builtin_popcount(bits)
#define __any_sync(mask, yes) (fibres_ballot(__LINE__, mask, (yes) != 0) != 0)
#define __all_sync(mask, yes) (fibres_ballot(__LINE__, mask, (yes) == 0) == 0)
#define __shfl_sync(mask, value, ...) \
    cuda_host_shuffle(__LINE__, mask, value, CUDA_HOST_FROM_INDEX, __VA_ARGS__)
#define __shfl_up_sync(mask, value, ...) \
    cuda_host_shuffle(__LINE__, mask, value, CUDA_HOST_FROM_BELOW, __VA_ARGS__)
#define __shfl_down_sync(mask, value, ...) \
    cuda_host_shuffle(__LINE__, mask, value, CUDA_HOST_FROM_ABOVE, __VA_ARGS__)
#define __shfl_xor_sync(mask, value, ...) \
    cuda_host_shuffle(__LINE__, mask, value, CUDA_HOST_FROM_OTHER, __VA_ARGS__)

enum cuda_host_from {
    CUDA_HOST_FROM_INDEX,
    CUDA_HOST_FROM_BELOW,
    CUDA_HOST_FROM_ABOVE,
    CUDA_HOST_FROM_OTHER,
};

static inline uint32_t fibres_mask(uint32_t mask = 0xffffffffu)
{
    return mask;
}

template <typename T>
static inline T cuda_host_shuffle(int line, uint32_t mask, T value, enum cuda_host_from from,
                                  unsigned by, unsigned width = 32)
{
    unsigned lane = fibres_lane(), first = lane / width * width, i = lane - first;
    uint64_t bits = 0;

    static_assert(sizeof(value) <= sizeof(bits), "shuffles move words");
    memcpy(&bits, &value, sizeof(value));
    if (from == CUDA_HOST_FROM_INDEX)
        i = by % width;
    else if (from == CUDA_HOST_FROM_BELOW)
        i = by <= i ? i - by : i;
    else if (from == CUDA_HOST_FROM_ABOVE)
        i = i + by < width ? i + by : i;
    else
        i = (i ^ by) < width ? i ^ by : i;
    bits = fibres_exchange(line, mask, bits, first + i);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Fibres yield only where they wait and before these, so plain code is atomic. Watched kernels'
 * accesses are counted one by one (shadow.c), those in here as one. */
#define CUDA_HOST_ATOMIC __attribute__((noinline, no_sanitize("thread")))

template <typename T> static CUDA_HOST_ATOMIC T atomicAdd(T *at, std::common_type_t<T> by)
{
    fibres_atomic(at, sizeof(*at));

    T was = *at;

    *at = was + by;
    return was;
}

template <typename T> static CUDA_HOST_ATOMIC T atomicMax(T *at, std::common_type_t<T> with)
{
    fibres_atomic(at, sizeof(*at));

    T was = *at;

    *at = with > was ? with : was;
    return was;
}

template <typename T> static CUDA_HOST_ATOMIC T atomicExch(T *at, std::common_type_t<T> with)
{
    fibres_atomic(at, sizeof(*at));

    T was = *at;

    *at = with;
    return was;
}

template <typename T>
static CUDA_HOST_ATOMIC T atomicCAS(T *at, std::common_type_t<T> if_it_is,
                                    std::common_type_t<T> with)
{
    fibres_atomic(at, sizeof(*at));

    T was = *at;

    if (was == if_it_is)
        *at = with;
    return was;
}

static inline unsigned min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static inline unsigned max(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

static inline void __threadfence(void)
{
    fibres_fence();
}

template <typename T> static inline T *in_global(T *at)
{
    return at;
}

template <typename T> static inline T __ldg(const T *at)
{
    return *at;
}

static inline float __uint_as_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float __int_as_float(int32_t bits)
{
    return __uint_as_float(static_cast<uint32_t>(bits));
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline int32_t __float_as_int(float x)
{
    return static_cast<int32_t>(__float_as_uint(x));
}

static inline float f16_widen(uint16_t h)
{
    return f16_to_f32(h);
}

static inline uint16_t f16_round(float x)
{
    return f32_to_f16(x);
}

static inline int32_t cuda_host_int8(uint32_t word, unsigned byte)
{
    return static_cast<int8_t>(word >> byte * 8 & 0xff);
}

static inline int32_t dot4(uint32_t a, uint32_t b, int32_t sum)
{
    for (unsigned i = 0; i < 4; i++)
        sum += cuda_host_int8(a, i) * cuda_host_int8(b, i);
    return sum;
}

/* Every lane's fragments go round, and each computes the four sums that it keeps. */
#define mma_16x16x8(d, a0, a1, b) cuda_host_mma(__LINE__, d, a0, a1, b)

static inline void cuda_host_mma(int line, int32_t d[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    uint64_t all[3][32];
    unsigned lane = fibres_lane(), g = lane / 4, t = lane % 4;

    fibres_gather(line, 0xffffffffu, a0 | static_cast<uint64_t>(a1) << 32, all[0]);
    fibres_gather(line, 0xffffffffu, b, all[1]);
    for (unsigned k = 0; k < 4; k++)
        for (unsigned column = 0; column < 2; column++) {
            uint32_t of_b = static_cast<uint32_t>(all[1][(2 * t + column) * 4 + k]);
            uint64_t of_a = all[0][g * 4 + k];

            d[column] = dot4(static_cast<uint32_t>(of_a), of_b, d[column]);
            d[2 + column] = dot4(static_cast<uint32_t>(of_a >> 32), of_b, d[2 + column]);
        }
}

#define mma_16x32x8(d, a, b0, b1)           \
    do {                                    \
        mma_16x16x8(d, (a)[0], (a)[1], b0); \
        mma_16x16x8(d, (a)[2], (a)[3], b1); \
    } while (0)

/* Arguments are copied by value, as in CUDA: run may be called any number of times, later. */
template <typename F> struct cuda_host_call {
    struct fibres_launch launch;
    F body;

    static void thread(const void *arg)
    {
        static_cast<const cuda_host_call *>(arg)->body();
    }

    static void run(const void *arg)
    {
        const cuda_host_call *call = static_cast<const cuda_host_call *>(arg);

        fibres_run(&call->launch, thread, arg);
    }
};

/* Pointers among a kernel's arguments are to the device's memory. */
template <typename T> static inline void cuda_host_check(const char *name, T argument)
{
#if !defined(__clang__) /* which cannot tell what lies between a struct's members */
    if constexpr (std::is_class<T>::value)
        __builtin_clear_padding(&argument);
    if constexpr (std::is_class<T>::value || std::is_pointer<T>::value)
        cuda_host_check_pointers(name, &argument, sizeof(argument));
#endif
}

template <typename... P, typename... A>
static inline void cuda_host_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                                    size_t shared_bytes, struct CUstream_st *stream, A... arguments)
{
    auto body = [=] { kernel(P(arguments)...); };
    struct fibres_launch launch = {
        name, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes};
    cuda_host_call<decltype(body)> call = {launch, body};

    static_assert(std::is_trivially_copyable<decltype(call)>::value, "arguments are plain");
    (cuda_host_check(name, P(arguments)), ...);
    cuda_host_enqueue(stream, call.run, &call, sizeof(call), name);
}

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    cuda_host_launch(#kernel, kernel, grid, block, shared_bytes, stream, __VA_ARGS__)

#endif
