/* One step of the optimiser from many gradients, in one pass: numbers are read once, and reduced,
 * stepped and checksummed block by block while they are in the cache. The order of the gradients
 * fixes the order of additions, so the bits do not depend on the order of arrival. */
#ifndef AGENTS_PARAMS_PASS_H
#define AGENTS_PARAMS_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/params/snapshot.h"
#include "compute/numerics/optim.h"

/* Gradients that count as one: they are reduced among themselves first. */
struct params_group {
    float *const *gradients; /* [n_gradients][n] */
    size_t n_gradients;
};

struct params_pass {
    const struct optim *optim;
    optim_step_fn step;
    uint64_t round; /* 1, 2, … */
    float rate;
    bool is_sum;                       /* else the mean, in a group and of the groups */
    const struct params_group *groups; /* [n_groups] */
    size_t n_groups;
    const float *values; /* [n] before the step */
    float *m, *v;        /* [n] the optimiser's moments; NULL for those it does not have */
};

/* Writes out->values, which may be one of the gradients, and out's checksums. */
void params_pass_run(const struct params_pass *pass, struct snapshot *out, struct sha256 *sha);

#endif
