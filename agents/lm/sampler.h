/* Chooses the next token from logits. A choice depends on the logits, the sampling parameters, the
 * tokens of the reply so far, the prompt, and (seed, turn, position): on nothing else. */
#ifndef AGENTS_LM_SAMPLER_H
#define AGENTS_LM_SAMPLER_H

#include <stdbool.h>

#include "agents/lm/vocab.h"
#include "agents/message.h"
#include "base/arena.h"

struct draw;
struct drawn;
struct logit_passes;
struct sampler;

struct sampled {
    int32_t id;
    float logprob; /* natural, of the model's own distribution (before penalties, bias, temperature,
                      cuts); 0 unless the sampling wants logprobs */
    struct top_logprob top[SAMPLING_MAX_LOGPROBS];
    uint32_t n_top; /* most likely first, the lower id among equals */
};

/* In the turn's arena; s and passes are borrowed as long. context [n_context] are the prompt's
 * tokens, which count for repetition_penalty (as everywhere), not for presence and frequency. */
enum status sampler_open(struct sampler **out, const struct sampling *s, const struct vocab *v,
                         const struct logit_passes *passes, uint32_t turn, const int32_t *context,
                         size_t n_context, struct arena *arena, struct error *err) MUST_CHECK;

/* logits [n_vocab] are overwritten; n_vocab > 0 is the same every time. position counts the reply's
 * tokens from 0. Logits that are not finite in every place are STATUS_INTERNAL; a choice with every
 * token banned is STATUS_INVALID. Order: bias, penalties, (ban of end tokens while ignore_eos or
 * position < min_tokens), temperature, top_k, top_p, min_p. One token always stays. Greedy takes
 * the highest, the lowest id among equals. */
enum status sampler_next(struct sampler *s, float *logits, size_t n_vocab, uint32_t position,
                         struct sampled *out, struct error *err) MUST_CHECK;

/* What a device has to know to draw the token of that position as sampler_next would; out->row is
 * the caller's. False: only the host can, because of penalties, biases or the likeliest others. */
bool sampler_plan(const struct sampler *s, uint32_t position, struct draw *out);
/* The token that a device has drawn so, d->id >= 0. */
struct sampled sampler_drawn(const struct sampler *s, const struct drawn *d);

/* Tells the sampler the chosen token, for its counts. Where the sampling has penalties, at most as
 * many calls as sampler_next has succeeded. */
void sampler_accept(struct sampler *s, int32_t id);

#endif
