#include "compute/verbs/golden_bounds.h"

#include <math.h>
#include <string.h>

static const struct golden_bounds all_bounds[] = {
    {"ref", KV_F32, 1e-3, 0.999, 1e-3, 2e-3, 2e-4},
    {NULL, KV_F16, 0.7, 0.96, 0.01, 2.0, 0.08},
};

const struct golden_bounds *golden_bounds_of(const char *backend)
{
    const struct golden_bounds *b = all_bounds;

    while (b->backend != NULL && strcmp(b->backend, backend) != 0)
        b++;
    return b;
}

bool golden_passages_hold(const struct golden_passages *p, const struct golden_bounds *b)
{
    return p->top1 >= b->min_top1 && fabs(p->ppl_ratio - 1.0) <= b->max_ppl_off &&
           p->max_abs_logprob_diff <= b->max_diff && p->mean_abs_logprob_diff <= b->mean_diff;
}
