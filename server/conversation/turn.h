/* A turn in flight, from its acceptance to its end. A completed turn replaces it, and its readers
 * continue with that. Loop. */
#ifndef SERVER_CONVERSATION_TURN_H
#define SERVER_CONVERSATION_TURN_H

#include "agents/turn.h"
#include "server/access/quota.h"
#include "server/conversation/completed_turn.h"
#include "server/conversation/options.h"

struct model;
struct turn;
struct turn_host;

/* What the turns of all conversations have in common. */
struct turn_config {
    const struct env *env;
    size_t max_reply_bytes, max_arena_bytes;
    void (*began)(struct turn_host *host); /* a turn was accepted */
    /* A turn has left the queue; is_complete: it is now the host's newest. The host is still
     * valid. */
    void (*left)(struct turn_host *host, bool is_complete);
    /* The last reader of a turn that can be asked for again has gone: true if turn_end will be
     * called later unless a reader comes, or the turn was seen to. It may put t->lingering into a
     * list of its own. */
    bool (*linger)(struct turn_host *host, struct turn *t);
    /* No turn is left, and nothing touches the host afterwards: it may be freed. */
    void (*emptied)(struct turn_host *host);
    /* Of hosts whose turns are kept. Writes the turn's acceptance, or its end: turn_accepted or
     * turn_stored is called later, once it is durable or has failed. On failure nothing was begun.
     */
    enum status (*accept)(struct turn_host *host, struct turn *t, struct error *err);
    enum status (*store)(struct turn_host *host, struct turn *t, struct error *err);
    /* What the host is differs from what is kept of it: it has no turn any more, and must not be
     * used again. It may be freed. */
    void (*lost)(struct turn_host *host);
};

/* The part of a conversation that its turns need and change. */
struct turn_host {
    const struct turn_config *config;
    struct clone *clone;
    struct model *model;
    struct conversation_options *options;
    struct completed_turn *newest; /* last completed turn; NULL: none */
    struct list turns;             /* the one in flight first */
    uint64_t seed, last_done_us;
    struct access_quota *quota; /* of its principal; NULL: none */
    uint32_t n_turns;           /* completed */
    /* From 1, raised by a rewind, after which turn numbers recur: part of a cursor. */
    uint32_t generation;
    uint16_t n_live; /* length of turns */
    bool is_kept;    /* its turns are durable before anybody is told */
    /* What it is may differ from what is kept of it: nothing more is written, and its turns fail
     * so. NULL: it does not. Static. */
    const struct error *lost;
};

/* A reader of a turn, in the caller's memory. After EVENT_DONE or EVENT_FAILED there is no more. */
struct turn_reader {
    struct link link;                 /* of the turn's readers */
    struct turn *turn;                /* while it lives */
    struct completed_turn *completed; /* once it is complete; a reference */
    void (*notify)(void *arg);
    void *arg;
    uint64_t deadline_us; /* 0: none */
    size_t text_at, token_at;
    size_t max_piece_tokens; /* 0: as the message allows */
    size_t n_tail;           /* pieces read of text that belongs to no token */
    uint32_t generation;     /* of the conversation when it was attached */
    uint32_t progress_at;
    bool has_accepted, is_over;
    bool is_reply_deadline; /* the deadline ends the reply, as done, and not the reader */
    bool is_ahead;          /* of a turn that is computed again: it waits for ahead_index */
    uint64_t ahead_index;
    struct error err; /* of a turn that failed */
};

enum turn_state {
    TURN_QUEUED,    /* behind another one */
    TURN_ACCEPTING, /* observed; its acceptance is not durable yet */
    TURN_ASKED,     /* its agent_turn is queued or in a step */
    TURN_ENDING,    /* cancelled; the batcher will settle it */
    TURN_STORING,   /* it has ended, which is not durable yet */
    TURN_ENDED,
};

struct turn {
    struct link link; /* of the host's turns */
    struct turn_host *host;
    struct conversation_options *options; /* the host's when it was accepted, a reference */
    enum turn_state state;
    uint32_t number;
    bool is_numbered;               /* by the caller, who may ask for it again */
    struct link lingering;          /* the owner's list of turns without readers */
    uint64_t linger_until_us;       /* while it is in that list */
    uint64_t left_deadline_us;      /* of the last reader, which has gone */
    bool is_observed;               /* asks for no reply */
    enum finish why;                /* TURN_ENDING: FINISH_CANCELLED or FINISH_DEADLINE */
    struct stored_request *request; /* owned until the completed turn takes it */
    /* Of a turn that was accepted by an earlier process: its complete sampling parameters. NULL:
     * those of now. Owned. */
    struct sampling_overrides *resolved;
    struct turn_key *key;             /* in one block; NULL: none */
    bool is_accepted;                 /* durably */
    bool is_cut;                      /* TURN_ACCEPTING: it ends as soon as it is accepted */
    struct completed_turn *completed; /* TURN_STORING: owned; NULL: the turn failed, by err */
    struct error err;
    struct buf trace; /* of a kept turn that has ended: see agent_turn_trace */
    struct list readers;
    uint64_t accepted_us, input_us;         /* input: time to observe */
    uint64_t first_token_us, last_token_us; /* 0: none yet */
    /* The readable part of the reply: a running step may be writing beyond it. */
    size_t told_len, told_tokens;
    uint32_t told_prompt, told_cached, told_prefilled;
    struct quota_hold hold; /* while it is asked */
    struct arena arena;
    struct agent_turn agent;
};

/* Appends the turn of r, with this number, to the host's queue, read by reader. The first in the
 * queue is observed and requested at once, or, if it asks for no reply, complete at once. On
 * failure nothing has changed. */
enum status turn_open(struct turn_host *h, const struct turn_request *r, uint32_t number,
                      struct turn_reader *reader, struct error *err) MUST_CHECK;

/* Opens a turn that an earlier process had accepted and not ended, without a reader; takes request
 * and resolved, on success only. Computes the same again, or, if is_cut, ends it with nothing said.
 */
enum status turn_reopen(struct turn_host *h, struct stored_request *request,
                        struct sampling_overrides *resolved, uint32_t number, bool is_cut,
                        struct error *err) MUST_CHECK;

/* What turn_config's accept and store have begun is durable, or has failed: the turn is lost then.
 */
void turn_accepted(struct turn *t, const struct error *err);
void turn_stored(struct turn *t, const struct error *err);

/* The host is lost: its turns fail so, the queued ones at once, and none is stored any more. NULL:
 * as UNAVAILABLE, because of the journal; why is static. */
void turn_lose_all(struct turn_host *h, const struct error *why);

/* Nobody's leaving ends it. So it is with one that is computed again: the process before may have
 * told more of it than this one has come to. */
bool turn_is_detached(const struct turn *t);
/* Its request, in every state. */
const struct stored_request *turn_request_of(const struct turn *t);
/* It may have said something: its readers have events. */
bool turn_has_begun(const struct turn *t);

/* Adds a reader, from the turn's start. */
void turn_attach(struct turn *t, struct turn_reader *r);
void turn_attach_completed(struct completed_turn *completed, uint32_t generation,
                           struct turn_reader *r);

/* The last reader has gone: the turn ends, unless it lingers or is detached. */
void turn_left(struct turn *t, uint64_t deadline_us, enum status why);

/* Ends the turn. A queued one ends at once, and its readers get CANCELLED or DEADLINE; one that was
 * requested ends after the running step. Later turns move up. */
void turn_end(struct turn *t, enum finish why);

/* Ends the turn of this number and those behind it as cancelled; returns how many there were. 0:
 * also the one in flight. */
size_t turn_cancel_from(struct turn_host *h, uint32_t number);
size_t turn_cancel_all(struct turn_host *h);

#endif
