/* How kernels are written and launched, in two forms: nvcc's, and that of tests/cuda_host, where
 * each thread of a block is a fibre of the processor. A kernel includes this and nothing of CUDA's,
 * and has no #ifdef.
 *
 * SHARED(type, name, count)      an array of the block's shared memory, uninitialised
 * DYNAMIC_SHARED(type, name)     the launch's dynamic shared memory, 16-byte aligned
 * LAUNCH(kernel, grid, block, shared_bytes, stream, ...)
 *                                puts a kernel on the stream; a failure is the runtime's last
 *                                error. A template with commas stands in parentheses.
 *
 * Beyond them: threadIdx and its kin, __syncthreads, __syncwarp, __shfl_*_sync, __ballot_sync,
 * __any_sync, __all_sync, __popc, atomicAdd, atomicMax, atomicCAS, atomicExch, __threadfence,
 * vectors (int4, float2, …), and what is defined below. All code is compiled without contraction,
 * with denormals as zero: fused only where it says fmaf. */
#ifndef COMPUTE_CUDA_LAUNCH_H
#define COMPUTE_CUDA_LAUNCH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__CUDACC__)
#include <cuda_host.h>
#else

#include <cuda_fp16.h>

#define SHARED(type, name, count) __shared__ type name[count]
#define DYNAMIC_SHARED(type, name)                                         \
    extern __shared__ __align__(16) unsigned char launch_dynamic_shared[]; \
    type *name = (type *)(void *)launch_dynamic_shared
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    launch(kernel, grid, block, shared_bytes, stream, __VA_ARGS__)

template <typename... P, typename... A>
static inline void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                          struct CUstream_st *stream, A... arguments)
{
    kernel<<<grid, block, shared_bytes, stream>>>(P(arguments)...);
}

/* The same pointer, of which the compiler now knows that it is not to shared or local memory. */
template <typename T> static __device__ __forceinline__ T *in_global(T *at)
{
    __builtin_assume(__isGlobal(at));
    return at;
}

/* IEEE half; a number is rounded to nearest, even. */
static __device__ __forceinline__ float f16_widen(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

static __device__ __forceinline__ uint16_t f16_round(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}

/* sum + the products of the four int8 in a and in b */
static __device__ __forceinline__ int32_t dot4(uint32_t a, uint32_t b, int32_t sum)
{
    return __dp4a((int32_t)a, (int32_t)b, sum);
}

/* A tensor core's d += a · b of int8, a [16][16], b [16][8], by a warp of 32 lanes. With g = lane /
 * 4 and t = lane % 4 a lane has a[g][4t … 4t+3] and a[g + 8][the same], b[4t … 4t+3][g], and
 * d[g][2t], d[g][2t + 1], d[g + 8][2t], d[g + 8][2t + 1]. */
static __device__ __forceinline__ void mma_16x16x8(int32_t d[4], uint32_t a0, uint32_t a1,
                                                   uint32_t b)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
#else
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a0), "r"(b));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(d[2]), "+r"(d[3])
                 : "r"(a1), "r"(b));
#endif
}

/* The same twice as deep: a0, a1, b0 are of the inputs 0 … 15, a2, a3, b1 of 16 … 31. */
static __device__ __forceinline__ void mma_16x32x8(int32_t d[4], const uint32_t a[4], uint32_t b0,
                                                   uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    mma_16x16x8(d, a[0], a[1], b0);
    mma_16x16x8(d, a[2], a[3], b1);
#endif
}

#endif

/* All lanes of a warp. */
#define WARP_ALL 0xffffffffu

enum { WARP_LANES = 32 };

#endif
