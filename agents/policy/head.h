/* What a policy's outputs mean, for one row: how an action is chosen, how likely it was, and the
 * gradients. On the host in every backend, so that the bits are the same. The outputs of a head:
 *
 *   softmax   log-probabilities [n_actions]
 *   gaussian  means, then the logarithms of standard deviations [2][n_actions], clamped
 *   duelling  advantages [n_actions]; with the value head's V: Q(a) = V + A(a) - mean of A */
#ifndef AGENTS_POLICY_HEAD_H
#define AGENTS_POLICY_HEAD_H

#include <stddef.h>
#include <stdint.h>

#include "agents/policy/policy.h"
#include "compute/numerics/net_draw.h"

/* How many outputs the head has. */
size_t head_n_outputs(const struct policy_spec *s);

/* A choice among n by their log-probabilities: the first at which the cumulative probability
 * exceeds a number drawn from [0, 1); the last if rounding keeps the sum below that number. */
size_t head_draw_choice(const float *logp, size_t n, const struct net_draw *draw);
size_t head_greatest(const float *x, size_t n);
/* Numbers from a Gaussian; without a draw (NULL) the means. */
void head_draw_numbers(const float *outputs, size_t n, const struct net_draw *draw, float *out);

float head_gaussian_logp(const float *outputs, size_t n, const float *numbers);
double head_gaussian_entropy(const float *outputs, size_t n);
/* The gradient of weight * log-probability - entropy_weight * entropy, [2 * n]. */
void head_gaussian_backward(const float *outputs, size_t n, const float *numbers, float weight,
                            float entropy_weight, float *doutputs);

/* Q of one action. */
float head_duelling_q(const float *advantages, size_t n, float value, size_t action);
/* dq, the gradient by Q of one action, to the advantages; that of the value is dq itself. */
void head_duelling_backward(size_t n, size_t action, float dq, float *dadvantages);

#endif
