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
    enum pooling pooling;              /* POOLING_NONE: the model's own */
    size_t dimensions;                 /* the first so many values; 0: all */
    bool keeps_length;                 /* not scaled to length 1 */
    uint64_t deadline_us;              /* 0: none */
};

/* Begins. notify: embeddings_advance may have something to do; it is called inside other functions
 * of the domain, so it only notes the fact. On failure nothing has begun; an input that is at fault
 * is named by its number, from 0. */
enum status embeddings_open(struct embeddings **out, struct conversations *all,
                            const struct embeddings_request *r, void (*notify)(void *arg),
                            void *arg, struct error *err) MUST_CHECK;
/* Ends what is in flight as cancelled; NULL is fine. */
void embeddings_close(struct embeddings *e);

/* Takes what is done, and begins further inputs. After a failure only embeddings_close may follow.
 */
enum status embeddings_advance(struct embeddings *e, bool *ret_is_done,
                               struct error *err) MUST_CHECK;

/* Once all is done: the values of the i-th input, [embeddings_width], followed by those of the
 * next; tokens of all inputs, and
 * those of them that were found in the cache. */
const float *embeddings_values(const struct embeddings *e, size_t i);
size_t embeddings_width(const struct embeddings *e);
uint64_t embeddings_n_tokens(const struct embeddings *e);
uint64_t embeddings_n_cached(const struct embeddings *e);

#endif
