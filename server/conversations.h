/* All conversations of a daemon: found by id, listed newest first, closed when they have been idle
 * for too long. Knows nothing of gRPC. Loop. */
#ifndef SERVER_CONVERSATIONS_H
#define SERVER_CONVERSATIONS_H

#include "base/env.h"
#include "base/list.h"
#include "base/status.h"
#include "server/expiry.h"
#include "server/watch.h"

struct clone;
struct conversation;
struct model;

/* Zero takes the default. */
struct conversations_config {
    size_t max_conversations;    /* 1,000,000 */
    size_t max_queued_turns;     /* of a conversation, behind the one in flight; 16 */
    size_t max_turns;            /* of a conversation; 1,000,000 */
    size_t max_transcript_bytes; /* of a conversation; 64 MiB */
    size_t max_reply_bytes;      /* 4 MiB */
    size_t max_arena_bytes;      /* what an agent may take for one turn; 64 MiB */
    uint64_t ttl_ms;             /* of conversations that name none; a day */
    uint64_t unix_ms;            /* the wall clock's time now */
    const struct env *env;
    /* The one timer: please call conversations_tick at at_us. */
    void (*arm)(void *self, uint64_t at_us);
    void *arm_self;
};

struct conversations {
    struct conversations_config config;
    struct conversation **table; /* [n_buckets], chained */
    size_t n_buckets;            /* a power of two */
    size_t n;
    struct list newest_first;
    struct expiry expiry;
    struct watch_ring watch;
    uint64_t start_us;
    uint64_t n_opened; /* since the start: numbers them */
    uint64_t n_turns;  /* completed since the start */
    size_t n_live;     /* turns in flight or queued */
    size_t n_closing;  /* closed ones whose last turn is still in a step */
    bool is_draining;
    void (*quiet)(void *arg); /* called when the last live turn has gone; may be NULL */
    void *quiet_arg;
};

enum status conversations_init(struct conversations *all, const struct conversations_config *config,
                               struct error *err) MUST_CHECK;
/* None lives any more; all may be zeroed memory. */
void conversations_deinit(struct conversations *all);

/* STATUS_NOT_FOUND for anything that is not the id of one that lives. */
enum status conversations_find(struct conversation **out, const struct conversations *all,
                               const char *id, struct error *err) MUST_CHECK;
struct conversation *conversations_get(const struct conversations *all,
                                       const struct conversation_id *id);

/* Closes those that are due. */
void conversations_tick(struct conversations *all);

/* From now on nothing new is taken: STATUS_UNAVAILABLE. */
void conversations_drain(struct conversations *all);
/* Cancels every turn; quiet is called once they are all gone. */
void conversations_cancel_all(struct conversations *all);
/* Closes all of a model (NULL: of any); those whose turn is still in a step are gone when it is
 * back. reason lives for ever. */
void conversations_close_all(struct conversations *all, const struct model *model,
                             const char *reason);

uint64_t conversations_unix_ms(const struct conversations *all);

void conversation_id_format(const struct conversation_id *id, char out[CONVERSATION_ID_CHARS]);
/* False if text is no id: 32 lower-case hex digits. */
bool conversation_id_parse(struct conversation_id *out, const char *text);

/* Newest first: from is where to begin, NULL the newest; returns the next one after c, or NULL. */
struct conversation *conversations_newest(const struct conversations *all);
struct conversation *conversations_older(const struct conversations *all,
                                         const struct conversation *c);

/* Tells those who watch, if any, what the agent did to its clone. reason lives for ever. */
void conversations_clone_event(struct conversations *all, const struct clone *clone,
                               enum watch_what what, const char *reason);

/* For conversation.c: a place among all, and out of it. The id is drawn here. */
enum status conversations_add(struct conversations *all, struct conversation *c,
                              struct error *err) MUST_CHECK;
void conversations_remove(struct conversations *all, struct conversation *c);
/* For turn.c: a turn came to life, or has gone. */
void conversations_turn_began(struct conversations *all);
void conversations_turn_gone(struct conversations *all);

#endif
