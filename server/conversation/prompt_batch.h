/* The prompts of one request of which results are wanted, not replies: each is a turn without a
 * reply, in the same steps as all other turns, and several are in flight at once. For embeddings
 * and scores: the owner is notified, and calls prompt_batch_advance until all is done. Loop. */
#ifndef SERVER_CONVERSATION_PROMPT_BATCH_H
#define SERVER_CONVERSATION_PROMPT_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "server/conversation/completed_turn.h"

struct conversations;
struct model;
struct prompt_batch;

/* A raw text, token ids, or the messages of a chat; not empty. */
struct prompt_input {
    const char *text; /* [len] NULL: ids or messages */
    size_t len;
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    const char *system; /* [system_len] of messages; NULL: the model's own */
    size_t system_len;
};

struct prompt_batch_request {
    uint32_t principal;
    struct model *model;               /* loaded; held until prompt_batch_close */
    const struct prompt_input *inputs; /* [n_inputs] borrowed until prompt_batch_close */
    size_t n_inputs;                   /* 1 … */
    struct prompt_wants wants;         /* what is asked of each; no_reply is implied */
    uint64_t deadline_us;              /* 0: none */
};

struct prompt_batch_events {
    /* prompt_batch_advance may have something to do. Called inside other functions of the domain,
     * so it only notes the fact. */
    void (*notify)(void *arg);
    /* The results of an input, borrowed: inside prompt_batch_advance. A failure is the request's.
     */
    enum status (*take)(void *arg, size_t input, struct completed_turn *done, struct error *err);
    void *notify_arg, *take_arg;
};

/* Begins. On failure nothing has begun; an input that is at fault is named by its number, from 0.
 */
enum status prompt_batch_open(struct prompt_batch **out, struct conversations *all,
                              const struct prompt_batch_request *r,
                              const struct prompt_batch_events *events,
                              struct error *err) MUST_CHECK;
/* Ends what is in flight as cancelled; NULL is fine. */
void prompt_batch_close(struct prompt_batch *b);

/* Takes what is done, and begins further inputs. After a failure only prompt_batch_close may
 * follow. */
enum status prompt_batch_advance(struct prompt_batch *b, bool *ret_is_done,
                                 struct error *err) MUST_CHECK;

/* Tokens of all inputs that are done, and those of them that were found in the cache. */
uint64_t prompt_batch_n_tokens(const struct prompt_batch *b);
uint64_t prompt_batch_n_cached(const struct prompt_batch *b);

#endif
