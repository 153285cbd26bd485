/* The scale that a group of activations is rounded with: compute/cpu/kernels.h says how. */
#ifndef COMPUTE_NUMERICS_ACTIVATION_SCALE_H
#define COMPUTE_NUMERICS_ACTIVATION_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/numerics/scalar.h"

/* How many times as great as the second greatest of its group an outlier is. Normed rows have
 * theirs in the same few columns, where they cost little, and gain most; in the rows between the
 * products of a gated network they are anywhere. */
SCALAR_FN float activation_outlier_above(bool is_normed)
{
    return is_normed ? 2.0f : 3.0f;
}

struct activation_scale {
    float scale, inverse; /* inverse 0: all values are 0, whatever the activations are */
};

/* From the greatest magnitude of a group, as bits, where NaN is above all. */
SCALAR_FN struct activation_scale activation_scale_of(uint32_t greatest)
{
    float amax = scalar_from_bits(greatest);
    struct activation_scale s = {0.0f, 0.0f};

    if (amax >= 0x1p-100f && amax < 0x1p100f) {
        s.scale = scalar_from_bits((scalar_bits(amax / 127.0f) + 0xff) & ~(uint32_t)0xff);
        s.inverse = 1.0f / s.scale;
    } else if (!(amax < 0x1p-100f)) {
        s.scale = scalar_from_bits(0x7fc00000);
    }
    return s;
}

/* Whether the activation with the greatest magnitude of a group is an outlier, given the second
 * greatest, both as bits; equal magnitudes are both. */
SCALAR_FN bool activation_is_outlier(uint32_t greatest, uint32_t second, float above)
{
    float amax = scalar_from_bits(greatest);

    return amax >= 0x1p-100f && amax < 0x1p100f && amax > above * scalar_from_bits(second);
}

#endif
