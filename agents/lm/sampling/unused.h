/* Ids that models have logits for, but no vocabulary a text: holes in it, and the end of a matrix
 * that was padded to a round number of rows. */
#ifndef AGENTS_LM_SAMPLING_UNUSED_H
#define AGENTS_LM_SAMPLING_UNUSED_H

#include <stdbool.h>
#include <stddef.h>

struct vocab;

/* Whether a model of n_vocab logits has any; n_vocab is at least vocab_n_tokens. */
bool unused_any(const struct vocab *v, size_t n_vocab);
/* Makes their logits [n_vocab] -INFINITY, so that they are neither drawn nor among the likeliest.
 */
void unused_ban(const struct vocab *v, float *logits, size_t n_vocab);

#endif
