/* Sixteen floats in a register of AVX-512, and what each instruction set defines of them. Part of
 * lanes.h. */
#ifndef COMPUTE_CPU_X86_LANES_512_H
#define COMPUTE_CPU_X86_LANES_512_H

#include <immintrin.h>

struct v16 {
    __m512 x;
};

static inline struct v16 v16_load(const float *p)
{
    return (struct v16){_mm512_loadu_ps(p)};
}

static inline struct v16 v16_load_f16(const uint16_t *p)
{
    return (struct v16){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p))};
}

static inline struct v16 v16_load_i8(const int8_t *p)
{
    __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));

    return (struct v16){_mm512_cvtepi32_ps(wide)};
}

static inline struct v16 v16_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));

    return (struct v16){_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}

static inline void v16_store(float *p, struct v16 a)
{
    _mm512_storeu_ps(p, a.x);
}

static inline void v16_store_f16(uint16_t *p, struct v16 a)
{
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph(a.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline struct v16 v16_all(float x)
{
    return (struct v16){_mm512_set1_ps(x)};
}

static inline struct v16 v16_add(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_add_ps(a.x, b.x)};
}

static inline struct v16 v16_sub(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_sub_ps(a.x, b.x)};
}

static inline struct v16 v16_mul(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_mul_ps(a.x, b.x)};
}

/* a * b + c, rounded once */
static inline struct v16 v16_fma(struct v16 a, struct v16 b, struct v16 c)
{
    return (struct v16){_mm512_fmadd_ps(a.x, b.x, c.x)};
}

/* a > b ? a : b */
static inline struct v16 v16_max(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_max_ps(a.x, b.x)};
}

/* a < b ? a : b */
static inline struct v16 v16_min(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_min_ps(a.x, b.x)};
}

/* Lane i of a while i < n, of b from there on; any n. */
static inline struct v16 v16_head(struct v16 a, size_t n, struct v16 b)
{
    __mmask16 keep = n >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);

    return (struct v16){_mm512_mask_mov_ps(b.x, keep, a.x)};
}

/* 2^n out of scalar_exp2's n + magic */
static inline struct v16 v16_power(struct v16 t)
{
    return (struct v16){_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(t.x), 23))};
}

/* The lanes of each pair (2j, 2j + 1) exchanged. */
static inline struct v16 v16_swap_pairs(struct v16 a)
{
    return (struct v16){_mm512_permute_ps(a.x, 0xb1)};
}

static inline __m256 upper_half(struct v16 a)
{
    return _mm512_extractf32x8_ps(a.x, 1);
}

static inline __m256 lower_half(struct v16 a)
{
    return _mm512_castps512_ps256(a.x);
}

#include "compute/cpu/x86/lanes_fold.h"

/* The v16_sum of each of LANES vectors. */
#define V16_OWN_SUMS
static inline struct v16 v16_sums(const struct v16 a[LANES])
{
    const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    __m512 eight[8], four[4], two[2];

    for (size_t i = 0; i < 8; i++) /* the halves of a[i] and a[i + 8] */
        eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[i].x, a[i + 8].x, 0x44),
                                 _mm512_shuffle_f32x4(a[i].x, a[i + 8].x, 0xee));
    for (size_t i = 0; i < 4; i++)
        four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(eight[i], eight[i + 4], 0x88),
                                _mm512_shuffle_f32x4(eight[i], eight[i + 4], 0xdd));
    for (size_t i = 0; i < 2; i++) {
        __m512d x = _mm512_castps_pd(four[i]), y = _mm512_castps_pd(four[i + 2]);

        two[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                               _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    return (struct v16){
        _mm512_permutexvar_ps(order, _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88),
                                                   _mm512_shuffle_ps(two[0], two[1], 0xdd)))};
}

/* The first n < 16 floats of p, then zeros. */
static inline struct v16 v16_load_head(const float *p, size_t n)
{
    return (struct v16){_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p)};
}

/* The number of the table at each lane's index, which is below 16. */
static inline struct v16 v16_lookup(const int8_t table[LANES], const void *index /* u32 [LANES] */)
{
    return (struct v16){_mm512_permutexvar_ps(_mm512_loadu_si512(index), v16_load_i8(table).x)};
}

enum { ABREAST = 4 };

static inline void v16_abreast(struct v16 a[ABREAST])
{
    __asm__("" : "+v"(a[0].x), "+v"(a[1].x), "+v"(a[2].x), "+v"(a[3].x));
}

/* a = 1 / a for a >= 1 or NaN */
#define V16_OWN_RECIPROCAL
static FIXED_SIZE void v16_reciprocal(struct v16 a[ABREAST])
{
    /* Two of Newton's steps, in a third of the time of a division and with its bits: the second is
     * rounded as a quotient is but where a's fraction is all ones (P. Markstein, "Computation of
     * elementary functions on the IBM RISC System/6000 processor", 1990). */
    const __m512i ones = _mm512_set1_epi32(-1), above_fraction = _mm512_set1_epi32(~0x7fffff);
    struct v16 r[ABREAST], off[ABREAST];

    EACH_ABREAST(i)
    r[i].x = _mm512_rcp14_ps(a[i].x);
    for (int step = 0; step < 2; step++) {
        EACH_ABREAST(i)
        off[i].x = _mm512_fnmadd_ps(a[i].x, r[i].x, _mm512_set1_ps(1.0f));
        v16_abreast(off);
        EACH_ABREAST(i)
        r[i] = v16_fma(r[i], off[i], r[i]);
        v16_abreast(r);
    }
    EACH_ABREAST(i)
    {
        __m512i fraction = _mm512_or_si512(_mm512_castps_si512(a[i].x), above_fraction);
        __m512i bits = _mm512_castps_si512(r[i].x);

        bits = _mm512_mask_sub_epi32(bits, _mm512_cmpeq_epi32_mask(fraction, ones), bits, ones);
        a[i].x = _mm512_castsi512_ps(bits);
    }
}

#endif
