/* A conversation: one clone of an agent, the turns that were said to it, and those that wait. Its
 * turns run one after the other; at most one is in flight. Knows nothing of gRPC. Loop. */
#ifndef SERVER_CONVERSATION_H
#define SERVER_CONVERSATION_H

#include "agents/agent.h"
#include "server/conversations.h"
#include "server/record.h"

struct reader;

struct pair {
    const char *key, *value;
};

struct limits {
    uint32_t max_turns;  /* 0: the server's bound */
    uint32_t max_tokens; /* of the context; 0: the model's */
    int priority;        /* -100 … 100 */
};

/* What a conversation was opened with; its forks share it. */
struct terms {
    size_t n_refs;
    struct limits limits;
    uint64_t ttl_ms;
    struct sampling_patch *patch; /* NULL: nothing given */
    size_t system_len;
    char system[]; /* NUL-ended; "": the model's own */
};

struct metadata {
    size_t n_pairs;
    struct pair pairs[]; /* [n_pairs] and their texts */
};

struct open_request {
    const char *system;
    size_t system_len;
    const struct sampling_patch *patch; /* may be NULL */
    struct limits limits;
    uint64_t ttl_ms;
    const struct pair *metadata; /* [n_metadata] */
    size_t n_metadata;
};

enum { SYSTEM_MAX_BYTES = 1 << 20, METADATA_MAX_PAIRS = 64, METADATA_MAX_BYTES = 16 << 10 };

struct conversation {
    struct conversation_id id;
    struct conversation *in_bucket; /* next */
    struct link link;               /* in newest_first */
    struct expiry_entry expiry;     /* at or before the time it expires */
    struct conversations *all;
    struct model *model;
    struct clone *clone;
    struct terms *terms;
    struct metadata *metadata; /* NULL: none */
    struct record *newest;     /* of the turns that are complete; NULL: none */
    struct list turns;         /* the one in flight first */
    uint64_t serial;           /* older ones have a smaller one */
    uint64_t seed;
    uint64_t opened_us, last_done_us;
    struct conversation_id parent;
    uint32_t n_turns; /* complete */
    uint16_t n_live;  /* length of turns */
    bool has_parent;
    bool is_closed; /* not to be found any more; goes with its last turn */
};

/* STATUS_UNAVAILABLE while the model loads or the server drains, EXHAUSTED when there are too many,
 * INVALID naming the field. */
enum status conversation_open(struct conversation **out, struct conversations *all,
                              struct model *model, const struct open_request *r,
                              struct error *err) MUST_CHECK;

/* Shares the past of c up to at_turn, 0: all that is complete. Past turns are shared, not copied.
 */
enum status conversation_fork(struct conversation **out, struct conversation *c, uint32_t at_turn,
                              const struct pair *metadata, size_t n_metadata,
                              struct error *err) MUST_CHECK;

/* Forgets the turns after to_turn. STATUS_PRECONDITION while a turn is in flight. */
enum status conversation_rewind(struct conversation *c, uint32_t to_turn,
                                struct error *err) MUST_CHECK;

/* A turn: takes its place, and runs when those before it are done. r is copied. reader [the
 * caller's] then sees the turn from its start, until reader_close. A refusal starts nothing:
 * STATUS_EXISTS (the number had another body), PRECONDITION (a gap, naming the number expected),
 * EXHAUSTED (queue, limits), what the agent or the batcher say. */
enum status conversation_turn(struct conversation *c, const struct turn_request *r,
                              struct reader *reader, struct error *err) MUST_CHECK;

/* Ends the turn in flight and those behind it as cancelled; returns how many there were. */
size_t conversation_cancel(struct conversation *c);

/* Cancels, and takes it out of the world; it is gone when its last turn is. */
void conversation_close(struct conversation *c, enum watch_what what, const char *reason);

/* For turn.c: the last turn of a closed one has gone. */
void conversation_free(struct conversation *c);

uint64_t conversation_idle_us(const struct conversation *c); /* 0 while it is busy */

#endif
