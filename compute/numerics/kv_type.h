/* How keys and values are stored in their pages. */
#ifndef COMPUTE_NUMERICS_KV_TYPE_H
#define COMPUTE_NUMERICS_KV_TYPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/numerics/scalar.h"

enum { KV_PAGE_TOKENS = 16 };

/* Each head and position has an f32 beside its numbers: for q8, which are int8, their scale; for
 * the others a value that attention needs. */
enum kv_type { KV_F16, KV_F32, KV_Q8 };

const char *kv_type_name(enum kv_type type); /* "f16", "f32", "q8" */
enum status kv_type_of(enum kv_type *out, const char *name, struct error *err) MUST_CHECK;

/* Bytes of n numbers. */
SCALAR_FN size_t kv_row_bytes(enum kv_type type, size_t n)
{
    return n * (type == KV_F32 ? sizeof(float) : type == KV_F16 ? sizeof(uint16_t) : 1);
}

/* Bytes of one head's key or value at one position. */
SCALAR_FN size_t kv_head_bytes(enum kv_type type, size_t head_dim)
{
    return kv_row_bytes(type, head_dim) + sizeof(float);
}

/* Rounds x [n] to out [n] times the scale that is returned: the greatest magnitude over 127. x is
 * multiplied by its reciprocal and rounded to nearest, even. Magnitudes all below 2^-100 count as
 * 0; where one is infinite, NaN or 2^100 or more, the scale is NaN and out is 0. */
SCALAR_FN float kv_q8_round(const float *x, size_t n, int8_t *out)
{
    const float magic = 12582912.0f; /* adding it rounds: scalar_exp says how */
    uint32_t greatest = 0;           /* as bits NaN is above all */
    float most, inverse;

    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = scalar_bits(x[i]) & 0x7fffffff;

        greatest = magnitude > greatest ? magnitude : greatest;
    }
    most = scalar_from_bits(greatest);
    if (!(most >= 0x1p-100f && most < 0x1p100f)) {
        for (size_t i = 0; i < n; i++)
            out[i] = 0;
        return most < 0x1p-100f ? 0.0f : scalar_from_bits(0x7fc00000);
    }
    inverse = 127.0f / most;
    for (size_t i = 0; i < n; i++)
        out[i] = (int8_t)((x[i] * inverse + magic) - magic);
    return most / 127.0f;
}

#endif
