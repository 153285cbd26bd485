/* The scale that a group of activations is rounded with: compute/cpu/kernels.h says how. */
#ifndef COMPUTE_NUMERICS_ACTIVATION_SCALE_H
#define COMPUTE_NUMERICS_ACTIVATION_SCALE_H

#include <stdint.h>

#include "compute/numerics/scalar.h"

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

#endif
