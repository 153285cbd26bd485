/* One step of the optimiser from many gradients, in one pass. All numbers are read once: each block
 * of them is reduced, stepped and checksummed while it is in the cache. The order of the gradients
 * fixes the order of the additions, so the bits do not depend on the order of arrival. */
#ifndef AGENTS_PARAMS_PASS_H
#define AGENTS_PARAMS_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/params/snapshot.h"
#include "compute/numerics/optim.h"

/* Numbers [first] to [end - 1], and which step of theirs this is; 0: they are left as they are,
 * with their moments. */
struct params_range {
    size_t first, end;
    uint64_t step;
};

/* Gradients that count as one: they are reduced to one gradient first. */
struct params_group {
    float *const *gradients; /* [n_gradients][n] */
    size_t n_gradients;
};

struct params_pass {
    const struct optim *optim;
    optim_step_fn step; /* the optimiser's step over some of the numbers */
    uint64_t round;     /* 1, 2, …; the step of all numbers that no range has */
    float rate;         /* learning rate of this round */
    bool is_sum;        /* gradients are added; else averaged, both in a group and over groups */
    const struct params_group *groups; /* [n_groups], at least one */
    size_t n_groups;
    const float *values; /* [n] the parameters before the step */
    float *m, *v;        /* [n] the optimiser's moments, updated; NULL: it does not have them */
    const struct params_range *ranges; /* [n_ranges] in order */
    size_t n_ranges;
};

/* Runs the pass: writes out->values (which may be one of the gradients) and out's checksums. sha is
 * scratch, begun and ended inside. */
void params_pass_run(const struct params_pass *pass, struct snapshot *out, struct sha256 *sha);

/* A step of a set that follows another, as a target network does: out's numbers are values [n]
 * moved by tau (0 to 1) towards `to` [n], value + tau * (to - value); those of `to` at tau 1.
 * Writes out->values and out's checksums, as params_pass_run. */
void params_pass_follow(const float *values, const float *to, float tau, struct snapshot *out,
                        struct sha256 *sha);

#endif
