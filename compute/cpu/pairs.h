/* Sixteen int32 beside lanes.h's sixteen floats, or sixteen pairs of int16 whose products are
 * summed in them. All functions are static, as there. */
#ifndef COMPUTE_CPU_PAIRS_H
#define COMPUTE_CPU_PAIRS_H

#include "compute/cpu/lanes.h"
#include "compute/numerics/attend_units.h"

#if defined(__AVX512F__)

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

#elif defined(__AVX2__)

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

#else

struct v16i {
    int32_t i[LANES];
};

#define V16I_EACH(expression)          \
    struct v16i r;                     \
    for (size_t i = 0; i < LANES; i++) \
        r.i[i] = (expression);         \
    return r

static inline struct v16i v16i_load(const int32_t *p)
{
    V16I_EACH(p[i]);
}

static inline void v16i_store(int32_t *p, struct v16i a)
{
    memcpy(p, a.i, sizeof(a.i));
}

static inline struct v16i v16i_all(int32_t x)
{
    V16I_EACH(x);
}

static inline int32_t upper_of(int32_t pair)
{
    return (int16_t)((uint32_t)pair >> 16);
}

static inline struct v16i v16i_dot(struct v16i a, struct v16i b, struct v16i sum)
{
    V16I_EACH((int32_t)((uint32_t)sum.i[i] + (uint32_t)((int16_t)a.i[i] * (int16_t)b.i[i]) +
                        (uint32_t)(upper_of(a.i[i]) * upper_of(b.i[i]))));
}

static inline struct v16 v16i_to_floats(struct v16i a)
{
    V16_EACH((float)a.i[i]);
}

static inline struct v16i v16i_load_i8(const int8_t *p)
{
    V16I_EACH(p[i]);
}

static inline struct v16i v16_bits(struct v16 a)
{
    V16I_EACH((int32_t)scalar_bits(a.f[i]));
}

static inline struct v16i v16i_pairs(struct v16i lower, struct v16i upper)
{
    V16I_EACH((int32_t)(((uint32_t)lower.i[i] & 0xffff) | (uint32_t)upper.i[i] << 16));
}

static inline void v16_store_i16(int16_t *p, struct v16 rounded)
{
    for (size_t i = 0; i < LANES; i++)
        p[i] = (int16_t)scalar_bits(rounded.f[i]);
}

static inline struct v16 v16_exponent(struct v16 a)
{
    V16_EACH((float)(scalar_bits(a.f[i]) >> 23) - 127.0f);
}

static inline float greater_magnitude(float a, float b)
{
    uint32_t x = scalar_bits(a) & 0x7fffffff, y = scalar_bits(b) & 0x7fffffff;

    return scalar_from_bits(x > y ? x : y);
}

static inline struct v16 v16_greater_magnitude(struct v16 a, struct v16 b)
{
    V16_EACH(greater_magnitude(a.f[i], b.f[i]));
}

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
