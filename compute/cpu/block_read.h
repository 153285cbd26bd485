/* Groups of any block format, from the bytes of a file. All is inlined, with the type as a constant
 * where it is called: a packed weight then costs a few instructions for eight codes. */
#ifndef COMPUTE_CPU_BLOCK_READ_H
#define COMPUTE_CPU_BLOCK_READ_H

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "compute/cpu/blocks.h"

#define BLOCK_INLINE static inline __attribute__((always_inline))

#define BLOCK_F16_SIGN 0x8000
#define BLOCK_EACH_BYTE UINT64_C(0x0101010101010101)

BLOCK_INLINE uint16_t block_u16(const uint8_t *in)
{
    return (uint16_t)(in[0] | in[1] << 8);
}

/* n codes: code |= (in >> shift & mask) << to. Eight at a time: the mask removes what comes over
 * from the neighbour. */
BLOCK_INLINE void block_add_bits(uint8_t *code, const uint8_t *in, size_t n, size_t shift,
                                 uint64_t mask, unsigned to)
{
    uint64_t from, codes;

    for (size_t i = 0; i < n; i += sizeof(from)) {
        memcpy(&from, in + i, sizeof(from));
        memcpy(&codes, code + i, sizeof(codes));
        codes |= (from >> shift & mask * BLOCK_EACH_BYTE) << to;
        memcpy(code + i, &codes, sizeof(codes));
    }
}

BLOCK_INLINE void block_read_nibbles(uint8_t code[GROUP_VALUES], const uint8_t *in)
{
    block_add_bits(code, in, HALF_VALUES, 0, 15, 0);
    block_add_bits(code + HALF_VALUES, in, HALF_VALUES, 4, 15, 0);
}

/* Bit i of the four bytes is the fifth of code i. Each byte is copied to the places of its eight
 * codes, where all but one bit is removed; adding 127 moves any bit to the top. */
BLOCK_INLINE void block_add_fifth(uint8_t code[GROUP_VALUES], const uint8_t *in)
{
    for (size_t i = 0; i < GROUP_VALUES; i += 8) {
        uint64_t bits = in[i / 8] * BLOCK_EACH_BYTE & UINT64_C(0x8040201008040201);

        bits = htole64((bits + 127 * BLOCK_EACH_BYTE) >> 7 & BLOCK_EACH_BYTE);
        block_add_bits(code + i, (const uint8_t *)&bits, sizeof(bits), 0, 1, 4);
    }
}

/* The scale and min, six bits each, of group g in the twelve bytes of a K block. The file subtracts
 * its min. */
BLOCK_INLINE void block_read_k_scales(struct block_group *out, const uint8_t *block, size_t g)
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
    out->scale = block_u16(block);
    out->min = block_u16(block + 2) ^ BLOCK_F16_SIGN;
    out->steps[0] = out->steps[1] = (int8_t)scale;
    out->min_steps[0] = out->min_steps[1] = (int8_t)min;
}

BLOCK_INLINE void block_read_q4_k(struct block_group *out, const uint8_t *block, size_t g)
{
    block_read_k_scales(out, block, g);
    block_add_bits(out->code, block + 16 + g / 2 * 32, GROUP_VALUES, g % 2 * 4, 15, 0);
}

BLOCK_INLINE void block_read_q5_k(struct block_group *out, const uint8_t *block, size_t g)
{
    block_read_k_scales(out, block, g);
    block_add_bits(out->code, block + 48 + g / 2 * 32, GROUP_VALUES, g % 2 * 4, 15, 0);
    block_add_bits(out->code, block + 16, GROUP_VALUES, g, 1, 4);
}

BLOCK_INLINE void block_read_q6_k(struct block_group *out, const uint8_t *block, size_t g)
{
    const uint8_t *nibbles = block + g / 4 * 64 + g % 2 * 32, *top = block + 128 + g / 4 * 32;

    out->scale = block_u16(block + 208);
    block_add_bits(out->code, nibbles, GROUP_VALUES, g % 4 / 2 * 4, 15, 0);
    block_add_bits(out->code, top, GROUP_VALUES, g % 4 * 2, 3, 4);
    for (size_t h = 0; h < 2; h++)
        out->steps[h] = (int8_t)block[192 + g * 2 + h];
}

BLOCK_INLINE void block_read_q2_k(struct block_group *out, const uint8_t *block, size_t g)
{
    out->scale = block_u16(block + 80);
    out->min = block_u16(block + 82) ^ BLOCK_F16_SIGN; /* the file subtracts it */
    for (size_t h = 0; h < 2; h++) {
        out->steps[h] = (int8_t)(block[g * 2 + h] & 15);
        out->min_steps[h] = (int8_t)(block[g * 2 + h] >> 4);
    }
    block_add_bits(out->code, block + 16 + g / 4 * 32, GROUP_VALUES, g % 4 * 2, 3, 0);
}

BLOCK_INLINE void block_read_q3_k(struct block_group *out, const uint8_t *block, size_t g)
{
    const uint8_t *packed = block + 96;

    out->scale = block_u16(block + 108);
    for (size_t h = 0; h < 2; h++) {
        size_t k = g * 2 + h;
        int low = k < 8 ? packed[k] & 15 : packed[k - 8] >> 4;

        out->steps[h] = (int8_t)((low | (packed[8 + k % 4] >> k / 4 * 2 & 3) << 4) - 32);
    }
    block_add_bits(out->code, block + 32 + g / 4 * 32, GROUP_VALUES, g % 4 * 2, 3, 0);
    block_add_bits(out->code, block, GROUP_VALUES, g, 1, 2);
}

BLOCK_INLINE void block_read_iq4_xs(struct block_group *out, const uint8_t *block, size_t g)
{
    int low = block[4 + g / 2] >> g % 2 * 4 & 15, high = block_u16(block + 2) >> g * 2 & 3;

    out->scale = block_u16(block);
    out->steps[0] = out->steps[1] = (int8_t)((low | high << 4) - 32);
    block_read_nibbles(out->code, block + 8 + g * 16);
}

/* Group g of the block's. */
BLOCK_INLINE void block_group_read(struct block_group *out, enum dtype t, const uint8_t *block,
                                   size_t g)
{
    *out = (struct block_group){0};
    switch (t) {
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL:
        out->scale = block_u16(block);
        block_read_nibbles(out->code, block + 2);
        return;
    case DTYPE_Q4_1:
        out->scale = block_u16(block);
        out->min = block_u16(block + 2);
        block_read_nibbles(out->code, block + 4);
        return;
    case DTYPE_Q5_0:
        out->scale = block_u16(block);
        block_read_nibbles(out->code, block + 6);
        block_add_fifth(out->code, block + 2);
        return;
    case DTYPE_Q5_1:
        out->scale = block_u16(block);
        out->min = block_u16(block + 2);
        block_read_nibbles(out->code, block + 8);
        block_add_fifth(out->code, block + 4);
        return;
    case DTYPE_Q8_0: /* the bytes lose their sign */
        out->scale = block_u16(block);
        block_add_bits(out->code, block + 2, GROUP_VALUES, 0, 0xff, 0);
        for (size_t i = 0; i < GROUP_VALUES; i++)
            out->code[i] ^= 0x80;
        return;
    case DTYPE_Q4_K:
        block_read_q4_k(out, block, g);
        return;
    case DTYPE_Q5_K:
        block_read_q5_k(out, block, g);
        return;
    case DTYPE_Q6_K:
        block_read_q6_k(out, block, g);
        return;
    case DTYPE_Q2_K:
        block_read_q2_k(out, block, g);
        return;
    case DTYPE_Q3_K:
        block_read_q3_k(out, block, g);
        return;
    case DTYPE_IQ4_XS:
        block_read_iq4_xs(out, block, g);
        return;
    case DTYPE_MXFP4:
        out->scale = block[0];
        block_read_nibbles(out->code, block + 1);
        return;
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16:
        break;
    }
    assert(false); /* a float type */
}

#endif
