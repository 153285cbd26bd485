/* Optimisers: one step over n numbers. The arithmetic is f32 in the order written here, with no
 * fused multiply-add, so that every backend gives the same bits; the formulas are those of
 * torch.optim. */
#ifndef COMPUTE_NUMERICS_OPTIM_H
#define COMPUTE_NUMERICS_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum optim_kind { OPTIM_SGD, OPTIM_ADAM, OPTIM_ADAMW };

struct optim {
    enum optim_kind kind;
    float momentum, dampening; /* sgd */
    bool nesterov;             /* sgd */
    float weight_decay;
    float beta1, beta2, epsilon; /* adam, adamw */
};

/* Step number step (1, 2, …) with rate lr. p the parameters, g the gradient; m the momentum buffer
 * (sgd with momentum) or the first moment, v the second moment (adam, adamw; else NULL). On the
 * first step of sgd m becomes g. All [n].
 *
 * sgd:   g += wd * p; m = step == 1 ? g : momentum * m + (1 - dampening) * g;
 *        p -= lr * (nesterov ? g + momentum * m : m)
 * adam:  g += wd * p (adamw: p -= lr * wd * p); m = b1 * m + (1 - b1) * g;
 *        v = b2 * v + (1 - b2) * g * g;
 *        p -= lr / (1 - b1^step) * m / (sqrt(v) / sqrt(1 - b2^step) + eps) */
typedef void (*optim_step_fn)(const struct optim *o, uint64_t step, float lr, float *p,
                              const float *g, float *m, float *v, size_t n);

/* The definition. */
void optim_ref_step(const struct optim *o, uint64_t step, float lr, float *p, const float *g,
                    float *m, float *v, size_t n);

#endif
