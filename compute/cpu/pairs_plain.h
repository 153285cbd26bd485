/* Sixteen int32 in an array. Part of pairs.h; x86/pairs_512.h says what functions do. */
#ifndef COMPUTE_CPU_PAIRS_PLAIN_H
#define COMPUTE_CPU_PAIRS_PLAIN_H

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
