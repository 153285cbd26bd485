/* Sixteen floats folded onto one, of lanes_256.h and lanes_512.h. Part of lanes.h. */
#ifndef COMPUTE_CPU_X86_LANES_FOLD_H
#define COMPUTE_CPU_X86_LANES_FOLD_H

#include <immintrin.h>

/* scalar_sum_lanes */
static inline float v16_sum(struct v16 a)
{
    __m256 eight = _mm256_add_ps(lower_half(a), upper_half(a));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* The greatest lane; folded as the sum is. */
static inline float v16_greatest(struct v16 a)
{
    __m256 eight = _mm256_max_ps(lower_half(a), upper_half(a));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#endif
