/* How numbers are stored in a weight file: GGUF's types, their blocks, and how they are decoded. */
#ifndef COMPUTE_NUMERICS_DTYPE_H
#define COMPUTE_NUMERICS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The values are GGUF's (ggml_type). */
enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_IQ4_NL = 20,
    DTYPE_IQ4_XS = 23,
    DTYPE_BF16 = 30,
    DTYPE_MXFP4 = 39,
};

enum { DTYPE_BLOCK_VALUES_MAX = 256 };

/* NULL for a type we do not read. */
const char *dtype_name(enum dtype t);

/* Values in a block (1, 32 or 256) and its bytes. Asserts that the type is one of ours. */
size_t dtype_block_values(enum dtype t);
size_t dtype_block_bytes(enum dtype t);

/* Bytes of a row of n values; n is a multiple of the block's. */
size_t dtype_row_bytes(enum dtype t, size_t n);

/* Decodes n values (whole blocks). This is the definition of what each format means. */
void dtype_decode(enum dtype t, const void *in, size_t n, float *out);

/* Whether n values (whole blocks) are all finite: looks at floats and scales, and decodes nothing.
 */
bool dtype_is_finite(enum dtype t, const void *in, size_t n);

/* The integers that the codes of two formats stand for: of IQ4_NL and IQ4_XS, and of MXFP4 (twice
 * the numbers of E2M1). */
extern const int8_t dtype_iq4_values[16];
extern const int8_t dtype_e2m1_values[16];

/* IEEE half and bfloat16, round to nearest even; no flag, no table. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);

#endif
