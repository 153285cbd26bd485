/* Sixteen int32 in a register of AVX-512. Part of pairs.h. */
#ifndef COMPUTE_CPU_X86_PAIRS_512_H
#define COMPUTE_CPU_X86_PAIRS_512_H

#include <immintrin.h>

struct v16i {
    __m512i x;
};

static inline struct v16i v16i_load(const int32_t *p)
{
    return (struct v16i){_mm512_loadu_si512(p)};
}

static inline void v16i_store(int32_t *p, struct v16i a)
{
    _mm512_storeu_si512(p, a.x);
}

static inline struct v16i v16i_all(int32_t x)
{
    return (struct v16i){_mm512_set1_epi32(x)};
}

/* sum + a's lower int16 * b's lower + a's upper * b's upper, modulo 2^32 */
static inline struct v16i v16i_dot(struct v16i a, struct v16i b, struct v16i sum)
{
    /* not the intrinsic: gcc 12 copies its accumulator before and after it, to memory */
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum.x) : "v"(a.x), "v"(b.x));
    return sum;
}

static inline struct v16 v16i_to_floats(struct v16i a)
{
    return (struct v16){_mm512_cvtepi32_ps(a.x)};
}

static inline struct v16i v16i_load_i8(const int8_t *p)
{
    return (struct v16i){_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))};
}

static inline struct v16i v16_bits(struct v16 a)
{
    return (struct v16i){_mm512_castps_si512(a.x)};
}

/* Pairs of the low int16 of each. */
static inline struct v16i v16i_pairs(struct v16i lower, struct v16i upper)
{
    return (struct v16i){
        _mm512_mask_blend_epi16(0xaaaaaaaa, lower.x, _mm512_slli_epi32(upper.x, 16))};
}

/* Stores the integers that v16_round made. */
static inline void v16_store_i16(int16_t *p, struct v16 rounded)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_castps_si512(rounded.x)));
}

/* floor(log2 a), of 0 -127, of infinity and NaN 128; a >= 0 */
static inline struct v16 v16_exponent(struct v16 a)
{
    __m512i exponents = _mm512_srli_epi32(_mm512_castps_si512(a.x), 23);

    return v16_sub((struct v16){_mm512_cvtepi32_ps(exponents)}, v16_all(127.0f));
}

/* The greater magnitude in each lane; NaN is above all. */
static inline struct v16 v16_greater_magnitude(struct v16 a, struct v16 b)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);

    return (struct v16){
        _mm512_castsi512_ps(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a.x), no_sign),
                                             _mm512_and_si512(_mm512_castps_si512(b.x), no_sign)))};
}

#endif
