/* The prompts of a request that wants results of the prompts and no replies: embeddings or scores.
 * Each prompt is a turn without a reply, in the same steps as all other turns. Several prompts are
 * in flight at once. The owner is notified, and calls prompt_batch_advance until everything is
 * done. All functions are called on the loop. */
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

/* A prompt: a raw text, a query with a document, token ids, or the messages of a chat. It is not
 * empty. */
struct prompt_input {
    const char *text; /* [len]; NULL: the prompt is ids or messages */
    size_t len;
    bool parses_control;  /* control tokens written in the text are recognised */
    const char *document; /* [document_len] beside text, which is the query; NULL: there is none */
    size_t document_len;
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    const char *system; /* [system_len] beside messages; NULL: the model's own */
    size_t system_len;
};

struct prompt_batch_request {
    uint32_t principal;
    struct model *model;               /* loaded; held until prompt_batch_close */
    const struct prompt_input *inputs; /* [n_inputs] borrowed until prompt_batch_close */
    size_t n_inputs;                   /* 1 … */
    struct prompt_wants wants;         /* of each prompt; no_reply is implied */
    uint64_t deadline_us;              /* 0: the request has no deadline */
};

struct prompt_batch_events {
    /* Tells that prompt_batch_advance may have something to do. notify is called inside other
     * functions of the domain, so it only notes the fact. */
    void (*notify)(void *arg);
    /* Takes the results of an input, which are borrowed. Called inside prompt_batch_advance, which
     * fails if take fails. */
    enum status (*take)(void *arg, size_t input, struct completed_turn *done, struct error *err);
    void *notify_arg, *take_arg;
};

/* Begins. On failure nothing has begun; the error names an input that is at fault by its number,
 * from 0. */
enum status prompt_batch_open(struct prompt_batch **out, struct conversations *all,
                              const struct prompt_batch_request *r,
                              const struct prompt_batch_events *events,
                              struct error *err) MUST_CHECK;
/* Ends the prompts in flight as cancelled, and frees b. NULL is fine. */
void prompt_batch_close(struct prompt_batch *b);

/* Takes the prompts that are done, and begins further ones. After a failure only prompt_batch_close
 * may follow. */
enum status prompt_batch_advance(struct prompt_batch *b, bool *ret_is_done,
                                 struct error *err) MUST_CHECK;

/* Return how many tokens the prompts that are done have, and how many of these the cache had. */
uint64_t prompt_batch_n_tokens(const struct prompt_batch *b);
uint64_t prompt_batch_n_cached(const struct prompt_batch *b);

#endif
