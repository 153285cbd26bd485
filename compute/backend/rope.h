/* The angles of a rotary embedding. */
#ifndef COMPUTE_BACKEND_ROPE_H
#define COMPUTE_BACKEND_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/real.h"

struct rope {
    size_t n_heads, head_dim;
    float base;          /* 10000, 100000, … */
    const double *scale; /* [pairs] divisors of the frequencies, NULL for none; host memory */
    size_t n_rotated;    /* the first numbers of a head, an even number; 0: all of them */
    bool halves;         /* pairs are (j, j + n_rotated / 2), as in GPT-NeoX; else (2j, 2j + 1) */
    float amplitude;     /* of cosines and sines; 0: 1 */
    size_t n_positions;  /* rows have positions below it, as a rule; 0: unknown */
};

static inline size_t rope_width(const struct rope *r)
{
    return r->n_rotated > 0 ? r->n_rotated : r->head_dim;
}

static inline double rope_amplitude(const struct rope *r)
{
    return r->amplitude > 0.0f ? (double)r->amplitude : 1.0;
}

/* Of pair j, in radians a position. Angles are computed in double: at position 100,000 a float's is
 * off by a thousandth. */
static inline double rope_frequency(const struct rope *r, size_t j)
{
    double frequency = real_pow((double)r->base, -2.0 * (double)j / (double)rope_width(r));

    return r->scale != NULL ? frequency / r->scale[j] : frequency;
}

/* Whether a and b, of any number of heads, turn a pair at a position by the same angle; scale is
 * compared by its contents. */
static inline bool rope_turns_alike(const struct rope *a, const struct rope *b)
{
    if (a->base != b->base || a->head_dim != b->head_dim || rope_width(a) != rope_width(b) ||
        a->halves != b->halves || a->amplitude != b->amplitude ||
        (a->scale == NULL) != (b->scale == NULL))
        return false;
    return a->scale == NULL || a->scale == b->scale ||
           memcmp(a->scale, b->scale, rope_width(a) / 2 * sizeof(*a->scale)) == 0;
}

#endif
