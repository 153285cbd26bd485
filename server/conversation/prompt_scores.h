/* The log-probabilities of the tokens of prompts, for the inputs of one request, a prompt batch
 * (prompt_batch.h). The owner is notified, and calls prompt_scores_advance until all is done.
 * Loop. */
#ifndef SERVER_CONVERSATION_PROMPT_SCORES_H
#define SERVER_CONVERSATION_PROMPT_SCORES_H

#include "server/conversation/prompt_batch.h"

struct prompt_scores;

enum {
    PROMPT_SCORES_MAX_INPUTS = 2048,
    /* The most bytes of a request's results. A request is refused once its results have more. */
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

/* Begins the computation. notify is called as prompt_batch_events.notify is. On failure nothing has
 * begun. UNIMPLEMENTED for kinds of models that have no tokens. */
enum status prompt_scores_open(struct prompt_scores **out, struct conversations *all,
                               const struct prompt_scores_request *r, void (*notify)(void *arg),
                               void *arg, struct error *err) MUST_CHECK;
/* Ends the computation, also where it is not done, and frees s. */
void prompt_scores_close(struct prompt_scores *s);

/* Goes on, and fails, as prompt_batch_advance does. */
enum status prompt_scores_advance(struct prompt_scores *s, bool *ret_is_done,
                                  struct error *err) MUST_CHECK;

/* Returns the tokens of the i-th input, once all is done. */
const struct prompt_token *prompt_scores_tokens(const struct prompt_scores *s, size_t i,
                                                size_t *ret_n);
/* Returns the batch, for its counts of tokens. */
const struct prompt_batch *prompt_scores_batch(const struct prompt_scores *s);

#endif
