/* The operations on one conversation: open, fork, rewind, turn. Loop. */
#ifndef SERVER_CONVERSATION_CONVERSATION_H
#define SERVER_CONVERSATION_CONVERSATION_H

#include "server/conversation/conversations.h"

struct turn_reader;

struct open_request {
    uint32_t principal; /* whose it will be */
    const char *system;
    size_t system_len;
    const struct sampling_overrides *overrides; /* may be NULL */
    struct limits limits;
    uint64_t ttl_ms;
    const struct pair *metadata; /* [n_metadata] */
    size_t n_metadata;
};

enum { SYSTEM_MAX_BYTES = 1 << 20 };

/* STATUS_UNAVAILABLE while the model loads or the server drains, EXHAUSTED when there are too many,
 * INVALID naming the field. */
enum status conversation_open(struct conversation **out, struct conversations *all,
                              struct model *model, const struct open_request *r,
                              struct error *err) MUST_CHECK;

/* Shares the past of c up to at_turn, without copying; 0: only its beginning. */
enum status conversation_fork(struct conversation **out, struct conversation *c, uint32_t at_turn,
                              const struct pair *metadata, size_t n_metadata,
                              struct error *err) MUST_CHECK;

/* What changes; the rest stays. */
struct update_request {
    bool has_overrides, has_ttl, has_metadata;
    const struct sampling_overrides *overrides; /* in place of all; NULL: none */
    uint64_t ttl_ms;                            /* 0: the server's */
    const struct pair *metadata;                /* [n_metadata]; in place of all */
    size_t n_metadata;
};

/* For turns that are accepted from now on; forks keep what they have. Refused as by
 * conversation_open, and then nothing has changed. */
enum status conversation_update(struct conversation *c, const struct update_request *r,
                                struct error *err) MUST_CHECK;

/* Drops the turns after to_turn. STATUS_PRECONDITION while a turn is in flight. */
enum status conversation_rewind(struct conversation *c, uint32_t to_turn,
                                struct error *err) MUST_CHECK;

/* The same for a client that may repeat it: if the conversation's generation is this one; then it
 * rises even where no turn is dropped. PRECONDITION naming the field otherwise, unless this was the
 * last rewind and no turn came after it: then it is done. 0: any. */
enum status conversation_rewind_from(struct conversation *c, uint32_t generation, uint32_t to_turn,
                                     struct error *err) MUST_CHECK;

/* Ends the turn of this number and those behind it as cancelled; one that is complete is left.
 * *ret_n: how many ended. STATUS_RANGE naming the field where there is no such turn yet. 0: all. */
enum status conversation_cancel_from(struct conversation *c, uint32_t number, size_t *ret_n,
                                     struct error *err) MUST_CHECK;

/* Queues a turn, which runs when those before it are done. r is copied. reader, the caller's, reads
 * the turn from its start until reader_close. A refusal starts nothing: STATUS_EXISTS (the number
 * was given with another request), PRECONDITION (a gap, naming the number expected), EXHAUSTED
 * (queue), PRECONDITION or RANGE (limits of the conversation), or the error of the agent or the
 * batcher. */
enum status conversation_turn(struct conversation *c, const struct turn_request *r,
                              struct turn_reader *reader, struct error *err) MUST_CHECK;

/* The turn that an earlier process had accepted and not ended runs again, detached. Nothing where
 * there is none; a refusal as by conversation_turn. */
enum status conversation_run_unended(struct conversation *c, struct error *err) MUST_CHECK;

/* For import.c: whether one more turn may come, of a request that is correct. */
enum status conversation_check_room(const struct conversation *c, const struct turn_request *r,
                                    size_t n_bytes, struct error *err) MUST_CHECK;

/* Whether its model takes turns: UNAVAILABLE, with a hint where it may be ready later; NOT_FOUND
 * where it is not served at all. Both say what to do. */
enum status conversation_check_model(const struct conversation *c, struct error *err) MUST_CHECK;

uint64_t conversation_idle_us(const struct conversation *c); /* 0 while it is busy */

#endif
