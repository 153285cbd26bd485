/* The optimisers' definition. What depends on the step alone is computed in double and rounded
 * once; powers by repeated squaring, so that no libm has a say. */
#include <assert.h>
#include <math.h>

#include "compute/optim.h"

static double power(double base, uint64_t exponent)
{
    double result = 1.0;

    for (; exponent > 0; exponent >>= 1, base *= base)
        if ((exponent & 1) != 0)
            result *= base;
    return result;
}

static void sgd(const struct optim *o, uint64_t step, float lr, float *restrict p,
                const float *restrict g, float *restrict m, size_t n)
{
    const float damped = 1.0f - o->dampening;

    for (size_t i = 0; i < n; i++) {
        float d = g[i] + o->weight_decay * p[i];

        if (m != NULL) {
            m[i] = step == 1 ? d : o->momentum * m[i] + damped * d;
            d = o->nesterov ? d + o->momentum * m[i] : m[i];
        }
        p[i] -= lr * d;
    }
}

static void adam(const struct optim *o, uint64_t step, float lr, float *restrict p,
                 const float *restrict g, float *restrict m, float *restrict v, size_t n)
{
    const float rate = (float)((double)lr / (1.0 - power((double)o->beta1, step)));
    const float root = (float)sqrt(1.0 - power((double)o->beta2, step));
    const float rest1 = 1.0f - o->beta1, rest2 = 1.0f - o->beta2;
    const float coupled = o->kind == OPTIM_ADAM ? o->weight_decay : 0.0f;
    const float decoupled = o->kind == OPTIM_ADAMW ? lr * o->weight_decay : 0.0f;

    for (size_t i = 0; i < n; i++) {
        float d = g[i] + coupled * p[i];

        m[i] = o->beta1 * m[i] + rest1 * d;
        v[i] = o->beta2 * v[i] + rest2 * (d * d);
        p[i] -= decoupled * p[i];
        p[i] -= rate * m[i] / (sqrtf(v[i]) / root + o->epsilon);
    }
}

void optim_ref_step(const struct optim *o, uint64_t step, float lr, float *p, const float *g,
                    float *m, float *v, size_t n)
{
    assert(step > 0);
    if (o->kind == OPTIM_SGD)
        sgd(o, step, lr, p, g, o->momentum != 0.0f ? m : NULL, n);
    else
        adam(o, step, lr, p, g, m, v, n);
}
