/* How keys and values are kept in their pages. */
#ifndef COMPUTE_KV_TYPE_H
#define COMPUTE_KV_TYPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/scalar.h"

enum { KV_PAGE_TOKENS = 16 };

/* q8: int8, with an f32 scale for each head and position. */
enum kv_type { KV_F16, KV_F32, KV_Q8 };

const char *kv_type_name(enum kv_type type); /* "f16", "f32", "q8" */
enum status kv_type_of(enum kv_type *out, const char *name, struct error *err) MUST_CHECK;

/* Bytes of one head's key or value at one position. */
SCALAR_FN size_t kv_head_bytes(enum kv_type type, size_t head_dim)
{
    switch (type) {
    case KV_F16:
        return head_dim * sizeof(uint16_t);
    case KV_F32:
        return head_dim * sizeof(float);
    default:
        return head_dim + sizeof(float);
    }
}

/* Rounds x [n] to out [n] times the scale that is returned: the greatest magnitude over 127, a
 * product with its reciprocal, to nearest, even. Magnitudes all below 2^-100 count as 0; where one
 * is infinite, NaN or 2^100 or more, the scale is NaN and out is 0. */
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
