/* The scalar parts of an activation record. */
#ifndef COMPUTE_CPU_ACTS_H
#define COMPUTE_CPU_ACTS_H

#include "compute/cpu/kernels.h"
#include "compute/numerics/activation_scale.h"

/* Fills all of a record but its values, given the sums of their halves. */
static inline void act_record_finish(struct act_record *r, struct act_form form, float scale,
                                     int32_t sum_low, int32_t sum_high)
{
    r->scale = scale;
    r->back = scale * -ACT_MAGIC;
    if (form.halves && form.bias == 0) {
        r->sum = scale * (float)sum_low;
        r->sum_upper = scale * (float)sum_high;
    } else if (form.halves) {
        r->start = ACT_START - form.bias * sum_low;
        r->start_upper = ACT_START - form.bias * sum_high;
    } else {
        r->start = ACT_START - form.bias * (sum_low + sum_high);
        r->sum = scale * (float)(sum_low + sum_high);
    }
}

/* Puts down where row r's group g, whose values are `in`, has its outlier, or ACT_NONE. */
static inline void act_outlier_put(const struct act_slice *s, size_t r, size_t g, const float *in,
                                   size_t place)
{
    s->places[g * s->step + r] = (uint8_t)place;
    s->outliers[r * s->outlier_stride + g].value = in[place % GROUP_VALUES];
}

#endif
