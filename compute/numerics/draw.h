/* The arithmetic of drawing a token, shared by the host's sampler and by the devices that draw
 * themselves, so that both choose the same token. */
#ifndef COMPUTE_NUMERICS_DRAW_H
#define COMPUTE_NUMERICS_DRAW_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/scalar.h"

/* How a token is drawn from a row of logits: by the rules of agents/lm/sampling/sampler.h, without
 * its penalties and biases. */
struct draw {
    uint32_t row;            /* of the logits */
    uint32_t turn, position; /* with the seed, the key of counter_rng_uniform's draw 0 */
    uint32_t top_k;          /* 0: all */
    uint64_t seed;
    float temperature, top_p, min_p; /* temperature 0: the highest, the lowest id among equals */
    bool bans_ends;                  /* none of the list's ends is drawn */
    bool wants_sum;
};

struct draw_list {
    const struct draw *draws; /* [n] host memory, until the next sync */
    size_t n;
    const int32_t *ends; /* [n_ends] host memory, as long as the backend lives */
    size_t n_ends;
};

/* id < 0: not drawn, because the device cannot, or because the logits are not finite or all are
 * banned: the caller then draws from the row's logits. */
struct drawn {
    int32_t id;
    float logit, top; /* the model's own: of id, and the highest */
    double sum; /* where wanted: of e^(logit - top) over the row, as logits_log_sum adds them up */
};

/* Weights are summed sixteen lanes wide within a block, and blocks in order in f64. */
enum { DRAW_BLOCK = 1024 };

/* e^((logit - top) / temperature). Below 1e-13 it is 0: all such tokens of a vocabulary together
 * are less probable than the resolution of 24 random bits. */
static const float draw_least_weight = 1e-13f, draw_least_exponent = -30.0f; /* e^-30 < 1e-13 */

/* 1 / temperature, but finite: the highest has weight 1 at any. */
SCALAR_FN float draw_scale(float temperature)
{
    return fminf(1.0f / temperature, FLT_MAX);
}

/* No token below this weight is among the top_p: even n of them together weigh no more than 1 -
 * top_p of the likeliest one. So they need not be sorted. */
SCALAR_FN float draw_top_p_bound(float top_p, size_t n)
{
    return (1.0f - top_p) / (float)n;
}

#endif
