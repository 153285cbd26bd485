/* V-trace (Espeholt et al., "IMPALA", 2018) over one trajectory: what the values should have been,
 * and how much better than they each action was, for a policy other than the one that acted. With
 * importance weights of 1 these are the n-step returns of A2C, and with lambda generalised
 * advantages. With rho = min(rho_max, w) and c = lambda * min(c_max, w) of a step's importance
 * weight w, d = gamma, or 0 where the episode ended by its own rules:
 *
 *   target(t)    = V(t) + rho * (r + d * V(t+1) - V(t)) + d * c * (target(t+1) - V(t+1))
 *   advantage(t) = rho * (r + d * (lambda * target(t+1) + (1 - lambda) * V(t+1)) - V(t))
 *
 * A step that resets an environment ends the sum: its target is its value, its advantage 0. Its
 * value counts in the step before, unless that ended the episode by its own rules. */
#ifndef AGENTS_POLICY_VTRACE_H
#define AGENTS_POLICY_VTRACE_H

#include <stdbool.h>
#include <stddef.h>

struct vtrace {
    size_t n_steps;
    const float *values;      /* [n_steps + 1] */
    const float *log_weights; /* [n_steps] of importance; NULL: 0 */
    const float *rewards;     /* [n_steps] */
    const bool *terminated;   /* [n_steps] */
    const bool *resets;       /* [n_steps] */
    float gamma, lambda, rho_max, c_max;
};

/* targets, advantages: [n_steps] */
void vtrace_compute(const struct vtrace *v, float *targets, float *advantages);

#endif
