/* Sixteen int32 beside lanes.h's sixteen floats, or sixteen pairs of int16 whose products are
 * summed in them. All functions are static, as there. */
#ifndef COMPUTE_CPU_PAIRS_H
#define COMPUTE_CPU_PAIRS_H

#include "compute/cpu/lanes.h"
#include "compute/numerics/attend_units.h"

#if defined(__AVX512F__)
#include "compute/cpu/x86/pairs_512.h"
#elif defined(__AVX2__)
#include "compute/cpu/x86/pairs_256.h"
#elif defined(LANES_NEON)
#include "compute/cpu/arm/pairs_neon.h"
#else
#include "compute/cpu/pairs_plain.h"
#endif

/* attend_round, the integer in the low bits */
static inline struct v16 v16_round(struct v16 a, struct v16 by)
{
    return v16_fma(a, by, v16_all(ATTEND_MAGIC));
}

/* The greatest magnitude of x [n]; NaN is above all. */
static inline float greatest_magnitude(const float *x, size_t n)
{
    struct v16 most = v16_all(0.0f);
    float lanes[LANES];
    uint32_t greatest = 0;

    for (size_t d = 0; d < n; d += LANES)
        most = v16_greater_magnitude(n - d < LANES ? v16_load_some(x + d, n - d) : v16_load(x + d),
                                     most);
    v16_store(lanes, most);
    for (size_t i = 0; i < LANES; i++)
        greatest = scalar_bits(lanes[i]) > greatest ? scalar_bits(lanes[i]) : greatest;
    return scalar_from_bits(greatest);
}

#endif
