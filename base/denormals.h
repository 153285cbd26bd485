/* Denormals: floats too small to be normal. */
#ifndef BASE_DENORMALS_H
#define BASE_DENORMALS_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* How this thread computes with floats: the processor's register for that. */
static inline uint64_t float_mode(void)
{
#if defined(__x86_64__)
    return _mm_getcsr();
#else
    uint64_t mode;

    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#endif
}

static inline void float_mode_set(uint64_t mode)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)mode);
#else
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#endif
}

/* Makes them 0 from now on, as operands and as results, in this thread and in those that it starts.
 * One costs a processor over a hundred cycles, and the gradients of a policy with near-certain
 * actions are full of them. A program calls this first of all, so that all its threads compute the
 * same bits. */
static inline void denormals_are_zero(void)
{
#if defined(__x86_64__)
    const uint64_t bits = 1 << 6 | 1 << 15; /* of MXCSR: as operands, as results */
#else
    const uint64_t bits = 1 << 24; /* of FPCR: as both */
#endif

    float_mode_set(float_mode() | bits);
}

#endif
