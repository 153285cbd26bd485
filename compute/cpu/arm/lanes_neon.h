/* Sixteen floats in four registers of NEON. Part of lanes.h; x86/lanes_512.h says what functions
 * do. */
#ifndef COMPUTE_CPU_ARM_LANES_NEON_H
#define COMPUTE_CPU_ARM_LANES_NEON_H

#include <arm_neon.h>

struct v16 {
    float32x4_t x, y, z, w;
};

/* One expression for each register, in which r is its name. */
#define V16_FOUR(EXPRESSION) \
    ((struct v16){EXPRESSION(x), EXPRESSION(y), EXPRESSION(z), EXPRESSION(w)})

/* The u32 bits of a register of floats, and back. */
static inline uint32x4_t neon_bits(float32x4_t a)
{
    return vreinterpretq_u32_f32(a);
}

static inline float32x4_t neon_floats(uint32x4_t bits)
{
    return vreinterpretq_f32_u32(bits);
}

static inline struct v16 v16_load(const float *p)
{
    return (struct v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}

static inline float32x4_t neon_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline struct v16 v16_load_f16(const uint16_t *p)
{
    return (struct v16){neon_load_f16(p), neon_load_f16(p + 4), neon_load_f16(p + 8),
                        neon_load_f16(p + 12)};
}

static inline struct v16 v16_load_i8(const int8_t *p)
{
    int8x16_t bytes = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);

    return (struct v16){
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}

static inline float32x4_t neon_load_bf16(const uint16_t *p)
{
    return neon_floats(vshll_n_u16(vld1_u16(p), 16));
}

static inline struct v16 v16_load_bf16(const uint16_t *p)
{
    return (struct v16){neon_load_bf16(p), neon_load_bf16(p + 4), neon_load_bf16(p + 8),
                        neon_load_bf16(p + 12)};
}

static inline void v16_store(float *p, struct v16 a)
{
    vst1q_f32(p, a.x);
    vst1q_f32(p + 4, a.y);
    vst1q_f32(p + 8, a.z);
    vst1q_f32(p + 12, a.w);
}

static inline void neon_store_f16(uint16_t *p, float32x4_t a)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}

static inline void v16_store_f16(uint16_t *p, struct v16 a)
{
    neon_store_f16(p, a.x);
    neon_store_f16(p + 4, a.y);
    neon_store_f16(p + 8, a.z);
    neon_store_f16(p + 12, a.w);
}

static inline struct v16 v16_all(float x)
{
    float32x4_t all = vdupq_n_f32(x);

    return (struct v16){all, all, all, all};
}

static inline struct v16 v16_add(struct v16 a, struct v16 b)
{
#define NEON_EACH(r) vaddq_f32(a.r, b.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16 v16_sub(struct v16 a, struct v16 b)
{
#define NEON_EACH(r) vsubq_f32(a.r, b.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16 v16_mul(struct v16 a, struct v16 b)
{
#define NEON_EACH(r) vmulq_f32(a.r, b.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16 v16_div(struct v16 a, struct v16 b)
{
#define NEON_EACH(r) vdivq_f32(a.r, b.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16 v16_fma(struct v16 a, struct v16 b, struct v16 c)
{
#define NEON_EACH(r) vfmaq_f32(c.r, a.r, b.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

/* Not the instruction for a maximum, which lets NaN through from either side. */
static inline float32x4_t neon_max(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline struct v16 v16_max(struct v16 a, struct v16 b)
{
#define NEON_EACH(r) neon_max(a.r, b.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16 v16_min(struct v16 a, struct v16 b)
{
#define NEON_EACH(r) vbslq_f32(vcltq_f32(a.r, b.r), a.r, b.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16 v16_head(struct v16 a, size_t n, struct v16 b)
{
    static const uint32_t first_four[4] = {0, 1, 2, 3};
    const uint32x4_t four = vdupq_n_u32(4), at_x = vld1q_u32(first_four);
    const uint32x4_t at_y = vaddq_u32(at_x, four), at_z = vaddq_u32(at_y, four);
    const uint32x4_t at_w = vaddq_u32(at_z, four);
    const uint32x4_t count = vdupq_n_u32(n >= LANES ? LANES : (uint32_t)n);

#define NEON_EACH(r) vbslq_f32(vcltq_u32(at_##r, count), a.r, b.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16 v16_power(struct v16 t)
{
#define NEON_EACH(r) neon_floats(vshlq_n_u32(neon_bits(t.r), 23))
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline struct v16 v16_swap_pairs(struct v16 a)
{
#define NEON_EACH(r) vrev64q_f32(a.r)
    return V16_FOUR(NEON_EACH);
#undef NEON_EACH
}

static inline float v16_sum(struct v16 a)
{
    float32x4_t four = vaddq_f32(vaddq_f32(a.x, a.z), vaddq_f32(a.y, a.w));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));

    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

static inline float v16_greatest(struct v16 a)
{
    float32x4_t four = neon_max(neon_max(a.x, a.z), neon_max(a.y, a.w));
    float32x2_t low = vget_low_f32(four), high = vget_high_f32(four);
    float32x2_t two = vbsl_f32(vcgt_f32(low, high), low, high);
    float first = vget_lane_f32(two, 0), second = vget_lane_f32(two, 1);

    return first > second ? first : second;
}

static inline float32x4_t neon_lookup(int8x16_t table, const uint8_t *index /* u32 [4] */)
{
    /* the lowest byte of each four */
    int32x4_t all = vreinterpretq_s32_s8(vqtbl1q_s8(table, vld1q_u8(index)));

    return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(all, 24), 24));
}

static inline struct v16 v16_lookup(const int8_t table[LANES], const void *index /* u32 [LANES] */)
{
    const uint8_t *at = index;
    int8x16_t values = vld1q_s8(table);

    return (struct v16){neon_lookup(values, at), neon_lookup(values, at + 16),
                        neon_lookup(values, at + 32), neon_lookup(values, at + 48)};
}

/* The four registers are four chains. */
enum { ABREAST = 1 };

static inline void v16_abreast(struct v16 a[ABREAST])
{
}

#endif
