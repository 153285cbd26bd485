/* An optimiser's step on one number: the definition, shared by the host and a device's kernels.
 * What depends on the step alone is computed in double and rounded once; powers are by repeated
 * squaring, so that the bits do not depend on libm. */
#ifndef COMPUTE_NUMERICS_OPTIM_ROWS_H
#define COMPUTE_NUMERICS_OPTIM_ROWS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "compute/numerics/optim.h"
#include "compute/numerics/scalar.h"

/* Of one step. */
struct optim_rates {
    float lr, weight_decay;
    float momentum, damped; /* sgd */
    uint32_t is_first, is_nesterov, has_momentum;
    float beta1, rest1, beta2, rest2, epsilon; /* adam */
    float rate, root, coupled, decoupled;
};

static inline double optim_power(double base, uint64_t exponent)
{
    double result = 1.0;

    for (; exponent > 0; exponent >>= 1, base *= base)
        if ((exponent & 1) != 0)
            result *= base;
    return result;
}

static inline struct optim_rates optim_rates_of(const struct optim *o, uint64_t step, float lr)
{
    struct optim_rates r;

    memset(&r, 0, sizeof(r));
    r.lr = lr;
    r.weight_decay = o->weight_decay;
    if (o->kind == OPTIM_SGD) {
        r.momentum = o->momentum;
        r.damped = 1.0f - o->dampening;
        r.is_first = step == 1;
        r.is_nesterov = o->nesterov;
        r.has_momentum = o->momentum != 0.0f;
        return r;
    }
    r.beta1 = o->beta1;
    r.rest1 = 1.0f - o->beta1;
    r.beta2 = o->beta2;
    r.rest2 = 1.0f - o->beta2;
    r.epsilon = o->epsilon;
    r.rate = (float)((double)lr / (1.0 - optim_power((double)o->beta1, step)));
    r.root = (float)sqrt(1.0 - optim_power((double)o->beta2, step));
    r.coupled = o->kind == OPTIM_ADAM ? o->weight_decay : 0.0f;
    r.decoupled = o->kind == OPTIM_ADAMW ? lr * o->weight_decay : 0.0f;
    return r;
}

/* m is read only with a momentum. */
SCALAR_FN void optim_sgd_one(const struct optim_rates *r, float g, float *p, float *m)
{
    float d = g + r->weight_decay * *p;

    if (r->has_momentum) {
        *m = r->is_first ? d : r->momentum * *m + r->damped * d;
        d = r->is_nesterov ? d + r->momentum * *m : *m;
    }
    *p -= r->lr * d;
}

SCALAR_FN void optim_adam_one(const struct optim_rates *r, float g, float *p, float *m, float *v)
{
    float d = g + r->coupled * *p;

    *m = r->beta1 * *m + r->rest1 * d;
    *v = r->beta2 * *v + r->rest2 * (d * d);
    *p -= r->decoupled * *p;
    *p -= r->rate * *m / (sqrtf(*v) / r->root + r->epsilon);
}

#endif
