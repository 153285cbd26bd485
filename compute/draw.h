/* What the drawing of a token is made of: shared by the host's sampler and by the devices that draw
 * themselves, so that both choose the same token to the last bit. */
#ifndef COMPUTE_DRAW_H
#define COMPUTE_DRAW_H

#include <float.h>
#include <math.h>
#include <stddef.h>

/* Weights are summed sixteen lanes wide within a block, and blocks in order in f64. */
enum { DRAW_BLOCK = 1024 };

/* e^((logit - top) / temperature). Below 1e-13 it is 0: all such tokens of a vocabulary together
 * are no chance that 24 random bits could meet. */
static const float draw_least_weight = 1e-13f, draw_least_exponent = -30.0f; /* e^-30 < 1e-13 */

/* 1 / temperature, but finite: the highest has weight 1 at any. */
static inline float draw_scale(float temperature)
{
    return fminf(1.0f / temperature, FLT_MAX);
}

/* Below this weight nothing is among the top_p: if all n were below it, they would hold no more
 * than the part 1 - top_p of the likeliest one alone. So nothing below it need be sorted. */
static inline float draw_top_p_bound(float top_p, size_t n)
{
    return (1.0f - top_p) / (float)n;
}

#endif
