#include "agents/policy/vtrace.h"

#include <math.h>

#include "base/real.h"

void vtrace_compute(const struct vtrace *v, float *targets, float *advantages)
{
    double beyond = 0; /* target - V of the next step */

    for (size_t t = v->n_steps; t-- > 0;) {
        double value = (double)v->values[t], next = (double)v->values[t + 1];
        double weight = v->log_weights != NULL ? real_exp((double)v->log_weights[t]) : 1;
        double rho = fmin((double)v->rho_max, weight), c = fmin((double)v->c_max, weight);
        double discount = v->terminated[t] ? 0 : (double)v->gamma, lambda = (double)v->lambda;
        double reward = (double)v->rewards[t];

        if (v->resets[t]) {
            targets[t] = v->values[t];
            advantages[t] = 0;
            beyond = 0;
            continue;
        }
        advantages[t] = (float)(rho * (reward + discount * (next + lambda * beyond) - value));
        beyond = rho * (reward + discount * next - value) + discount * lambda * c * beyond;
        targets[t] = (float)(value + beyond);
    }
}
