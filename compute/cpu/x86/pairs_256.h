/* Sixteen int32 in two registers of AVX2. Part of pairs.h; x86/pairs_512.h says what functions do.
 */
#ifndef COMPUTE_CPU_X86_PAIRS_256_H
#define COMPUTE_CPU_X86_PAIRS_256_H

#include <immintrin.h>

struct v16i {
    __m256i x, y;
};

static inline struct v16i v16i_load(const int32_t *p)
{
    return (struct v16i){_mm256_loadu_si256((const __m256i *)p),
                         _mm256_loadu_si256((const __m256i *)(p + 8))};
}

static inline void v16i_store(int32_t *p, struct v16i a)
{
    _mm256_storeu_si256((__m256i *)p, a.x);
    _mm256_storeu_si256((__m256i *)(p + 8), a.y);
}

static inline struct v16i v16i_all(int32_t x)
{
    return (struct v16i){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}

static inline __m256i dot_pairs(__m256i a, __m256i b, __m256i sum)
{
#if defined(__AVXVNNI__)
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}

static inline struct v16i v16i_dot(struct v16i a, struct v16i b, struct v16i sum)
{
    return (struct v16i){dot_pairs(a.x, b.x, sum.x), dot_pairs(a.y, b.y, sum.y)};
}

static inline struct v16 v16i_to_floats(struct v16i a)
{
    return V16_BOTH(_mm256_cvtepi32_ps(a.x), _mm256_cvtepi32_ps(a.y));
}

static inline struct v16i v16i_load_i8(const int8_t *p)
{
    return (struct v16i){_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                         _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}

static inline struct v16i v16_bits(struct v16 a)
{
    return (struct v16i){_mm256_castps_si256(a.x), _mm256_castps_si256(a.y)};
}

static inline struct v16i v16i_pairs(struct v16i lower, struct v16i upper)
{
    return (struct v16i){_mm256_blend_epi16(lower.x, _mm256_slli_epi32(upper.x, 16), 0xaa),
                         _mm256_blend_epi16(lower.y, _mm256_slli_epi32(upper.y, 16), 0xaa)};
}

static inline void v16_store_i16(int16_t *p, struct v16 rounded)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    __m256i halves = _mm256_packus_epi32(_mm256_and_si256(_mm256_castps_si256(rounded.x), low),
                                         _mm256_and_si256(_mm256_castps_si256(rounded.y), low));

    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(halves, 0xd8));
}

static inline __m256 exponent_of(__m256 a)
{
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_castps_si256(a), 23));
}

static inline struct v16 v16_exponent(struct v16 a)
{
    return v16_sub(V16_BOTH(exponent_of(a.x), exponent_of(a.y)), v16_all(127.0f));
}

static inline __m256 greater_magnitude(__m256 a, __m256 b)
{
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);

    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(a), no_sign),
                                                _mm256_and_si256(_mm256_castps_si256(b), no_sign)));
}

static inline struct v16 v16_greater_magnitude(struct v16 a, struct v16 b)
{
    return V16_BOTH(greater_magnitude(a.x, b.x), greater_magnitude(a.y, b.y));
}

#endif
