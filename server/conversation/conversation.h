/* The operations on one conversation: open, fork, update, rewind, turn. All functions are called on
 * the loop. */
#ifndef SERVER_CONVERSATION_CONVERSATION_H
#define SERVER_CONVERSATION_CONVERSATION_H

#include "server/conversation/conversations.h"

struct turn_reader;

struct open_request {
    uint32_t principal; /* the owner of the new conversation */
    const char *system;
    size_t system_len;
    const struct sampling_overrides *overrides; /* may be NULL */
    struct limits limits;
    uint64_t ttl_ms;
    const struct pair *metadata; /* [n_metadata] */
    size_t n_metadata;
};

enum { SYSTEM_MAX_BYTES = 1 << 20 };

/* Opens a conversation. UNAVAILABLE while the model loads or the server drains; EXHAUSTED if there
 * are too many conversations; INVALID names the field that is at fault. */
enum status conversation_open(struct conversation **out, struct conversations *all,
                              struct model *model, const struct open_request *r,
                              struct error *err) MUST_CHECK;

/* Makes a conversation that shares the past of c up to at_turn, without copying. at_turn 0: the
 * fork has only the beginning of c. */
enum status conversation_fork(struct conversation **out, struct conversation *c, uint32_t at_turn,
                              const struct pair *metadata, size_t n_metadata,
                              struct error *err) MUST_CHECK;

/* What an update changes. The rest stays. */
struct update_request {
    bool has_overrides, has_ttl, has_metadata;
    const struct sampling_overrides *overrides; /* replace all overrides; NULL: there are none */
    uint64_t ttl_ms;                            /* 0: the server's idle time */
    const struct pair *metadata;                /* [n_metadata] replace all metadata */
    size_t n_metadata;
};

/* Changes c for turns that are accepted from now on. Forks keep what they have. The refusals are
 * those of conversation_open, and then nothing has changed. */
enum status conversation_update(struct conversation *c, const struct update_request *r,
                                struct error *err) MUST_CHECK;

/* Drops the turns after to_turn. STATUS_PRECONDITION while a turn is in flight. */
enum status conversation_rewind(struct conversation *c, uint32_t to_turn,
                                struct error *err) MUST_CHECK;

/* Rewinds for a client that may repeat the request, if the conversation has this generation. The
 * generation then rises even if no turn is dropped. With another generation: OK if this very rewind
 * was the last one and no turn came after it, else PRECONDITION, naming the field. generation 0
 * stands for any generation. */
enum status conversation_rewind_from(struct conversation *c, uint32_t generation, uint32_t to_turn,
                                     struct error *err) MUST_CHECK;

/* Ends the turn of this number and the turns behind it as cancelled. Complete turns stay. *ret_n is
 * how many turns ended. The number 0 stands for all turns. RANGE, naming the field, if there is no
 * such turn yet. */
enum status conversation_cancel_from(struct conversation *c, uint32_t number, size_t *ret_n,
                                     struct error *err) MUST_CHECK;

/* Queues a turn, which runs when the turns before it are done. r is copied. reader, which lies in
 * the caller's memory, reads the turn from its start until reader_close. A refusal starts nothing:
 * EXISTS if the number was given with another request; PRECONDITION, naming the expected number, if
 * a number is left out; EXHAUSTED if the queue is full; PRECONDITION or RANGE beyond the limits of
 * the conversation; or the error of the agent or the batcher. */
enum status conversation_turn(struct conversation *c, const struct turn_request *r,
                              struct turn_reader *reader, struct error *err) MUST_CHECK;

/* Runs, detached, the turn that an earlier process had accepted and not ended. Does nothing if
 * there is no such turn. The refusals are those of conversation_turn. */
enum status conversation_run_unended(struct conversation *c, struct error *err) MUST_CHECK;

/* Checks whether one more turn of n_bytes may come, and whether its request is correct. For
 * import.c.
 */
enum status conversation_check_room(const struct conversation *c, const struct turn_request *r,
                                    size_t n_bytes, struct error *err) MUST_CHECK;

/* Checks whether the conversation's model takes turns. UNAVAILABLE, with a hint, if the model may
 * be ready later; NOT_FOUND if the model is not served at all. Both errors say what to do. */
enum status conversation_check_model(const struct conversation *c, struct error *err) MUST_CHECK;

/* Returns for how long c has been idle; 0 while c is busy. */
uint64_t conversation_idle_us(const struct conversation *c);

#endif
