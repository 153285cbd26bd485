/* Chooses the next token from logits. A choice depends only on the logits, the sampling parameters,
 * the prompt, the reply's tokens so far, and (seed, turn, position). */
#ifndef AGENTS_LM_SAMPLING_SAMPLER_H
#define AGENTS_LM_SAMPLING_SAMPLER_H

#include <stdbool.h>

#include "agents/lm/tokenizer/vocab.h"
#include "agents/message.h"
#include "base/arena.h"

struct draw;
struct drawn;
struct logit_kernels;
struct sampler;

struct sampled {
    int32_t id;
    float logprob; /* natural, of the model's own distribution (before penalties, bias, temperature,
                      cuts); 0 unless the sampling wants logprobs */
    struct top_logprob top[SAMPLING_MAX_LOGPROBS];
    uint32_t n_top; /* most likely first, the lower id among equals */
};

/* Allocates in the turn's arena; borrows s and kernels as long. context [n_context] are the
 * prompt's tokens, which count for repetition_penalty (as is usual), not for presence and
 * frequency. */
enum status sampler_open(struct sampler **out, const struct sampling *s, const struct vocab *v,
                         const struct logit_kernels *kernels, uint32_t turn, const int32_t *context,
                         size_t n_context, struct arena *arena, struct error *err) MUST_CHECK;

/* Overwrites logits [n_vocab]; n_vocab > 0 is the same in all calls. position counts the reply's
 * tokens from 0. STATUS_INTERNAL if a logit is not finite; STATUS_INVALID if every token is banned.
 * Order: bias, penalties, (ban of end tokens while ignore_eos or position < min_tokens),
 * temperature, top_k, top_p, min_p. One token always stays. Greedy takes the highest, the lowest id
 * among equals. Ids without a token (unused.h) are never chosen or listed. */
enum status sampler_next(struct sampler *s, float *logits, size_t n_vocab, uint32_t position,
                         struct sampled *out, struct error *err) MUST_CHECK;

/* The tokens that the next sampler_next may choose: a bit for each, in the order of ids; NULL: all.
 * Borrowed until then. End tokens that are banned may be chosen where nothing else may. */
void sampler_allow(struct sampler *s, const uint32_t *mask);

/* Fills what a device needs to draw the token of that position as sampler_next would; the caller
 * sets out->row. False if only the host can, because of penalties, biases, top logprobs, or ids
 * without a token. */
bool sampler_plan(const struct sampler *s, size_t n_vocab, uint32_t position, struct draw *out);
/* The token that a device has drawn by such a plan, d->id >= 0. */
struct sampled sampler_drawn(const struct sampler *s, const struct drawn *d);

/* Of the last sampler_next: the token *out becomes another one, with its own log-probability. */
void sampler_replace(const struct sampler *s, int32_t id, struct sampled *out);

/* Counts the chosen token. With penalties, call it at most once for each successful sampler_next.
 */
void sampler_accept(struct sampler *s, int32_t id);

#endif
