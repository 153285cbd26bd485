/* A group of 32 values of any block-quantised format in one form: unsigned codes with scale and
 * min, both exactly as the file means them. */
#ifndef COMPUTE_CPU_BLOCKS_H
#define COMPUTE_CPU_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/dtype.h"

enum { GROUP_VALUES = 32, HALF_VALUES = 16 };

/* Value i is scale[i / 16] * (code[i] - the format's bias) + min; the two scales are the same but
 * in formats with scales for 16. The scales of a format with f16 scales are given as such too. */
struct block_group {
    uint8_t code[GROUP_VALUES];
    float scale[2], min;
    uint16_t scale_f16, min_f16;
};

/* The layout of a format's panels (panels.h), which selects its kernels; constants of a format. */
struct block_form {
    int bias;
    bool nibbles; /* codes below 16, kept two to a byte */
    bool halves;  /* scales for 16 values, else for 32 */
    bool wide;    /* f32 scales, else f16 */
    bool has_min;
};

/* False for float formats. */
bool block_form_of(struct block_form *out, enum dtype t);

/* Group g of a row that begins at `row`. */
void block_group_read(struct block_group *out, enum dtype t, const void *row, size_t g);

#endif
