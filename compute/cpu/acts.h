/* The parts of a record of activations that take no vector. */
#ifndef COMPUTE_CPU_ACTS_H
#define COMPUTE_CPU_ACTS_H

#include "compute/cpu/kernels.h"
#include "compute/scalar.h"

struct act_scale {
    float scale, inverse; /* inverse 0: all values are 0, whatever the activations are */
};

/* From the greatest magnitude of a group, as bits, where NaN is above all. */
static inline struct act_scale act_scale_of(uint32_t greatest)
{
    float amax = scalar_from_bits(greatest);
    struct act_scale s = {0};

    if (amax >= 0x1p-100f && amax < 0x1p100f) {
        s.scale = scalar_from_bits((scalar_bits(amax / 127.0f) + 0xff) & ~(uint32_t)0xff);
        s.inverse = 1.0f / s.scale;
    } else if (!(amax < 0x1p-100f)) {
        s.scale = scalar_from_bits(0x7fc00000);
    }
    return s;
}

/* All of a record but its values, of whose halves the sums are given. */
static inline void act_record_finish(struct act_record *r, struct act_form form, float scale,
                                     int32_t sum_low, int32_t sum_high)
{
    r->scale = scale;
    r->back = scale * -ACT_MAGIC;
    if (form.halves) {
        r->start = ACT_START - form.bias * sum_low;
        r->start_upper = ACT_START - form.bias * sum_high;
    } else {
        r->start = ACT_START - form.bias * (sum_low + sum_high);
        r->sum = scale * (float)(sum_low + sum_high);
    }
}

#endif
