/* Sixteen int32 in four registers of NEON. Part of pairs.h; x86/pairs_512.h says what functions
 * do. */
#ifndef COMPUTE_CPU_ARM_PAIRS_NEON_H
#define COMPUTE_CPU_ARM_PAIRS_NEON_H

#include <arm_neon.h>

struct v16i {
    int32x4_t x, y, z, w;
};

#define V16I_FOUR(EXPRESSION) \
    ((struct v16i){EXPRESSION(x), EXPRESSION(y), EXPRESSION(z), EXPRESSION(w)})

static inline struct v16i v16i_load(const int32_t *p)
{
    return (struct v16i){vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}

static inline void v16i_store(int32_t *p, struct v16i a)
{
    vst1q_s32(p, a.x);
    vst1q_s32(p + 4, a.y);
    vst1q_s32(p + 8, a.z);
    vst1q_s32(p + 12, a.w);
}

static inline struct v16i v16i_all(int32_t x)
{
    int32x4_t all = vdupq_n_s32(x);

    return (struct v16i){all, all, all, all};
}

static inline int32x4_t neon_dot_pairs(int32x4_t a, int32x4_t b, int32x4_t sum)
{
    int16x8_t p = vreinterpretq_s16_s32(a), q = vreinterpretq_s16_s32(b);
    int32x4_t low = vmull_s16(vget_low_s16(p), vget_low_s16(q)), high = vmull_high_s16(p, q);

    return vaddq_s32(sum, vpaddq_s32(low, high));
}

static inline struct v16i v16i_dot(struct v16i a, struct v16i b, struct v16i sum)
{
#define NEON_EACH(r) neon_dot_pairs(a.r, b.r, sum.r)
    return V16I_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16 v16i_to_floats(struct v16i a)
{
#define NEON_EACH(r) vcvtq_f32_s32(a.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16i v16i_load_i8(const int8_t *p)
{
    int8x16_t bytes = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);

    return (struct v16i){vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                         vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
}

static inline struct v16i v16_bits(struct v16 a)
{
#define NEON_EACH(r) vreinterpretq_s32_f32(a.r)
    return V16I_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16i v16i_pairs(struct v16i lower, struct v16i upper)
{
#define NEON_EACH(r) vsliq_n_s32(lower.r, upper.r, 16)
    return V16I_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline int16x8_t neon_low_halves(float32x4_t a, float32x4_t b)
{
    return vcombine_s16(vmovn_s32(vreinterpretq_s32_f32(a)), vmovn_s32(vreinterpretq_s32_f32(b)));
}

static inline void v16_store_i16(int16_t *p, struct v16 rounded)
{
    vst1q_s16(p, neon_low_halves(rounded.x, rounded.y));
    vst1q_s16(p + 8, neon_low_halves(rounded.z, rounded.w));
}

static inline struct v16 v16_exponent(struct v16 a)
{
#define NEON_EACH(r) vcvtq_f32_u32(vshrq_n_u32(neon_bits(a.r), 23))
    return v16_sub(V16_FOUR(NEON_EACH), v16_all(127.0f));
#undef NEON_EACH
}

static inline struct v16 v16_greater_magnitude(struct v16 a, struct v16 b)
{
    const uint32x4_t no_sign = vdupq_n_u32(0x7fffffff);

#define NEON_EACH(r) \
    neon_floats(vmaxq_u32(vandq_u32(neon_bits(a.r), no_sign), vandq_u32(neon_bits(b.r), no_sign)))
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

#endif
