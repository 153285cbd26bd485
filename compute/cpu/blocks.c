#include "compute/cpu/blocks.h"

#include <assert.h>
#include <string.h>

static const struct block_form forms[] = {
    [DTYPE_Q4_0] = {.bias = 8, .bits = 4},
    [DTYPE_Q4_1] = {.bits = 4, .has_min = true},
    [DTYPE_Q5_0] = {.bias = 16, .bits = 5},
    [DTYPE_Q5_1] = {.bits = 5, .has_min = true},
    [DTYPE_Q8_0] = {.bias = 128, .bits = 8},
    [DTYPE_Q4_K] = {.bits = 4, .has_min = true, .scale = SCALE_STEPS},
    [DTYPE_Q5_K] = {.bits = 5, .has_min = true, .scale = SCALE_STEPS},
    [DTYPE_Q6_K] = {.bias = 32, .bits = 6, .halves = true, .scale = SCALE_STEPS},
    [DTYPE_Q2_K] = {.bits = 2, .halves = true, .has_min = true, .scale = SCALE_STEPS},
    [DTYPE_Q3_K] = {.bias = 4, .bits = 3, .halves = true, .scale = SCALE_STEPS},
    [DTYPE_IQ4_NL] = {.bias = 128, .bits = 4, .codes = CODE_IQ4},
    [DTYPE_IQ4_XS] = {.bias = 128, .bits = 4, .scale = SCALE_STEPS, .codes = CODE_IQ4},
    [DTYPE_MXFP4] = {.bias = 12, .bits = 4, .scale = SCALE_POWER, .codes = CODE_E2M1},
};

bool block_form_of(struct block_form *out, enum dtype t)
{
    if (t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16)
        return false;
    assert((size_t)t < sizeof(forms) / sizeof(forms[0]));
    *out = forms[t];
    return true;
}

enum { F16_SIGN = 0x8000 };

static uint16_t read_u16(const uint8_t *in)
{
    return (uint16_t)(in[0] | in[1] << 8);
}

static void read_nibbles(uint8_t code[GROUP_VALUES], const uint8_t *in)
{
    for (int i = 0; i < 16; i++) {
        code[i] = in[i] & 15;
        code[16 + i] = in[i] >> 4;
    }
}

/* bit i of the four bytes is the fifth of code i */
static void add_fifth(uint8_t code[GROUP_VALUES], const uint8_t *in)
{
    for (int i = 0; i < GROUP_VALUES; i++)
        code[i] |= (uint8_t)((in[i / 8] >> i % 8 & 1) << 4);
}

/* The scale and min, six bits each, of group g in the twelve bytes of a K block. The file subtracts
 * its min. */
static void set_k_scales(struct block_group *out, const uint8_t *block, size_t g)
{
    const uint8_t *packed = block + 4;
    int scale, min;

    if (g < 4) {
        scale = packed[g] & 63;
        min = packed[g + 4] & 63;
    } else {
        scale = (packed[g + 4] & 15) | (packed[g - 4] >> 6) << 4;
        min = packed[g + 4] >> 4 | (packed[g] >> 6) << 4;
    }
    out->scale = read_u16(block);
    out->min = read_u16(block + 2) ^ F16_SIGN;
    out->steps[0] = out->steps[1] = (int8_t)scale;
    out->min_steps[0] = out->min_steps[1] = (int8_t)min;
}

static void read_q4_k(struct block_group *out, const uint8_t *block, size_t g)
{
    const uint8_t *nibbles = block + 16 + g / 2 * 32;

    set_k_scales(out, block, g);
    for (int i = 0; i < GROUP_VALUES; i++)
        out->code[i] = nibbles[i] >> g % 2 * 4 & 15;
}

static void read_q5_k(struct block_group *out, const uint8_t *block, size_t g)
{
    const uint8_t *fifth = block + 16, *nibbles = block + 48 + g / 2 * 32;

    set_k_scales(out, block, g);
    for (int i = 0; i < GROUP_VALUES; i++)
        out->code[i] = (uint8_t)((nibbles[i] >> g % 2 * 4 & 15) | (fifth[i] >> g & 1) << 4);
}

static void read_q6_k(struct block_group *out, const uint8_t *block, size_t g)
{
    const uint8_t *nibbles = block + g / 4 * 64 + g % 2 * 32, *top = block + 128 + g / 4 * 32;
    const uint8_t *scales = block + 192;

    out->scale = read_u16(block + 208);
    for (int i = 0; i < GROUP_VALUES; i++)
        out->code[i] =
            (uint8_t)((nibbles[i] >> g % 4 / 2 * 4 & 15) | (top[i] >> g % 4 * 2 & 3) << 4);
    for (int h = 0; h < 2; h++)
        out->steps[h] = (int8_t)scales[g * 2 + h];
}

/* Two bits of each code, of the 32 bytes that four groups share. */
static void read_two_bits(uint8_t code[GROUP_VALUES], const uint8_t *codes, size_t g)
{
    for (int i = 0; i < GROUP_VALUES; i++)
        code[i] = codes[g / 4 * 32 + (size_t)i] >> g % 4 * 2 & 3;
}

static void read_q2_k(struct block_group *out, const uint8_t *block, size_t g)
{
    out->scale = read_u16(block + 80);
    out->min = read_u16(block + 82) ^ F16_SIGN; /* the file subtracts it */
    for (size_t h = 0; h < 2; h++) {
        out->steps[h] = (int8_t)(block[g * 2 + h] & 15);
        out->min_steps[h] = (int8_t)(block[g * 2 + h] >> 4);
    }
    read_two_bits(out->code, block + 16, g);
}

static void read_q3_k(struct block_group *out, const uint8_t *block, size_t g)
{
    const uint8_t *packed = block + 96;

    out->scale = read_u16(block + 108);
    for (size_t h = 0; h < 2; h++) {
        size_t k = g * 2 + h;
        int low = k < 8 ? packed[k] & 15 : packed[k - 8] >> 4;

        out->steps[h] = (int8_t)((low | (packed[8 + k % 4] >> k / 4 * 2 & 3) << 4) - 32);
    }
    read_two_bits(out->code, block + 32, g);
    for (int i = 0; i < GROUP_VALUES; i++)
        out->code[i] |= (uint8_t)((block[i] >> g & 1) << 2);
}

static void read_iq4_xs(struct block_group *out, const uint8_t *block, size_t g)
{
    int low = block[4 + g / 2] >> g % 2 * 4 & 15, high = read_u16(block + 2) >> g * 2 & 3;

    out->scale = read_u16(block);
    out->steps[0] = out->steps[1] = (int8_t)((low | high << 4) - 32);
    read_nibbles(out->code, block + 8 + g * 16);
}

int block_value(const struct block_form *form, int code)
{
    return form->codes == CODE_IQ4    ? dtype_iq4_values[code]
           : form->codes == CODE_E2M1 ? dtype_e2m1_values[code]
                                      : code - form->bias;
}

void block_group_read(struct block_group *out, enum dtype t, const void *row, size_t g)
{
    size_t n_groups = dtype_block_values(t) / GROUP_VALUES; /* of a block */
    const uint8_t *block = (const uint8_t *)row + g / n_groups * dtype_block_bytes(t);

    memset(out, 0, sizeof(*out));
    switch (t) {
    case DTYPE_Q4_0:
        out->scale = read_u16(block);
        read_nibbles(out->code, block + 2);
        return;
    case DTYPE_Q4_1:
        out->scale = read_u16(block);
        out->min = read_u16(block + 2);
        read_nibbles(out->code, block + 4);
        return;
    case DTYPE_Q5_0:
        out->scale = read_u16(block);
        read_nibbles(out->code, block + 6);
        add_fifth(out->code, block + 2);
        return;
    case DTYPE_Q5_1:
        out->scale = read_u16(block);
        out->min = read_u16(block + 2);
        read_nibbles(out->code, block + 8);
        add_fifth(out->code, block + 4);
        return;
    case DTYPE_Q8_0:
        out->scale = read_u16(block);
        for (int i = 0; i < GROUP_VALUES; i++)
            out->code[i] = block[2 + i] ^ 0x80;
        return;
    case DTYPE_Q4_K:
        read_q4_k(out, block, g % n_groups);
        return;
    case DTYPE_Q5_K:
        read_q5_k(out, block, g % n_groups);
        return;
    case DTYPE_Q6_K:
        read_q6_k(out, block, g % n_groups);
        return;
    case DTYPE_Q2_K:
        read_q2_k(out, block, g % n_groups);
        return;
    case DTYPE_Q3_K:
        read_q3_k(out, block, g % n_groups);
        return;
    case DTYPE_IQ4_NL:
        out->scale = read_u16(block);
        read_nibbles(out->code, block + 2);
        return;
    case DTYPE_IQ4_XS:
        read_iq4_xs(out, block, g % n_groups);
        return;
    case DTYPE_MXFP4:
        out->scale = block[0];
        read_nibbles(out->code, block + 1);
        return;
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16:
        break;
    }
    assert(false); /* a float type */
}
