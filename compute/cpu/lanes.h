/* Sixteen floats, in one register, in two, or in an array: what all float kernels compute with, so
 * that a kernel is written once, compiled for each instruction set, and gives the same bits. All
 * functions are static: this header is compiled with flags that not every machine can run. */
#ifndef COMPUTE_CPU_LANES_H
#define COMPUTE_CPU_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compute/numerics/dtype.h"
#include "compute/numerics/scalar.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { LANES = SCALAR_LANES };

/* A function whose sizes are constants where it is called: inlined there, so that its variables
 * stay in registers. Not in plain C, which gains nothing and takes long to compile. */
#if defined(__AVX2__)
#define FIXED_SIZE inline __attribute__((always_inline))
#else
#define FIXED_SIZE __attribute__((noinline, unused))
#endif

#if defined(__AVX512F__)

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

#elif defined(__AVX2__)

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

#else

struct v16 {
    float f[LANES];
};

/* One expression for each lane i. */
#define V16_EACH(expression)           \
    struct v16 r;                      \
    for (size_t i = 0; i < LANES; i++) \
        r.f[i] = (expression);         \
    return r

static inline struct v16 v16_load(const float *p)
{
    V16_EACH(p[i]);
}

static inline struct v16 v16_load_f16(const uint16_t *p)
{
    V16_EACH(f16_to_f32(p[i]));
}

static inline struct v16 v16_load_i8(const int8_t *p)
{
    V16_EACH((float)p[i]);
}

static inline struct v16 v16_load_bf16(const uint16_t *p)
{
    V16_EACH(bf16_to_f32(p[i]));
}

static inline void v16_store(float *p, struct v16 a)
{
    memcpy(p, a.f, sizeof(a.f));
}

static inline void v16_store_f16(uint16_t *p, struct v16 a)
{
    for (size_t i = 0; i < LANES; i++)
        p[i] = f32_to_f16(a.f[i]);
}

static inline struct v16 v16_all(float x)
{
    V16_EACH(x);
}

static inline struct v16 v16_add(struct v16 a, struct v16 b)
{
    V16_EACH(a.f[i] + b.f[i]);
}

static inline struct v16 v16_sub(struct v16 a, struct v16 b)
{
    V16_EACH(a.f[i] - b.f[i]);
}

static inline struct v16 v16_mul(struct v16 a, struct v16 b)
{
    V16_EACH(a.f[i] * b.f[i]);
}

static inline struct v16 v16_div(struct v16 a, struct v16 b)
{
    V16_EACH(a.f[i] / b.f[i]);
}

static inline struct v16 v16_fma(struct v16 a, struct v16 b, struct v16 c)
{
    V16_EACH(fmaf(a.f[i], b.f[i], c.f[i]));
}

static inline struct v16 v16_max(struct v16 a, struct v16 b)
{
    V16_EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}

static inline struct v16 v16_min(struct v16 a, struct v16 b)
{
    V16_EACH(a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}

static inline struct v16 v16_head(struct v16 a, size_t n, struct v16 b)
{
    V16_EACH(i < n ? a.f[i] : b.f[i]);
}

static inline struct v16 v16_power(struct v16 t)
{
    V16_EACH(scalar_from_bits(scalar_bits(t.f[i]) << 23));
}

static inline struct v16 v16_swap_pairs(struct v16 a)
{
    V16_EACH(a.f[i ^ 1]);
}

#endif

/* The first n < 16 floats of p, then zeros. */
static inline struct v16 v16_load_some(const float *p, size_t n)
{
    float all[LANES] = {0};

    memcpy(all, p, n * sizeof(*p));
    return v16_load(all);
}

static inline void v16_store_some(float *p, struct v16 a, size_t n)
{
    float all[LANES];

    v16_store(all, a);
    memcpy(p, all, n * sizeof(*p));
}

#if defined(__AVX2__)

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

#else

/* scalar_sum_lanes */
static inline float v16_sum(struct v16 a)
{
    return scalar_sum_lanes(a.f);
}

/* The greatest lane; folded as the sum is. */
static inline float v16_greatest(struct v16 a)
{
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            a.f[i] = a.f[i] > a.f[i + half] ? a.f[i] : a.f[i + half];
    return a.f[0];
}

#endif

/* The v16_sum of each of LANES vectors. */
static inline struct v16 v16_sums(const struct v16 a[LANES])
{
#if defined(__AVX512F__)
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
#else
    float sums[LANES];

    for (size_t i = 0; i < LANES; i++)
        sums[i] = v16_sum(a[i]);
    return v16_load(sums);
#endif
}

/* The number of vectors whose chains of dependent instructions are interleaved. A processor looks
 * ahead by a hundred instructions or so: chains of forty, one after the other, leave most of it
 * idle. */
#if defined(__AVX512F__)
enum { ABREAST = 4 };
#elif defined(__AVX2__)
enum { ABREAST = 2 };
#else
enum { ABREAST = 1 };
#endif

#define EACH_ABREAST(i) _Pragma("GCC unroll 4") for (size_t i = 0; i < ABREAST; i++)

/* A barrier: code before it is computed before it, for all vectors. Compilers would otherwise put
 * one chain after the other again. */
static inline void v16_abreast(struct v16 a[ABREAST])
{
#if defined(__AVX512F__)
    __asm__("" : "+v"(a[0].x), "+v"(a[1].x), "+v"(a[2].x), "+v"(a[3].x));
#elif defined(__AVX2__)
    __asm__("" : "+x"(a[0].x), "+x"(a[0].y), "+x"(a[1].x), "+x"(a[1].y));
#else
#endif
}

/* p = fma(p, x, c) */
static inline void v16_horner(struct v16 p[ABREAST], const struct v16 x[ABREAST], float c)
{
    EACH_ABREAST(i)
    p[i] = v16_fma(p[i], x[i], v16_all(c));
    v16_abreast(p);
}

/* x = scalar_exp2(x, scale) */
static FIXED_SIZE void v16_exp2(struct v16 x[ABREAST], float scale)
{
    const struct v16 magic = v16_all(12582912.0f + 127.0f), by = v16_all(scale);
    struct v16 t[ABREAST], p[ABREAST];

    EACH_ABREAST(i)
    t[i] = v16_fma(x[i], by, magic);
    v16_abreast(t);
    EACH_ABREAST(i)
    {
        x[i] = v16_fma(x[i], by, v16_sub(magic, t[i]));
        p[i] = v16_all(1.326472731e-3f);
    }
    v16_abreast(x);
    v16_horner(p, x, 9.671512991e-3f);
    v16_horner(p, x, 5.550733581e-2f);
    v16_horner(p, x, 2.402224243e-1f);
    v16_horner(p, x, 6.931470037e-1f);
    v16_horner(p, x, 1.0f);
    EACH_ABREAST(i)
    x[i] = v16_mul(p[i], v16_power(t[i]));
    v16_abreast(x);
}

/* x = scalar_exp2_below(x, scale) */
static FIXED_SIZE void v16_exp2_below(struct v16 x[ABREAST], float scale)
{
    const struct v16 lowest = v16_all(-125.0f / scale);

    EACH_ABREAST(i)
    x[i] = v16_max(lowest, x[i]);
    v16_exp2(x, scale);
}

/* a = 1 / a for a >= 1 or NaN */
static FIXED_SIZE void v16_reciprocal(struct v16 a[ABREAST])
{
#if defined(__AVX512F__)
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
#else
    EACH_ABREAST(i)
    a[i] = v16_div(v16_all(1.0f), a[i]);
#endif
}

/* x = scalar_silu(x); -x is written as a flipped sign there and as a product here: the same but for
 * the sign of NaN. */
static FIXED_SIZE void v16_silu(struct v16 x[ABREAST])
{
    struct v16 e[ABREAST];

    EACH_ABREAST(i)
    e[i] = v16_min(v16_all(86.0f), v16_max(v16_all(-86.0f), v16_mul(x[i], v16_all(-1.0f))));
    v16_exp2(e, SCALAR_LOG2_E);
    EACH_ABREAST(i)
    e[i] = v16_add(v16_all(1.0f), e[i]);
    v16_reciprocal(e);
    EACH_ABREAST(i)
    x[i] = v16_mul(x[i], e[i]);
}

/* x = scalar_gelu(x), with the remark of v16_silu. */
static FIXED_SIZE void v16_gelu(struct v16 x[ABREAST])
{
    struct v16 e[ABREAST];

    EACH_ABREAST(i)
    {
        e[i] = v16_fma(v16_mul(x[i], x[i]), v16_all(-0.0713548162726f), v16_all(-1.59576912161f));
        e[i] = v16_mul(x[i], e[i]);
        e[i] = v16_min(v16_all(86.0f), v16_max(v16_all(-86.0f), e[i]));
    }
    v16_exp2(e, SCALAR_LOG2_E);
    EACH_ABREAST(i)
    e[i] = v16_add(v16_all(1.0f), e[i]);
    v16_reciprocal(e);
    EACH_ABREAST(i)
    x[i] = v16_mul(x[i], e[i]);
}

/* x = scalar_cap_tanh(x) */
static FIXED_SIZE void v16_cap_tanh(struct v16 x[ABREAST])
{
    EACH_ABREAST(i)
    {
        x[i] = v16_mul(x[i], v16_all(2.0f));
        x[i] = v16_min(v16_all(86.0f), v16_max(v16_all(-86.0f), x[i]));
    }
    v16_exp2(x, SCALAR_LOG2_E);
    EACH_ABREAST(i)
    x[i] = v16_add(v16_all(1.0f), x[i]);
    v16_reciprocal(x);
    EACH_ABREAST(i)
    x[i] = v16_fma(v16_all(-2.0f), x[i], v16_all(1.0f));
}

#endif
