/* What a policy's outputs mean, for one row: how an action is chosen, how likely it was, and the
 * gradients. All of it is computed on the host, whatever the backend, so that the bits are the
 * same. Any thread. The outputs of a head are:
 *
 *   softmax   log-probabilities [n_actions]
 *   gaussian  means, then the logarithms of standard deviations [2][n_actions]; the functions below
 *             clamp the logarithms to [-5, 2]
 *   duelling  advantages [n_actions]; with the value head's V: Q(a) = V + A(a) - mean of A (Wang et
 *             al., "Dueling Network Architectures", 2016) */
#ifndef AGENTS_POLICY_HEAD_H
#define AGENTS_POLICY_HEAD_H

#include <stddef.h>
#include <stdint.h>

#include "agents/policy/policy.h"
#include "compute/numerics/net_draw.h"

/* Returns how many outputs the head has. */
size_t head_n_outputs(const struct policy_spec *s);

/* Draws one of n choices by their log-probabilities: the first at which the cumulative probability
 * exceeds a number drawn from [0, 1), or the last if rounding keeps the sum below that number. */
size_t head_draw_choice(const float *logp, size_t n, const struct net_draw *draw);
/* Returns the index of the greatest of n numbers, the first of equal ones. */
size_t head_greatest(const float *x, size_t n);
/* Draws the n numbers of an action from the Gaussian; draw NULL: out gets the means. */
void head_draw_numbers(const float *outputs, size_t n, const struct net_draw *draw, float *out);

/* Return the log-density of an action of n numbers, and the Gaussian's entropy, both in nats. */
float head_gaussian_logp(const float *outputs, size_t n, const float *numbers);
double head_gaussian_entropy(const float *outputs, size_t n);
/* Writes the gradient of weight * log-density - entropy_weight * entropy by the outputs, [2 * n].
 * A logarithm that was clamped has none. */
void head_gaussian_backward(const float *outputs, size_t n, const float *numbers, float weight,
                            float entropy_weight, float *doutputs);

/* Returns Q of one action of n. */
float head_duelling_q(const float *advantages, size_t n, float value, size_t action);
/* Writes the gradient by the n advantages, from dq, the gradient by Q of one action. The gradient
 * by the value is dq itself. */
void head_duelling_backward(size_t n, size_t action, float dq, float *dadvantages);

#endif
