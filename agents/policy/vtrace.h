/* V-trace (Espeholt et al., "IMPALA", 2018) over one trajectory: targets for the values, and the
 * advantages of the actions, for a policy other than the one that acted. With importance weights of
 * 1 the targets are the n-step returns of A2C; with lambda below 1 the advantages are generalised
 * advantages (GAE). For a step with importance weight w let rho = min(rho_max, w) and c = lambda *
 * min(c_max, w); let d = gamma, or 0 if the episode ended there by its own rules. Then
 *
 *   target(t)    = V(t) + rho * (r + d * V(t+1) - V(t)) + d * c * (target(t+1) - V(t+1))
 *   advantage(t) = rho * (r + d * (lambda * target(t+1) + (1 - lambda) * V(t+1)) - V(t))
 *
 * A step that resets an environment ends the sum: its target is its value, its advantage is 0. Its
 * value counts in the step before, unless that step ended the episode by its own rules. */
#ifndef AGENTS_POLICY_VTRACE_H
#define AGENTS_POLICY_VTRACE_H

#include <stdbool.h>
#include <stddef.h>

/* All arrays are borrowed. */
struct vtrace {
    size_t n_steps;
    const float *values;      /* [n_steps + 1] V of each observation and of the last one */
    const float *log_weights; /* [n_steps] logarithms of the importance weights; NULL: 0 */
    const float *rewards;     /* [n_steps] r */
    const bool *terminated;   /* [n_steps] whether the episode ended there by its own rules */
    const bool *resets;       /* [n_steps] whether the step reset the environment */
    float gamma, lambda, rho_max, c_max;
};

/* Computes targets and advantages, [n_steps] each. Any thread. */
void vtrace_compute(const struct vtrace *v, float *targets, float *advantages);

#endif
