/* The optimisers' definition over n numbers (optim_rows.h). */
#include <assert.h>
#include <stddef.h>

#include "compute/numerics/optim.h"
#include "compute/numerics/optim_rows.h"

static void sgd(const struct optim_rates *r, float *restrict p, const float *restrict g,
                float *restrict m, size_t n)
{
    const struct optim_rates own = *r; /* which no p may alias */
    float none = 0.0f;

    for (size_t i = 0; own.has_momentum && i < n; i++)
        optim_sgd_one(&own, g[i], &p[i], &m[i]);
    for (size_t i = 0; !own.has_momentum && i < n; i++)
        optim_sgd_one(&own, g[i], &p[i], &none);
}

static void adam(const struct optim_rates *r, float *restrict p, const float *restrict g,
                 float *restrict m, float *restrict v, size_t n)
{
    const struct optim_rates own = *r;

    for (size_t i = 0; i < n; i++)
        optim_adam_one(&own, g[i], &p[i], &m[i], &v[i]);
}

void optim_ref_step(const struct optim *o, uint64_t step, float lr, float *p, const float *g,
                    float *m, float *v, size_t n)
{
    const struct optim_rates rates = optim_rates_of(o, step, lr);

    assert(step > 0);
    if (o->kind == OPTIM_SGD)
        sgd(&rates, p, g, m, n);
    else
        adam(&rates, p, g, m, v, n);
}
