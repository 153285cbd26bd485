/* Embeddings of the inputs of one request, a prompt batch (prompt_batch.h). For any API: the owner
 * is notified, and calls embeddings_advance until all is done. Loop. */
#ifndef SERVER_CONVERSATION_EMBEDDINGS_H
#define SERVER_CONVERSATION_EMBEDDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/turn.h"
#include "base/status.h"
#include "server/conversation/prompt_batch.h"

struct conversations;
struct embeddings;
struct model;

enum { EMBEDDINGS_MAX_INPUTS = 2048 };

struct embeddings_request {
    uint32_t principal;
    struct model *model;               /* loaded; held until embeddings_close */
    const struct prompt_input *inputs; /* [n_inputs] borrowed until embeddings_close */
    size_t n_inputs;                   /* 1 … EMBEDDINGS_MAX_INPUTS */
    enum pooling pooling; /* POOLING_NONE: the model's own. POOLING_RANK, of a model that ranks: the
                             inputs are queries with documents, and each has one value */
    size_t dimensions;    /* how many values are kept; 0: all */
    bool keeps_length;    /* the vectors are not scaled to length 1 */
    uint64_t deadline_us; /* 0: the request has no deadline */
};

/* Begins. notify is called when embeddings_advance may have something to do; since the call comes
 * inside other functions of the domain, notify only notes the fact. On failure nothing has begun.
 * The error names an input that is at fault by its number, from 0. */
enum status embeddings_open(struct embeddings **out, struct conversations *all,
                            const struct embeddings_request *r, void (*notify)(void *arg),
                            void *arg, struct error *err) MUST_CHECK;
/* Ends inputs in flight as cancelled, and frees e. NULL is fine. */
void embeddings_close(struct embeddings *e);

/* Takes the inputs that are done, and begins further inputs. After a failure only embeddings_close
 * may follow. */
enum status embeddings_advance(struct embeddings *e, bool *ret_is_done,
                               struct error *err) MUST_CHECK;

/* Once everything is done: embeddings_values returns the values of the i-th input,
 * [embeddings_width], in front of the values of the next input. embeddings_n_tokens returns how
 * many tokens all inputs have, and embeddings_n_cached how many of these the cache had. */
const float *embeddings_values(const struct embeddings *e, size_t i);
size_t embeddings_width(const struct embeddings *e);
uint64_t embeddings_n_tokens(const struct embeddings *e);
uint64_t embeddings_n_cached(const struct embeddings *e);

#endif
