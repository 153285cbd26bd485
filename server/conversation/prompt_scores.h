/* The log-probabilities of the tokens of prompts, for the inputs of one request, a prompt batch
 * (prompt_batch.h). The owner is notified, and calls prompt_scores_advance until all is done.
 * Loop. */
#ifndef SERVER_CONVERSATION_PROMPT_SCORES_H
#define SERVER_CONVERSATION_PROMPT_SCORES_H

#include "server/conversation/prompt_batch.h"

struct prompt_scores;

enum {
    PROMPT_SCORES_MAX_INPUTS = 2048,
    /* Of all results; a request that has more is refused once that is known. */
    PROMPT_SCORES_MAX_BYTES = 64 << 20,
};

struct prompt_scores_request {
    uint32_t principal;
    struct model *model;               /* loaded; held until prompt_scores_close */
    const struct prompt_input *inputs; /* [n_inputs] borrowed until prompt_scores_close */
    size_t n_inputs;                   /* 1 … PROMPT_SCORES_MAX_INPUTS */
    uint32_t n_tops;                   /* of each token; 0 … SAMPLING_MAX_LOGPROBS */
    uint64_t deadline_us;              /* 0: none */
};

/* Begins; notify as prompt_batch_events.notify. On failure nothing has begun. STATUS_UNIMPLEMENTED
 * for kinds of models that have no tokens. */
enum status prompt_scores_open(struct prompt_scores **out, struct conversations *all,
                               const struct prompt_scores_request *r, void (*notify)(void *arg),
                               void *arg, struct error *err) MUST_CHECK;
void prompt_scores_close(struct prompt_scores *s);

/* As prompt_batch_advance. */
enum status prompt_scores_advance(struct prompt_scores *s, bool *ret_is_done,
                                  struct error *err) MUST_CHECK;

/* Once all is done: the tokens of the i-th input. */
const struct prompt_token *prompt_scores_tokens(const struct prompt_scores *s, size_t i,
                                                size_t *ret_n);
const struct prompt_batch *prompt_scores_batch(const struct prompt_scores *s);

#endif
