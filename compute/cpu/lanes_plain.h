/* Sixteen floats in an array: plain C, the definition of the bits of all instruction sets. Part of
 * lanes.h; x86/lanes_512.h says what functions do. */
#ifndef COMPUTE_CPU_LANES_PLAIN_H
#define COMPUTE_CPU_LANES_PLAIN_H

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

static inline struct v16 v16_lookup(const int8_t table[LANES], const void *index /* u32 [LANES] */)
{
    uint32_t at[LANES];

    memcpy(at, index, sizeof(at));
    V16_EACH((float)table[at[i]]);
}

enum { ABREAST = 1 };

static inline void v16_abreast(struct v16 a[ABREAST])
{
}

#endif
