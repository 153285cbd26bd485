/* The most likely tokens of a distribution. */
#ifndef AGENTS_LM_SAMPLING_TOPS_H
#define AGENTS_LM_SAMPLING_TOPS_H

#include <stddef.h>

struct logit_kernels;
struct top_logprob;

/* Writes the most likely of n > 0 tokens to out, at most max, the most likely first and the lower
 * id among equals, and returns how many; those of -INFINITY are left out. log_sum: logits_log_sum
 * of the finite logits. */
size_t tops_take(const struct logit_kernels *kernels, const float *logits, size_t n, double log_sum,
                 struct top_logprob *out, size_t max);

#endif
