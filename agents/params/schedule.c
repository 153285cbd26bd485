#include "agents/params/schedule.h"

#include <float.h>
#include <math.h>

#include "base/real.h"

static const double pi = 3.14159265358979323846;

enum status schedule_check(const struct schedule *s, struct error *err)
{
    if (!isfinite(s->rate) || s->rate < 0.0)
        return error_field(err, "learning_rate", "is %g, it must be 0 or more", s->rate);
    if (s->rate > (double)FLT_MAX)
        return error_field(err, "learning_rate", "is %g, which is too large for f32", s->rate);
    if (s->kind == SCHEDULE_STEP) {
        if (s->step_size == 0)
            return error_field(err, "schedule.step_size", "is 0, it must be at least 1");
        if (!isfinite(s->factor) || s->factor < 0.0)
            return error_field(err, "schedule.factor", "is %g, it must be 0 or more", s->factor);
    }
    if (s->kind == SCHEDULE_COSINE) {
        if (s->total <= s->warm_up)
            return error_field(err, "schedule.total", "is %llu, it must be above warm_up (%llu)",
                               (unsigned long long)s->total, (unsigned long long)s->warm_up);
        if (!isfinite(s->minimum) || s->minimum < 0.0)
            return error_field(err, "schedule.minimum", "is %g, it must be 0 or more", s->minimum);
    }
    return STATUS_OK;
}

float schedule_rate(const struct schedule *s, uint64_t round)
{
    uint64_t n, span;
    double at;

    if (round <= s->warm_up)
        return (float)(s->rate * (double)round / (double)s->warm_up);
    n = round - s->warm_up - 1;
    switch (s->kind) {
    case SCHEDULE_STEP:
        return (float)(s->rate * real_pow(s->factor, (double)(n / s->step_size)));
    case SCHEDULE_COSINE:
        span = s->total - s->warm_up;
        at = n < span ? (double)n / (double)span : 1.0;
        return (float)(s->minimum + (s->rate - s->minimum) * (1.0 + real_cos(pi * at)) / 2.0);
    case SCHEDULE_CONSTANT:
        break;
    }
    return (float)s->rate;
}
