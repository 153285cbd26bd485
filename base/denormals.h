/* Denormals: floats too small to be normal. */
#ifndef BASE_DENORMALS_H
#define BASE_DENORMALS_H

#include <immintrin.h>

/* Makes them 0 from now on, as operands and as results, in this thread and in those that it starts.
 * One costs a processor over a hundred cycles, and the gradients of a policy with near-certain
 * actions are full of them. A program calls this first of all, so that all its threads compute the
 * same bits. */
static inline void denormals_are_zero(void)
{
    enum { DENORMALS_ARE_ZERO = 1 << 6, FLUSH_TO_ZERO = 1 << 15 }; /* of MXCSR */

    _mm_setcsr(_mm_getcsr() | DENORMALS_ARE_ZERO | FLUSH_TO_ZERO);
}

#endif
