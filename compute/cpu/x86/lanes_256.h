/* Sixteen floats in two registers of AVX2. Part of lanes.h; lanes_512.h says what functions do. */
#ifndef COMPUTE_CPU_X86_LANES_256_H
#define COMPUTE_CPU_X86_LANES_256_H

#include <immintrin.h>

struct v16 {
    __m256 x, y;
};

#define V16_BOTH(expression_x, expression_y) ((struct v16){(expression_x), (expression_y)})

static inline struct v16 v16_load(const float *p)
{
    return V16_BOTH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}

static inline struct v16 v16_load_f16(const uint16_t *p)
{
    return V16_BOTH(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))));
}

static inline __m256 widen_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

static inline struct v16 v16_load_i8(const int8_t *p)
{
    return V16_BOTH(widen_i8(p), widen_i8(p + 8));
}

static inline __m256 widen_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));

    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline struct v16 v16_load_bf16(const uint16_t *p)
{
    return V16_BOTH(widen_bf16(p), widen_bf16(p + 8));
}

static inline void v16_store(float *p, struct v16 a)
{
    _mm256_storeu_ps(p, a.x);
    _mm256_storeu_ps(p + 8, a.y);
}

static inline void v16_store_f16(uint16_t *p, struct v16 a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.x, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.y, _MM_FROUND_TO_NEAREST_INT));
}

static inline struct v16 v16_all(float x)
{
    return V16_BOTH(_mm256_set1_ps(x), _mm256_set1_ps(x));
}

static inline struct v16 v16_add(struct v16 a, struct v16 b)
{
    return V16_BOTH(_mm256_add_ps(a.x, b.x), _mm256_add_ps(a.y, b.y));
}

static inline struct v16 v16_sub(struct v16 a, struct v16 b)
{
    return V16_BOTH(_mm256_sub_ps(a.x, b.x), _mm256_sub_ps(a.y, b.y));
}

static inline struct v16 v16_mul(struct v16 a, struct v16 b)
{
    return V16_BOTH(_mm256_mul_ps(a.x, b.x), _mm256_mul_ps(a.y, b.y));
}

static inline struct v16 v16_div(struct v16 a, struct v16 b)
{
    return V16_BOTH(_mm256_div_ps(a.x, b.x), _mm256_div_ps(a.y, b.y));
}

static inline struct v16 v16_fma(struct v16 a, struct v16 b, struct v16 c)
{
    return V16_BOTH(_mm256_fmadd_ps(a.x, b.x, c.x), _mm256_fmadd_ps(a.y, b.y, c.y));
}

static inline struct v16 v16_max(struct v16 a, struct v16 b)
{
    return V16_BOTH(_mm256_max_ps(a.x, b.x), _mm256_max_ps(a.y, b.y));
}

static inline struct v16 v16_min(struct v16 a, struct v16 b)
{
    return V16_BOTH(_mm256_min_ps(a.x, b.x), _mm256_min_ps(a.y, b.y));
}

static inline struct v16 v16_head(struct v16 a, size_t n, struct v16 b)
{
    __m256i count = _mm256_set1_epi32(n >= LANES ? LANES : (int)n);
    __m256i first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i second = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);

    return V16_BOTH(
        _mm256_blendv_ps(b.x, a.x, _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, first))),
        _mm256_blendv_ps(b.y, a.y, _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, second))));
}

static inline __m256 power_of(__m256 t)
{
    __m256i bits = _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127));

    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}

static inline struct v16 v16_power(struct v16 t)
{
    return V16_BOTH(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t.x), 23)),
                    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t.y), 23)));
}

static inline struct v16 v16_swap_pairs(struct v16 a)
{
    return V16_BOTH(_mm256_permute_ps(a.x, 0xb1), _mm256_permute_ps(a.y, 0xb1));
}

static inline __m256 upper_half(struct v16 a)
{
    return a.y;
}

static inline __m256 lower_half(struct v16 a)
{
    return a.x;
}

#include "compute/cpu/x86/lanes_fold.h"

static inline struct v16 v16_load_head(const float *p, size_t n)
{
    __m256i count = _mm256_set1_epi32((int)n);
    __m256i first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i second = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);

    return V16_BOTH(_mm256_maskload_ps(p, _mm256_cmpgt_epi32(count, first)),
                    _mm256_maskload_ps(p + 8, _mm256_cmpgt_epi32(count, second)));
}

static inline __m256 lookup_half(__m256i table, __m256i index)
{
    /* the lowest byte of each four */
    return _mm256_cvtepi32_ps(
        _mm256_srai_epi32(_mm256_slli_epi32(_mm256_shuffle_epi8(table, index), 24), 24));
}

static inline struct v16 v16_lookup(const int8_t table[LANES], const void *index /* u32 [LANES] */)
{
    const __m256i both =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    const __m256i *at = index;

    return V16_BOTH(lookup_half(both, _mm256_loadu_si256(at)),
                    lookup_half(both, _mm256_loadu_si256(at + 1)));
}

enum { ABREAST = 2 };

static inline void v16_abreast(struct v16 a[ABREAST])
{
    __asm__("" : "+x"(a[0].x), "+x"(a[0].y), "+x"(a[1].x), "+x"(a[1].y));
}

#endif
