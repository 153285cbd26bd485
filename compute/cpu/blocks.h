/* A group of 32 values of any block-quantised format in one form: unsigned codes with scale and
 * min, both exactly as the file means them. */
#ifndef COMPUTE_CPU_BLOCKS_H
#define COMPUTE_CPU_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/dtype.h"

enum { GROUP_VALUES = 32, HALF_VALUES = 16 };

/* What a group's scale, and its min, are in a panel. */
enum scale_kind {
    SCALE_F16,   /* an f16 */
    SCALE_STEPS, /* i8, to be multiplied with the f16 of 256 values; the product is exact in f32 */
    SCALE_POWER, /* a byte e: 2^(e - 128); below 2^-126 zero, as subnormal numbers are to kernels */
};

/* What numbers codes stand for. */
enum code_kind {
    CODE_LINEAR, /* code - bias */
    CODE_IQ4,    /* dtype_iq4_values, less the bias that kernels add to make them unsigned */
    CODE_E2M1,   /* likewise */
};

/* Value i is scale * block_value(form, code[i]) + min. In formats with scales for 16 values, the
 * second scale and min are those of values 16 … 31; else both are the same. */
struct block_group {
    uint8_t code[GROUP_VALUES];
    uint16_t scale, min; /* f16: of the group or, with steps, of 256 values; or the power */
    int8_t steps[2], min_steps[2];
};

/* The layout of a format's panels (panels.h), which selects its kernels; constants of a format. */
struct block_form {
    int bias;
    unsigned bits; /* of a code: 2, 3, 4, 5, 6 or 8 */
    bool halves;   /* scales for 16 values, else for 32 */
    bool has_min;
    enum scale_kind scale;
    enum code_kind codes;
};

/* The form of each block format, in one list: X(type, the form's fields). */
#define BLOCK_FORMS(X)                                                         \
    X(Q4_0, .bias = 8, .bits = 4)                                              \
    X(Q4_1, .bits = 4, .has_min = true)                                        \
    X(Q5_0, .bias = 16, .bits = 5)                                             \
    X(Q5_1, .bits = 5, .has_min = true)                                        \
    X(Q8_0, .bias = 128, .bits = 8)                                            \
    X(Q4_K, .bits = 4, .has_min = true, .scale = SCALE_STEPS)                  \
    X(Q5_K, .bits = 5, .has_min = true, .scale = SCALE_STEPS)                  \
    X(Q6_K, .bias = 32, .bits = 6, .halves = true, .scale = SCALE_STEPS)       \
    X(Q2_K, .bits = 2, .halves = true, .has_min = true, .scale = SCALE_STEPS)  \
    X(Q3_K, .bias = 4, .bits = 3, .halves = true, .scale = SCALE_STEPS)        \
    X(IQ4_NL, .bias = 128, .bits = 4, .codes = CODE_IQ4)                       \
    X(IQ4_XS, .bias = 128, .bits = 4, .scale = SCALE_STEPS, .codes = CODE_IQ4) \
    X(MXFP4, .bias = 12, .bits = 4, .scale = SCALE_POWER, .codes = CODE_E2M1)

enum {
    SUPER_GROUPS = DTYPE_BLOCK_VALUES_MAX / GROUP_VALUES
}; /* that share the f16 of their steps */

/* False for float formats. */
bool block_form_of(struct block_form *out, enum dtype t);

/* The number that a code stands for. */
int block_value(const struct block_form *form, int code);

#endif
