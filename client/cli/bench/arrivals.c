#include "client/cli/bench/arrivals.h"

#include <math.h>

#include "base/counter_rng.h"

/* When the integral of the rate reaches n: the inverse of rate·t + (last_rate - rate)·t²/(2·ramp_s)
 * on the ramp, and of a line behind it. */
static double time_of(const struct arrivals_plan *p, double n)
{
    double slope, on_ramp;

    if (p->ramp_s <= 0)
        return n / p->rate;
    on_ramp = (p->rate + p->last_rate) / 2 * p->ramp_s;
    if (n >= on_ramp)
        return p->ramp_s + (n - on_ramp) / p->last_rate;
    slope = (p->last_rate - p->rate) / p->ramp_s;
    /* the quadratic formula in the form that is exact for a slope near 0 */
    return 2 * n / (p->rate + sqrt(fmax(p->rate * p->rate + 2 * slope * n, 0.0)));
}

/* Between two bursts, in units of the mean. */
static double gap(const struct arrivals *a)
{
    float u;

    if (a->plan->is_constant)
        return 1.0;
    u = counter_rng_uniform(a->plan->seed, a->plan->stream, a->n, UINT32_MAX);
    return -log1p(-(double)u);
}

bool arrivals_are_given(const struct arrivals_plan *plan)
{
    return plan->rate > 0 || plan->times_s != NULL;
}

/* The nth of the given times; behind the last one they begin anew, at once. */
static double given_time(const struct arrivals_plan *p, uint32_t n)
{
    return p->times_s[p->n_times - 1] * (n / p->n_times) + p->times_s[n % p->n_times];
}

void arrivals_init(struct arrivals *a, const struct arrivals_plan *plan)
{
    *a = (struct arrivals){.plan = plan};
}

double arrivals_take(struct arrivals *a)
{
    double at_s = a->at_s;

    a->n++;
    if (a->plan->times_s != NULL) {
        a->at_s = given_time(a->plan, a->n);
    } else if (a->n % a->plan->burst == 0) {
        a->n_planned += gap(a) * a->plan->burst;
        a->at_s = time_of(a->plan, a->n_planned);
    }
    return at_s;
}
