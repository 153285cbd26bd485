/* Reproducible numbers and weights for tests of kernels, and the comparison of two results. */
#ifndef TESTS_SUPPORT_NUMBERS_H
#define TESTS_SUPPORT_NUMBERS_H

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/numerics/dtype.h"

/* A small generator of our own, so that the numbers are the same on all machines. */
static uint32_t numbers_state;

static inline uint32_t next_bits(void)
{
    numbers_state = numbers_state * 1664525u + 1013904223u;
    return numbers_state >> 8;
}

static inline float next_float(void) /* in -1 … 1 */
{
    return (float)next_bits() / 8388608.0f - 1.0f;
}

static inline void fill(float *x, size_t n, uint32_t seed)
{
    numbers_state = seed;
    for (size_t i = 0; i < n; i++)
        x[i] = next_float();
}

/* Rows with outliers: in some groups of 32 numbers one is far greater than the others, in most rows
 * the same, and in one group two are. */
static inline void fill_spiked(float *x, size_t n_rows, size_t width, uint32_t seed)
{
    fill(x, n_rows * width, seed);
    for (size_t r = 0; r < n_rows; r++) {
        float *row = x + r * width;

        for (size_t g = 0; g < width / 32; g++)
            if (g % 3 == 0 && (r + g) % 5 != 0)
                row[g * 32 + g * 7 % 32] = next_float() * 60.0f;
            else if (g % 3 == 1 && (r + g) % 4 == 0)
                row[g * 32 + next_bits() % 32] = next_float() * 9.0f;
        row[32 * (width / 64) + 5] = 30.0f;
        row[32 * (width / 64) + 20] = -30.0f;
    }
}

static inline void assert_same_bits(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof(*a)) != 0)
            ck_abort_msg("value %zu of %zu: %.9g is not %.9g", i, n, (double)a[i], (double)b[i]);
}

/* tolerance: as a share of want's largest magnitude */
static inline void assert_near(const float *got, const float *want, size_t n, float tolerance)
{
    float largest = 0.0f;

    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= tolerance * largest))
            ck_abort_msg("value %zu of %zu: %.9g is not near %.9g", i, n, (double)got[i],
                         (double)want[i]);
}

/* A matrix of any type, of random bytes with sane scales. The caller frees the data. */
static inline struct tensor random_tensor(enum dtype type, size_t n_rows, size_t n_cols,
                                          uint32_t seed)
{
    static const size_t scale_at[][2] = {
        [DTYPE_Q4_0] = {0, 0},     [DTYPE_Q4_1] = {0, 2},     [DTYPE_Q5_0] = {0, 0},
        [DTYPE_Q5_1] = {0, 2},     [DTYPE_Q8_0] = {0, 0},     [DTYPE_Q4_K] = {0, 2},
        [DTYPE_Q5_K] = {0, 2},     [DTYPE_Q6_K] = {208, 208}, [DTYPE_Q2_K] = {80, 82},
        [DTYPE_Q3_K] = {108, 108}, [DTYPE_IQ4_NL] = {0, 0},   [DTYPE_IQ4_XS] = {0, 0}};
    size_t size_bytes = n_rows * dtype_row_bytes(type, n_cols);
    size_t block_bytes = dtype_block_bytes(type);
    uint8_t *data = xalloc(size_bytes);

    numbers_state = seed;
    for (size_t i = 0; i < size_bytes; i++)
        data[i] = (uint8_t)next_bits();
    for (size_t i = 0; i < size_bytes; i += block_bytes) {
        float x = next_float();
        uint16_t half = f32_to_f16(x), brain;
        uint32_t bits;

        memcpy(&bits, &x, sizeof(bits));
        brain = (uint16_t)(bits >> 16);
        if (type == DTYPE_F32)
            memcpy(data + i, &x, sizeof(x));
        else if (type == DTYPE_F16 || type == DTYPE_BF16)
            memcpy(data + i, type == DTYPE_F16 ? &half : &brain, sizeof(half));
        else if (type == DTYPE_MXFP4)
            data[i] = (uint8_t)(112 + data[i] % 8);
        else
            for (size_t j = 0; j < 2; j++) {
                half = f32_to_f16(next_float() / 64.0f);
                memcpy(data + i + scale_at[type][j], &half, sizeof(half));
            }
    }
    return (struct tensor){.name = "random",
                           .type = type,
                           .n_rows = n_rows,
                           .n_cols = n_cols,
                           .data = data,
                           .size_bytes = size_bytes};
}

#endif
