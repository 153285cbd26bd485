/* A turn in flight, from its acceptance to its end. When a turn ends, a completed turn replaces the
 * turn, and the turn's readers continue with the completed turn. All functions are called on the
 * loop. */
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
    void (*began)(struct turn_host *host); /* called when a turn was accepted */
    /* Called when a turn has left the queue. is_complete says that the turn is now the host's
     * newest. The host is still valid. */
    void (*left)(struct turn_host *host, bool is_complete);
    /* Called when the last reader has left a turn that can be asked for again. Returns true if the
     * host's owner takes charge of the turn: the owner has ended the turn, or will call turn_end
     * later unless a reader comes. The owner may put t->lingering into a list. */
    bool (*linger)(struct turn_host *host, struct turn *t);
    /* Called when no turn is left. Nothing touches the host afterwards, so the host may be freed.
     */
    void (*emptied)(struct turn_host *host);
    /* Called for hosts whose turns are kept. accept writes the turn's acceptance, and store the
     * turn's end. Later, once the record is durable or could not be written, the owner calls
     * turn_accepted or turn_stored. On failure nothing was begun. */
    enum status (*accept)(struct turn_host *host, struct turn *t, struct error *err);
    enum status (*store)(struct turn_host *host, struct turn *t, struct error *err);
    /* Called when the host in memory differs from the host in the journal. The host has no turn any
     * more, and must not be used again. The callback may free the host. */
    void (*lost)(struct turn_host *host);
};

/* The part of a conversation that its turns need and change. */
struct turn_host {
    const struct turn_config *config;
    struct clone *clone;
    struct model *model;
    struct conversation_options *options;
    struct completed_turn *newest; /* the last completed turn; NULL: there is none */
    struct list turns;             /* the queue of turns; the turn in flight comes first */
    uint64_t seed, last_done_us;
    struct access_quota *quota; /* the quota of the host's principal; NULL: there is none */
    uint32_t n_turns;           /* how many turns are completed */
    /* The generation is part of a cursor: turn numbers recur after a rewind, and each rewind raises
     * the generation, which begins at 1. */
    uint32_t generation;
    uint16_t n_live; /* the length of turns */
    bool is_kept;    /* the host's turns are durable before a reader hears of them */
    /* Set when the host in memory may differ from the host in the journal: nothing more is written,
     * and the host's turns fail with this error. NULL: the two agree. Static. */
    const struct error *lost;
};

/* A reader of a turn. The reader lies in the caller's memory. EVENT_DONE or EVENT_FAILED is the
 * reader's last event. */
struct turn_reader {
    struct link link;                 /* in the turn's readers */
    struct turn *turn;                /* the turn, while it is in flight */
    struct completed_turn *completed; /* the completed turn, a reference; NULL before */
    void (*notify)(void *arg);
    void *arg;
    uint64_t deadline_us; /* 0: the reader has no deadline */
    size_t text_at, token_at;
    size_t max_piece_tokens; /* the most tokens of a piece; 0: as many as the message allows */
    size_t n_tail;           /* how many pieces were read of text that belongs to no token */
    uint32_t generation;     /* the conversation's generation when the reader was attached */
    uint32_t progress_at;
    bool has_accepted, is_over;
    bool is_reply_deadline; /* the deadline ends the reply, as done, and not the reader */
    bool is_ahead;          /* the turn is computed again, and the reader waits for ahead_index */
    uint64_t ahead_index;
    struct error err; /* the error of a turn that failed */
};

enum turn_state {
    TURN_QUEUED,    /* the turn waits behind another turn */
    TURN_ACCEPTING, /* the turn was observed, and its acceptance is not durable yet */
    TURN_ASKED,     /* the turn's agent_turn is queued or in a step */
    TURN_ENDING,    /* the turn was cancelled, and the batcher will settle the agent_turn */
    TURN_STORING,   /* the turn has ended, and the end is not durable yet */
    TURN_ENDED,
};

/* A turn. turn_open puts a turn into its host's queue as TURN_QUEUED. The first turn of the queue
 * is observed by the agent; if the host is kept, the turn is TURN_ACCEPTING until the acceptance is
 * durable. Then the turn is TURN_ASKED: the batcher has its agent_turn, and each step adds to the
 * reply, which readers follow. A cancelled turn is TURN_ENDING until the batcher has settled the
 * agent_turn. The end of a kept turn is written while the turn is TURN_STORING. Last, the turn is
 * TURN_ENDED: its completed turn is the host's newest, the readers have moved to the completed
 * turn, and the turn is freed. */
struct turn {
    struct link link; /* in the host's turns */
    struct turn_host *host;
    struct conversation_options *options; /* the host's at the acceptance, a reference */
    enum turn_state state;
    uint32_t number;
    bool is_numbered;               /* the caller gave the number, and may ask for the turn again */
    struct link lingering;          /* in the owner's list of turns without readers */
    uint64_t linger_until_us;       /* when the turn ends, while the turn is in that list */
    uint64_t left_deadline_us;      /* the deadline of the last reader that has left */
    bool is_observed;               /* the turn asks for no reply */
    enum finish why;                /* TURN_ENDING: FINISH_CANCELLED or FINISH_DEADLINE */
    struct stored_request *request; /* owned until the completed turn takes the request */
    /* The complete sampling parameters of a turn that an earlier process accepted. NULL: the
     * parameters of now hold. Owned. */
    struct sampling_overrides *resolved;
    struct turn_key *key;     /* the turn's Idempotency-Key, in one block; NULL: none */
    bool is_accepted;         /* the acceptance is durable */
    bool is_repeated;         /* the reply is known: see turn_repeat */
    const int32_t *predicted; /* [n_predicted] in the arena: the ids of the known reply */
    size_t n_predicted;
    bool is_cut;                      /* TURN_ACCEPTING: the turn ends once it is accepted */
    struct completed_turn *completed; /* TURN_STORING: owned; NULL: the turn failed with err */
    struct error err;
    struct buf trace; /* the trace of a kept turn that has ended: see agent_turn_trace */
    struct list readers;
    uint64_t accepted_us, input_us;         /* input_us: how long the observation took */
    uint64_t first_token_us, last_token_us; /* 0: there is no token yet */
    /* The part of the reply that readers may read. A running step may be writing beyond it. */
    size_t told_len, told_tokens;
    uint32_t told_prompt, told_cached, told_prefilled;
    struct quota_hold hold; /* held while the turn is TURN_ASKED */
    struct arena arena;
    struct agent_turn agent;
};

/* Appends the turn of r, with this number, to the host's queue. reader reads the turn. The first
 * turn of the queue is observed and asked at once; a turn that asks for no reply is complete at
 * once. On failure nothing has changed. */
enum status turn_open(struct turn_host *h, const struct turn_request *r, uint32_t number,
                      struct turn_reader *reader, struct error *err) MUST_CHECK;

/* Opens, without a reader, a turn that an earlier process had accepted and not ended. On success
 * the turn owns request and resolved. The turn computes the same reply again; with is_cut, the turn
 * ends with an empty reply. */
enum status turn_reopen(struct turn_host *h, struct stored_request *request,
                        struct sampling_overrides *resolved, uint32_t number, bool is_cut,
                        struct error *err) MUST_CHECK;

/* Runs, as the host's next turn, one that was accepted before and whose reply has the predicted
 * ids, as far as they are known. The host is not kept and has no turn in flight. reader reads the
 * turn, which counts against the host's quota, unlike one that turn_reopen opens. On success the
 * turn owns request and resolved; on failure nothing has changed. */
enum status turn_repeat(struct turn_host *h, struct stored_request *request,
                        struct sampling_overrides *resolved, const int32_t *predicted,
                        size_t n_predicted, struct turn_reader *reader,
                        struct error *err) MUST_CHECK;

/* Says that the record of turn_config's accept or store is durable, or, by err, that the record
 * could not be written: then the turn is lost. */
void turn_accepted(struct turn *t, const struct error *err);
void turn_stored(struct turn *t, const struct error *err);

/* Makes the host lost: the host's turns fail with why, the queued turns at once, and no turn is
 * stored any more. why is static; NULL stands for UNAVAILABLE because of the journal. */
void turn_lose_all(struct turn_host *h, const struct error *why);

/* Returns whether the turn goes on when its last reader leaves. A turn that is computed again does
 * so, since the earlier process may have sent more of the reply than was computed again so far. */
bool turn_is_detached(const struct turn *t);
/* Returns the turn's request, in every state. */
const struct stored_request *turn_request_of(const struct turn *t);
/* Returns whether the turn's readers may have events. */
bool turn_has_begun(const struct turn *t);

/* Adds a reader, which reads from the turn's start. */
void turn_attach(struct turn *t, struct turn_reader *r);
void turn_attach_completed(struct completed_turn *completed, uint32_t generation,
                           struct turn_reader *r);

/* Says that the last reader has left: the turn ends, unless the turn lingers or is detached. */
void turn_left(struct turn *t, uint64_t deadline_us, enum status why);

/* Ends the turn. A queued turn ends at once, and its readers get CANCELLED or DEADLINE. A turn that
 * was asked ends after the running step. Later turns move up. */
void turn_end(struct turn *t, enum finish why);

/* Ends the turn of this number and the turns behind it as cancelled, and returns how many turns
 * that were. The number 0 stands for all turns, also the turn in flight. */
size_t turn_cancel_from(struct turn_host *h, uint32_t number);
size_t turn_cancel_all(struct turn_host *h);

#endif
