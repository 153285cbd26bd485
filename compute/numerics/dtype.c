/* Converts between floats of different widths, and decodes the blocks of quantised types, in plain
 * C. One table has a row for each type that a file may have. */
#include "compute/numerics/dtype.h"

#include <assert.h>
#include <string.h>

enum {
    SMALL_VALUES = 32,                     /* of a block of Q4_0 … Q8_0 */
    SUPER_VALUES = DTYPE_BLOCK_VALUES_MAX, /* of a block of the K formats */
};

static uint16_t load_u16(const uint8_t *in)
{
    return (uint16_t)(in[0] | in[1] << 8);
}

static uint32_t load_u32(const uint8_t *in)
{
    return (uint32_t)load_u16(in) | (uint32_t)load_u16(in + 2) << 16;
}

static float load_f16(const uint8_t *in)
{
    return f16_to_f32(load_u16(in));
}

static float bits_to_f32(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint32_t f32_to_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* A signalling NaN comes back quiet in both directions, as the processor's own conversion does. */
float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;

    if (exponent == 0) /* zero or subnormal: fraction * 2^-24 is exact */
        return bits_to_f32(sign | f32_to_bits((float)fraction * 0x1p-24F));
    if (exponent == 31 && fraction != 0)
        return bits_to_f32(sign | 0x7fc00000 | fraction << 13);
    if (exponent == 31)
        return bits_to_f32(sign | 0x7f800000);
    return bits_to_f32(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

uint16_t f32_to_f16(float f)
{
    uint32_t bits = f32_to_bits(f), magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= f32_to_bits(65520.0F)) /* from here on nearest is infinity */
        return sign | 0x7c00;
    if (magnitude <
        f32_to_bits(0x1p-14F)) /* floats in [0.5, 1) lie 2^-24 apart, as subnormals do */
        return (uint16_t)(sign | (f32_to_bits(bits_to_f32(magnitude) + 0.5F) - f32_to_bits(0.5F)));
    magnitude -= (uint32_t)(127 - 15) << 23;
    return (uint16_t)(sign | (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

float bf16_to_f32(uint16_t h)
{
    return bits_to_f32((uint32_t)h << 16);
}

static void decode_f32(const uint8_t *in, float *out)
{
    *out = bits_to_f32(load_u32(in));
}

static void decode_f16(const uint8_t *in, float *out)
{
    *out = load_f16(in);
}

static void decode_bf16(const uint8_t *in, float *out)
{
    *out = bf16_to_f32(load_u16(in));
}

/* f16 scale, u8 nibbles[16]: low nibbles are values 0 … 15, high ones 16 … 31 */
static void decode_q4_0(const uint8_t *in, float *out)
{
    float scale = load_f16(in);

    for (int i = 0; i < 16; i++) {
        out[i] = (float)((in[2 + i] & 15) - 8) * scale;
        out[16 + i] = (float)((in[2 + i] >> 4) - 8) * scale;
    }
}

/* f16 scale, f16 min, u8 nibbles[16] */
static void decode_q4_1(const uint8_t *in, float *out)
{
    float scale = load_f16(in), min = load_f16(in + 2);

    for (int i = 0; i < 16; i++) {
        out[i] = (float)(in[4 + i] & 15) * scale + min;
        out[16 + i] = (float)(in[4 + i] >> 4) * scale + min;
    }
}

/* f16 scale, u32 fifth bits (bit i is value i's), u8 nibbles[16] */
static void decode_q5_0(const uint8_t *in, float *out)
{
    float scale = load_f16(in);
    uint32_t fifth = load_u32(in + 2);

    for (int i = 0; i < 16; i++) {
        int low = (in[6 + i] & 15) | (int)(fifth >> i & 1) << 4;
        int high = in[6 + i] >> 4 | (int)(fifth >> (16 + i) & 1) << 4;

        out[i] = (float)(low - 16) * scale;
        out[16 + i] = (float)(high - 16) * scale;
    }
}

/* f16 scale, f16 min, u32 fifth bits, u8 nibbles[16] */
static void decode_q5_1(const uint8_t *in, float *out)
{
    float scale = load_f16(in), min = load_f16(in + 2);
    uint32_t fifth = load_u32(in + 4);

    for (int i = 0; i < 16; i++) {
        int low = (in[8 + i] & 15) | (int)(fifth >> i & 1) << 4;
        int high = in[8 + i] >> 4 | (int)(fifth >> (16 + i) & 1) << 4;

        out[i] = (float)low * scale + min;
        out[16 + i] = (float)high * scale + min;
    }
}

/* f16 scale, i8 values[32] */
static void decode_q8_0(const uint8_t *in, float *out)
{
    float scale = load_f16(in);

    for (int i = 0; i < SMALL_VALUES; i++)
        out[i] = (float)(int8_t)in[2 + i] * scale;
}

/* Group g's scale and min, 6 bits each, of the K formats' twelve packed bytes: the first four
 * groups' lie in the low six bits; of the last four, four bits in bytes 8 … 11 and two in the spare
 * top bits of the first eight. */
static void unpack_k_scales(const uint8_t packed[12], int g, int *ret_scale, int *ret_min)
{
    if (g < 4) {
        *ret_scale = packed[g] & 63;
        *ret_min = packed[g + 4] & 63;
    } else {
        *ret_scale = (packed[g + 4] & 15) | (packed[g - 4] >> 6) << 4;
        *ret_min = packed[g + 4] >> 4 | (packed[g] >> 6) << 4;
    }
}

/* f16 scale, f16 min, u8 scales[12], u8 nibbles[128]: eight groups of 32; groups 2p and 2p + 1 are
 * the low and the high nibbles of the p-th 32 bytes */
static void decode_q4_k(const uint8_t *in, float *out)
{
    float scale = load_f16(in), min = load_f16(in + 2);

    for (int g = 0; g < 8; g++) {
        const uint8_t *nibbles = in + 16 + g / 2 * 32;
        int group_scale, group_min;
        float d, m;

        unpack_k_scales(in + 4, g, &group_scale, &group_min);
        d = scale * (float)group_scale;
        m = min * (float)group_min;
        for (int i = 0; i < 32; i++)
            out[g * 32 + i] = d * (float)(nibbles[i] >> g % 2 * 4 & 15) - m;
    }
}

/* f16 scale, f16 min, u8 scales[12], u8 fifth bits[32], u8 nibbles[128]: as Q4_K; bit g of fifth
 * byte i belongs to value i of group g */
static void decode_q5_k(const uint8_t *in, float *out)
{
    float scale = load_f16(in), min = load_f16(in + 2);

    for (int g = 0; g < 8; g++) {
        const uint8_t *nibbles = in + 48 + g / 2 * 32, *fifth = in + 16;
        int group_scale, group_min;
        float d, m;

        unpack_k_scales(in + 4, g, &group_scale, &group_min);
        d = scale * (float)group_scale;
        m = min * (float)group_min;
        for (int i = 0; i < 32; i++)
            out[g * 32 + i] =
                d * (float)((nibbles[i] >> g % 2 * 4 & 15) | (fifth[i] >> g & 1) << 4) - m;
    }
}

/* u8 nibbles[128], u8 top bits[64], i8 scales[16] (one for 16 values), f16 scale: two halves of
 * 128 values, each four quarters of 32; quarters 0 and 2 share the first 32 bytes of nibbles, 1 and
 * 3 the second, and top byte i holds two bits of value i of each quarter */
static void decode_q6_k(const uint8_t *in, float *out)
{
    const uint8_t *scales = in + 192;
    float scale = load_f16(in + 208);

    for (int q = 0; q < 8; q++) {
        const uint8_t *nibbles = in + q / 4 * 64 + q % 2 * 32, *top = in + 128 + q / 4 * 32;

        for (int i = 0; i < 32; i++) {
            int value = (nibbles[i] >> q % 4 / 2 * 4 & 15) | (top[i] >> q % 4 * 2 & 3) << 4;
            float d = scale * (float)(int8_t)scales[q * 2 + i / 16];

            out[q * 32 + i] = d * (float)(value - 32);
        }
    }
}

/* u8 scales[16] (low four bits; the high four are mins), u8 codes[64], f16 scale, f16 min: two
 * halves of 128 values, each four quarters of 32, whose two bits stand side by side in 32 bytes; a
 * scale is for 16 values */
static void decode_q2_k(const uint8_t *in, float *out)
{
    float scale = load_f16(in + 80), min = load_f16(in + 82);

    for (int q = 0; q < 8; q++) {
        const uint8_t *codes = in + 16 + q / 4 * 32;

        for (int i = 0; i < 32; i++) {
            uint8_t both = in[q * 2 + i / 16];
            float d = scale * (float)(both & 15), m = min * (float)(both >> 4);

            out[q * 32 + i] = d * (float)(codes[i] >> q % 4 * 2 & 3) - m;
        }
    }
}

/* Scale k of Q3_K's sixteen, 6 bits each, from -32 to 31: of the low four bits, eight in the low
 * halves of the first eight bytes and eight in the high ones; the upper two in the last four. */
static int q3_k_scale(const uint8_t packed[12], int k)
{
    int low = k < 8 ? packed[k] & 15 : packed[k - 8] >> 4;

    return (low | (packed[8 + k % 4] >> k / 4 * 2 & 3) << 4) - 32;
}

/* u8 third bits[32], u8 codes[64] as Q2_K's, u8 scales[12], f16 scale: bit q of third byte i
 * belongs to value i of the q-th 32, which is four less where it is 0 */
static void decode_q3_k(const uint8_t *in, float *out)
{
    float scale = load_f16(in + 108);

    for (int q = 0; q < 8; q++) {
        const uint8_t *codes = in + 32 + q / 4 * 32;

        for (int i = 0; i < 32; i++) {
            int value = (codes[i] >> q % 4 * 2 & 3) - (in[i] >> q & 1 ? 0 : 4);

            out[q * 32 + i] = scale * (float)q3_k_scale(in + 96, q * 2 + i / 16) * (float)value;
        }
    }
}

const int8_t dtype_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

/* f16 scale, u8 nibbles[16] as Q4_0's */
static void decode_iq4_nl(const uint8_t *in, float *out)
{
    float scale = load_f16(in);

    for (int i = 0; i < 16; i++) {
        out[i] = scale * (float)dtype_iq4_values[in[2 + i] & 15];
        out[16 + i] = scale * (float)dtype_iq4_values[in[2 + i] >> 4];
    }
}

/* f16 scale, u16 upper bits of scales, u8 lower bits[4], u8 nibbles[128]: eight groups of 32, each
 * as IQ4_NL's, whose scales have two and four bits there, and are 32 less */
static void decode_iq4_xs(const uint8_t *in, float *out)
{
    float scale = load_f16(in);

    for (int g = 0; g < 8; g++) {
        const uint8_t *nibbles = in + 8 + g * 16;
        int low = in[4 + g / 2] >> g % 2 * 4 & 15, high = load_u16(in + 2) >> g * 2 & 3;
        float d = scale * (float)((low | high << 4) - 32);

        for (int i = 0; i < 16; i++) {
            out[g * 32 + i] = d * (float)dtype_iq4_values[nibbles[i] & 15];
            out[g * 32 + 16 + i] = d * (float)dtype_iq4_values[nibbles[i] >> 4];
        }
    }
}

const int8_t dtype_e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* value * 2^(exponent - 128), value at most 12 in magnitude; by its bits, since the threads that
 * compute take subnormal factors for zeros. Code 8 is minus zero to E2M1, but zero to GGUF. */
static float scale_e2m1(int value, int exponent)
{
    uint32_t sign = value < 0 ? 0x80000000 : 0, magnitude = (uint32_t)(value < 0 ? -value : value);
    uint32_t bits = f32_to_bits((float)magnitude);

    if (magnitude == 0)
        return 0.0F;
    if ((int)(bits >> 23) + exponent - 128 < 1) /* 2^-128 is 2^21 of the least subnormals */
        return bits_to_f32(sign | magnitude << (21 + exponent));
    if ((int)(bits >> 23) + exponent - 128 > 254)
        return bits_to_f32(sign | 0x7f800000);
    return bits_to_f32(sign | (bits + ((uint32_t)(exponent - 128) << 23)));
}

/* u8 exponent, u8 nibbles[16] as Q4_0's */
static void decode_mxfp4(const uint8_t *in, float *out)
{
    for (int i = 0; i < 16; i++) {
        out[i] = scale_e2m1(dtype_e2m1_values[in[1 + i] & 15], in[0]);
        out[16 + i] = scale_e2m1(dtype_e2m1_values[in[1 + i] >> 4], in[0]);
    }
}

/* The offset and number of a block's floats: a scale, and a min after it. Each is finite unless all
 * bits of its exponent, which the mask has, are set. */
struct floats {
    size_t at, n;
    uint16_t mask;
};

#define F16_AT(at, n) \
    {                 \
        at, n, 0x7c00 \
    }

struct dtype_format {
    const char *name;
    size_t n_values, size_bytes; /* of a block */
    void (*decode)(const uint8_t *in, float *out);
    struct floats floats; /* of block types but MXFP4 */
};

static const struct dtype_format formats[] = {
    [DTYPE_F32] = {"F32", 1, 4, decode_f32, {0, 0, 0}},
    [DTYPE_F16] = {"F16", 1, 2, decode_f16, {0, 0, 0}},
    [DTYPE_Q4_0] = {"Q4_0", SMALL_VALUES, 18, decode_q4_0, F16_AT(0, 1)},
    [DTYPE_Q4_1] = {"Q4_1", SMALL_VALUES, 20, decode_q4_1, F16_AT(0, 2)},
    [DTYPE_Q5_0] = {"Q5_0", SMALL_VALUES, 22, decode_q5_0, F16_AT(0, 1)},
    [DTYPE_Q5_1] = {"Q5_1", SMALL_VALUES, 24, decode_q5_1, F16_AT(0, 2)},
    [DTYPE_Q8_0] = {"Q8_0", SMALL_VALUES, 34, decode_q8_0, F16_AT(0, 1)},
    [DTYPE_Q2_K] = {"Q2_K", SUPER_VALUES, 84, decode_q2_k, F16_AT(80, 2)},
    [DTYPE_Q3_K] = {"Q3_K", SUPER_VALUES, 110, decode_q3_k, F16_AT(108, 1)},
    [DTYPE_Q4_K] = {"Q4_K", SUPER_VALUES, 144, decode_q4_k, F16_AT(0, 2)},
    [DTYPE_Q5_K] = {"Q5_K", SUPER_VALUES, 176, decode_q5_k, F16_AT(0, 2)},
    [DTYPE_Q6_K] = {"Q6_K", SUPER_VALUES, 210, decode_q6_k, F16_AT(208, 1)},
    [DTYPE_IQ4_NL] = {"IQ4_NL", SMALL_VALUES, 18, decode_iq4_nl, F16_AT(0, 1)},
    [DTYPE_IQ4_XS] = {"IQ4_XS", SUPER_VALUES, 136, decode_iq4_xs, F16_AT(0, 1)},
    [DTYPE_MXFP4] = {"MXFP4", SMALL_VALUES, 17, decode_mxfp4, {0, 0, 0}},
    [DTYPE_BF16] = {"BF16", 1, 2, decode_bf16, {0, 0, 0}},
};

static const struct dtype_format *format_of(enum dtype t)
{
    assert(dtype_name(t) != NULL);
    return &formats[t];
}

const char *dtype_name(enum dtype t)
{
    return (size_t)t < sizeof(formats) / sizeof(formats[0]) ? formats[t].name : NULL;
}

size_t dtype_block_values(enum dtype t)
{
    return format_of(t)->n_values;
}

size_t dtype_block_bytes(enum dtype t)
{
    return format_of(t)->size_bytes;
}

size_t dtype_row_bytes(enum dtype t, size_t n)
{
    const struct dtype_format *f = format_of(t);

    assert(n % f->n_values == 0);
    return n / f->n_values * f->size_bytes;
}

void dtype_decode(enum dtype t, const void *in, size_t n, float *out)
{
    const struct dtype_format *f = format_of(t);
    const uint8_t *from = in;

    assert(n % f->n_values == 0);
    for (size_t i = 0; i < n; i += f->n_values, from += f->size_bytes)
        f->decode(from, out + i);
}

/* Whether n numbers of two bytes are finite; mask: the bits of their exponents. */
static bool shorts_are_finite(const uint8_t *in, size_t n, uint16_t mask)
{
    uint16_t is_broken = 0; /* as wide as the numbers, so that compilers take many at a time */

    for (size_t i = 0; i < n; i++)
        is_broken |= (load_u16(in + i * sizeof(mask)) & mask) == mask;
    return is_broken == 0;
}

static bool f32_are_finite(const uint8_t *in, size_t n)
{
    uint32_t is_broken = 0;

    for (size_t i = 0; i < n; i++)
        is_broken |= (load_u32(in + i * sizeof(is_broken)) & 0x7f800000) == 0x7f800000;
    return is_broken == 0;
}

/* The greatest number is 12 * 2^(exponent - 128): decoded only where that may be infinite. */
static bool mxfp4_are_finite(const uint8_t *in, size_t n)
{
    float out[SMALL_VALUES];
    bool is_broken = false;

    for (size_t i = 0; i < n; i += SMALL_VALUES, in += formats[DTYPE_MXFP4].size_bytes) {
        if (in[0] <= 252)
            continue;
        decode_mxfp4(in, out);
        for (size_t k = 0; k < SMALL_VALUES; k++)
            is_broken |= (f32_to_bits(out[k]) & 0x7f800000) == 0x7f800000;
    }
    return !is_broken;
}

bool dtype_is_finite(enum dtype t, const void *in, size_t n)
{
    const struct dtype_format *f = format_of(t);
    const struct floats floats = f->floats;
    const uint8_t *from = (const uint8_t *)in + floats.at;
    bool is_broken = false;

    assert(n % f->n_values == 0);
    if (t == DTYPE_F32)
        return f32_are_finite(in, n);
    if (t == DTYPE_F16 || t == DTYPE_BF16)
        return shorts_are_finite(in, n, t == DTYPE_F16 ? 0x7c00 : 0x7f80);
    if (t == DTYPE_MXFP4)
        return mxfp4_are_finite(in, n);
    for (size_t i = 0; i < n; i += f->n_values, from += f->size_bytes)
        for (size_t k = 0; k < floats.n; k++)
            is_broken |= (load_u16(from + 2 * k) & floats.mask) == floats.mask;
    return !is_broken;
}
