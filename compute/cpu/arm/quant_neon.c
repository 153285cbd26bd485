/* Products with quantised weights by NEON: dots of int8 by pairs, by the dot-product instruction
 * where the set has it, and two rows at once by that for matrices (i8mm) where it has that. A tile
 * is one or two rows by a panel, or three or four by half a panel, so that its sums stay in
 * registers. */
#include <arm_neon.h>
#include <string.h>

#include "compute/cpu/acts.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/outlier_lanes.h"
#include "compute/cpu/panels.h"

enum {
    QUADS = GROUP_VALUES / 4,
    PART_COLUMNS = 4, /* of a register: four columns of a quad, or their sums */
    PART_BYTES = 16,
    PANEL_PARTS = PANEL_COLUMNS / PART_COLUMNS,
    TILE_ROWS = 4,
    AHEAD = 2048, /* bytes of codes that are prefetched */
};

#define NEON_PART static inline __attribute__((always_inline))
#if defined(__clang__)
#define NEON_LOOP(i, n) _Pragma("unroll") for (size_t i = 0; i < (n); i++)
#else
#define NEON_LOOP(i, n) _Pragma("GCC unroll 8") for (size_t i = 0; i < (n); i++)
#endif

/* Whether codes are read as the numbers that they stand for: those of all eight bits would not fit
 * into int8 with their bias. */
NEON_PART bool neon_is_signed(struct block_form form)
{
    return form.bias == 128 || form.codes != CODE_LINEAR;
}

/* byte moved left, or right where shift is negative, & mask */
NEON_PART uint8x16_t neon_field(const uint8_t *from, int shift, uint8_t mask)
{
    uint8x16_t bytes = vld1q_u8(from);

    return (shift < 0 ? bytes >> (uint8_t)-shift : bytes << (uint8_t)shift) & mask;
}

/* Quad i of four columns, whose bytes begin at `codes` in the group's first line; see panels.h. */
NEON_PART int8x16_t neon_codes(const uint8_t *codes, struct block_form form, size_t i)
{
    const uint8_t *planes = codes + QUADS / 2 * LINE_BYTES;
    uint8x16_t w;

    if (form.bits == 8)
        return vreinterpretq_s8_u8(vld1q_u8(codes + i * LINE_BYTES) ^ 0x80);
    if (form.bits < 4) {
        w = neon_field(codes + i / 4 * LINE_BYTES, -2 * (int)(i % 4), 3);
        if (form.bits == 3)
            w |= neon_field(codes + 2 * LINE_BYTES, 2 - (int)i, 4);
        return vreinterpretq_s8_u8(w);
    }
    w = neon_field(codes + i % (QUADS / 2) * LINE_BYTES, i < QUADS / 2 ? 0 : -4, 15);
    if (form.bits == 5)
        w |= neon_field(planes, 4 - (int)i, 0x10);
    if (form.bits == 6)
        w |= neon_field(planes + i / 4 * LINE_BYTES, 4 - 2 * (int)(i % 4), 0x30);
    if (form.codes != CODE_LINEAR)
        return vqtbl1q_s8(vld1q_s8(form.codes == CODE_IQ4 ? dtype_iq4_values : dtype_e2m1_values),
                          w);
    return vreinterpretq_s8_u8(w);
}

NEON_PART int32_t neon_start(struct block_form form, const struct act_record *act, bool upper)
{
    if (form.bias == 0 || neon_is_signed(form))
        return ACT_START;
    return upper ? act->start_upper : act->start;
}

/* sum += the four products of each column of w and lane `lane` of a, a constant. Without the
 * instruction: pairs of products stay within int16, since a is not below -127. */
#if defined(__ARM_FEATURE_DOTPROD)
#define NEON_DOT(sum, w, a, lane) vdotq_laneq_s32(sum, w, a, lane)
#else
#define NEON_DOT(sum, w, a, lane) \
    neon_dot(sum, w, vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(a), lane)))

NEON_PART int32x4_t neon_dot(int32x4_t sum, int8x16_t w, int8x16_t four)
{
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(four));
    int16x8_t high = vmull_high_s8(w, four);

    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
#endif

/* Quad first + lane of a tile's dots, lane being a constant. */
#define NEON_QUAD(lane)                                                               \
    NEON_LOOP(p, n_parts)                                                             \
    {                                                                                 \
        int8x16_t w = neon_codes(codes + p * PART_BYTES, form, first + (lane));       \
        NEON_LOOP(r, n) dot[from + r][p] = NEON_DOT(dot[from + r][p], w, a[r], lane); \
    }

/* dot[from + r] += quads first … first + 3 with row from + r, for n rows. */
NEON_PART void neon_add_quads(int32x4_t dot[TILE_ROWS][PANEL_PARTS], struct block_form form,
                              const uint8_t *codes, size_t first, const struct act_record *act,
                              size_t from, size_t n, size_t n_parts)
{
    int8x16_t a[TILE_ROWS];

    NEON_LOOP(r, n)
    a[r] = vld1q_s8(act[from + r].value + 4 * first);
    NEON_QUAD(0)
    NEON_QUAD(1)
    NEON_QUAD(2)
    NEON_QUAD(3)
}

#if defined(__ARM_FEATURE_MATMUL_INT8)

enum { EIGHTS = 4 /* inputs of a group, by the eight that the instruction takes */ };

/* The same of two rows, for quads first … last - 1. */
NEON_PART void neon_add_two_rows(int32x4_t dot[TILE_ROWS][PANEL_PARTS], struct block_form form,
                                 const uint8_t *codes, size_t first, size_t last,
                                 const struct act_record *act, size_t from, size_t n_parts)
{
    int32x4_t sums[PANEL_PARTS][2]; /* of two columns: both of the first row, then of the second */

    NEON_LOOP(p, n_parts)
    sums[p][0] = sums[p][1] = vdupq_n_s32(0);
    NEON_LOOP(i, EIGHTS)
    if (2 * i >= first && 2 * i < last) {
        int8x16_t a =
            vcombine_s8(vld1_s8(act[from].value + 8 * i), vld1_s8(act[from + 1].value + 8 * i));

        NEON_LOOP(p, n_parts)
        {
            int32x4_t even = vreinterpretq_s32_s8(neon_codes(codes + p * PART_BYTES, form, 2 * i));
            int32x4_t odd =
                vreinterpretq_s32_s8(neon_codes(codes + p * PART_BYTES, form, 2 * i + 1));

            sums[p][0] = vmmlaq_s32(sums[p][0], a, vreinterpretq_s8_s32(vzip1q_s32(even, odd)));
            sums[p][1] = vmmlaq_s32(sums[p][1], a, vreinterpretq_s8_s32(vzip2q_s32(even, odd)));
        }
    }
    NEON_LOOP(p, n_parts)
    {
        int32x4_t low = vcombine_s32(vget_low_s32(sums[p][0]), vget_low_s32(sums[p][1]));
        int32x4_t high = vcombine_s32(vget_high_s32(sums[p][0]), vget_high_s32(sums[p][1]));

        dot[from][p] = vaddq_s32(dot[from][p], low);
        dot[from + 1][p] = vaddq_s32(dot[from + 1][p], high);
    }
}

#endif

/* dot[r]: of quads first … last - 1 with row r, from its start. */
NEON_PART void neon_dots(int32x4_t dot[TILE_ROWS][PANEL_PARTS], struct block_form form,
                         const uint8_t *codes, size_t first, size_t last,
                         const struct act_record *act, size_t n, size_t n_parts)
{
    size_t from = 0;

    NEON_LOOP(r, n)
    {
        int32x4_t start = vdupq_n_s32(neon_start(form, &act[r], first > 0));

        NEON_LOOP(p, n_parts)
        dot[r][p] = start;
    }
#if defined(__ARM_FEATURE_MATMUL_INT8)
    NEON_LOOP(pair, n / 2)
    neon_add_two_rows(dot, form, codes, first, last, act, 2 * pair, n_parts);
    from = n / 2 * 2;
#endif
    if (n > from && first == 0)
        neon_add_quads(dot, form, codes, 0, act, from, n - from, n_parts);
    if (n > from && last == QUADS)
        neon_add_quads(dot, form, codes, QUADS / 2, act, from, n - from, n_parts);
}

/* Scales, or mins, of four columns: f16, powers, or steps that the f16 of the super block
 * multiply. 2^(e - 128) is zero where that is subnormal. */
NEON_PART float32x4_t neon_scales(const uint8_t *from, struct block_form form,
                                  const uint8_t *supers, size_t part)
{
    const uint16_t *wide = (const uint16_t *)(const void *)from + part * PART_COLUMNS;
    uint64_t four = 0;
    uint8x8_t bytes;

    if (form.scale == SCALE_F16)
        return neon_load_f16(wide);
    memcpy(&four, from + part * PART_COLUMNS, PART_COLUMNS);
    bytes = vcreate_u8(four);
    if (form.scale == SCALE_POWER) {
        uint16x8_t e = vmovl_u8(vqsub_u8(bytes, vdup_n_u8(1))); /* the exponent's bits */

        return neon_floats(vshlq_n_u32(vmovl_u16(vget_low_u16(e)), 23));
    }
    return vmulq_f32(neon_load_f16((const uint16_t *)(const void *)supers + part * PART_COLUMNS),
                     vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes))))));
}

/* A tile: n rows from row on and n_parts parts of a panel from part on; all but row and part are
 * constants where functions are called, as is form. */
struct neon_tile {
    size_t row, n, part, n_parts;
};

/* y += dot * scale of the activations * scale of the weights; see ACT_START */
NEON_PART void neon_add_dots(float32x4_t y[TILE_ROWS][PANEL_PARTS],
                             int32x4_t dot[TILE_ROWS][PANEL_PARTS], struct block_form form,
                             const uint8_t *scales, const uint8_t *supers,
                             const struct act_record *act, struct neon_tile t)
{
    NEON_LOOP(p, t.n_parts)
    {
        float32x4_t scale = neon_scales(scales, form, supers, t.part + p);

        NEON_LOOP(r, t.n)
        {
            float32x4_t product = vfmaq_n_f32(vdupq_n_f32(act[r].back),
                                              vreinterpretq_f32_s32(dot[r][p]), act[r].scale);

            y[r][p] = vfmaq_f32(y[r][p], product, scale);
        }
    }
}

/* y += min of the weights * sum of the activations, of the upper half if so */
NEON_PART void neon_add_mins(float32x4_t y[TILE_ROWS][PANEL_PARTS], struct block_form form,
                             const uint8_t *mins, const uint8_t *supers,
                             const struct act_record *act, bool upper, struct neon_tile t)
{
    NEON_LOOP(p, t.n_parts)
    {
        float32x4_t min = neon_scales(mins, form, supers, t.part + p);

        NEON_LOOP(r, t.n)
        y[r][p] = vfmaq_n_f32(y[r][p], min, upper ? act[r].sum_upper : act[r].sum);
    }
}

NEON_PART void neon_put(const struct quant_slice *s, float *to, float32x4_t sums, size_t n_columns)
{
    float four[PART_COLUMNS];

    if (n_columns >= PART_COLUMNS) {
        vst1q_f32(to, s->adds ? vaddq_f32(vld1q_f32(to), sums) : sums);
        return;
    }
    vst1q_f32(four, sums);
    for (size_t i = 0; i < n_columns; i++)
        to[i] = s->adds ? to[i] + four[i] : four[i];
}

NEON_PART void neon_run_tile(const struct quant_slice *s, struct block_form form, size_t panel,
                             struct neon_tile t)
{
    const struct panel_layout l = panel_layout(form, s->n_groups);
    const uint8_t *panel_at = s->panels + panel * l.size_bytes;
    const struct act_record *act = s->acts + t.row;
    size_t half = PANEL_COLUMNS * (form.scale == SCALE_F16 ? sizeof(uint16_t) : sizeof(int8_t));
    float32x4_t y[TILE_ROWS][PANEL_PARTS];

    NEON_LOOP(r, t.n)
    NEON_LOOP(p, t.n_parts)
    y[r][p] = vdupq_n_f32(0.0f);
    for (size_t g = 0; g < s->n_groups; g++, act += s->n_rows) {
        struct panel_group at = panel_group_at(panel_at, &l, g);
        const uint8_t *codes = at.codes + t.part * PART_BYTES;
        int32x4_t dot[TILE_ROWS][PANEL_PARTS];

        if (t.part == 0)
            for (size_t i = 0; i < l.chunk_bytes / l.chunk_groups; i += LINE_BYTES)
                __builtin_prefetch(codes + AHEAD + i);
        neon_dots(dot, form, codes, 0, form.halves ? QUADS / 2 : QUADS, act, t.n, t.n_parts);
        neon_add_dots(y, dot, form, at.scales, at.supers, act, t);
        if (form.halves) {
            neon_dots(dot, form, codes, QUADS / 2, QUADS, act, t.n, t.n_parts);
            neon_add_dots(y, dot, form, at.scales + half, at.supers, act, t);
        }
        if (form.has_min)
            neon_add_mins(y, form, at.mins, at.supers + SUPER_BYTES, act, false, t);
        if (form.has_min && form.halves)
            neon_add_mins(y, form, at.mins + half, at.supers + SUPER_BYTES, act, true, t);
    }
    NEON_LOOP(r, t.n)
    NEON_LOOP(p, t.n_parts)
    {
        size_t column = panel * PANEL_COLUMNS + (t.part + p) * PART_COLUMNS;

        if (column < s->n_columns)
            neon_put(s, s->out + (t.row + r) * s->stride + column, y[r][p], s->n_columns - column);
    }
}

/* Up to TILE_ROWS rows of a panel. */
NEON_PART void neon_rows(const struct quant_slice *s, struct block_form form, size_t panel,
                         size_t row, size_t n)
{
    const size_t half = PANEL_PARTS / 2;

    if (n == 1)
        neon_run_tile(s, form, panel, (struct neon_tile){row, 1, 0, PANEL_PARTS});
    else if (n == 2)
        neon_run_tile(s, form, panel, (struct neon_tile){row, 2, 0, PANEL_PARTS});
    else
        for (size_t part = 0; part < PANEL_PARTS; part += half) {
            if (n == 3)
                neon_run_tile(s, form, panel, (struct neon_tile){row, 3, part, half});
            else
                neon_run_tile(s, form, panel, (struct neon_tile){row, TILE_ROWS, part, half});
        }
}

static inline __attribute__((always_inline)) void
product(const struct quant_slice *s, struct block_form form, size_t first, size_t last)
{
    for (size_t next; first < last; first = next) {
        next = last - first < OUTLIER_PANELS ? last : first + OUTLIER_PANELS;
        for (size_t panel = first; panel < next && panel * PANEL_COLUMNS < s->n_columns; panel++)
            for (size_t row = 0; row < s->n_rows; row += TILE_ROWS)
                neon_rows(s, form, panel, row,
                          s->n_rows - row < TILE_ROWS ? s->n_rows - row : TILE_ROWS);
        outliers_add(s, form, first, next);
    }
}

#include "compute/cpu/forms.h"

enum { GROUP_PARTS = GROUP_VALUES / 4 };

/* The greatest and the second greatest number of each lane. */
struct two_neon {
    uint32x4_t greatest, second;
};

/* Of both. */
NEON_PART struct two_neon neon_two_of(struct two_neon a, struct two_neon b)
{
    return (struct two_neon){
        vmaxq_u32(a.greatest, b.greatest),
        vmaxq_u32(vmaxq_u32(a.second, b.second), vminq_u32(a.greatest, b.greatest))};
}

/* Of all lanes, in each. */
NEON_PART struct two_neon neon_two_of_lanes(struct two_neon a)
{
    a = neon_two_of(a, (struct two_neon){vextq_u32(a.greatest, a.greatest, 2),
                                         vextq_u32(a.second, a.second, 2)});
    return neon_two_of(a, (struct two_neon){vrev64q_u32(a.greatest), vrev64q_u32(a.second)});
}

/* Sixteen of the whole numbers, as bytes. */
NEON_PART int8x16_t neon_bytes(const int32x4_t whole[4])
{
    int16x8_t low = vcombine_s16(vqmovn_s32(whole[0]), vqmovn_s32(whole[1]));
    int16x8_t high = vcombine_s16(vqmovn_s32(whole[2]), vqmovn_s32(whole[3]));

    return vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
}

/* Leaves out the value whose magnitude is given; returns its place. */
static inline size_t neon_leave_out(int32x4_t whole[GROUP_PARTS],
                                    const uint32x4_t bits[GROUP_PARTS], uint32x4_t greatest)
{
    uint32_t is[4];
    size_t place = 0;

    for (size_t i = 0; i < GROUP_PARTS; i++) {
        uint32x4_t same = vceqq_u32(bits[i], greatest);

        whole[i] = vbicq_s32(whole[i], vreinterpretq_s32_u32(same));
        vst1q_u32(is, same);
        for (size_t lane = 0; lane < 4; lane++)
            place = is[lane] != 0 ? 4 * i + lane : place;
    }
    return place;
}

/* Returns the place of the group's outlier, or ACT_NONE. */
static size_t neon_quantise_group(const float *in, const struct act_slice *s,
                                  struct act_record *out)
{
    struct two_neon two = {vdupq_n_u32(0), vdupq_n_u32(0)};
    uint32x4_t bits[GROUP_PARTS];
    int32x4_t whole[GROUP_PARTS];
    struct activation_scale scale;
    uint32_t greatest, second;
    size_t place = ACT_NONE;
    int8x16_t low, high;
    bool is_outlier;

    NEON_LOOP(i, GROUP_PARTS)
    {
        bits[i] = vandq_u32(neon_bits(vld1q_f32(in + 4 * i)), vdupq_n_u32(0x7fffffff));
        two = neon_two_of(two, (struct two_neon){bits[i], vdupq_n_u32(0)});
    }
    two = neon_two_of_lanes(two);
    greatest = vgetq_lane_u32(two.greatest, 0);
    second = vgetq_lane_u32(two.second, 0);
    is_outlier = activation_is_outlier(greatest, second, s->above);
    scale = activation_scale_of(is_outlier ? second : greatest);
    NEON_LOOP(i, GROUP_PARTS)
    whole[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(in + 4 * i), scale.inverse));
    if (is_outlier)
        place = neon_leave_out(whole, bits, two.greatest);
    low = neon_bytes(whole);
    high = neon_bytes(whole + GROUP_PARTS / 2);
    if (scale.inverse == 0.0f) /* the values may have been infinite */
        low = high = vdupq_n_s8(0);
    vst1q_s8(out->value, low);
    vst1q_s8(out->value + HALF_VALUES, high);
    act_record_finish(out, s->form, scale.scale, vaddlvq_s8(low), vaddlvq_s8(high));
    return place;
}

void ISA_NAME(quantise)(const struct act_slice *s)
{
    for (size_t r = 0; r < s->n_rows; r++)
        for (size_t g = 0; g < s->n_groups; g++) {
            const float *in = s->in + r * s->stride + g * GROUP_VALUES;

            act_outlier_put(s, r, g, in, neon_quantise_group(in, s, s->out + g * s->step + r));
        }
}
