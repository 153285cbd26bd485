/* A remote agent is computed by another process, a worker, over a stream (parley.v1.Agents.Attach).
 * The worker keeps a clone for each conversation and answers steps. Parley keeps what a clone can
 * be built anew from: the transcript, and the state that the worker saved last. When a worker goes
 * away, its clones are opened at another worker of the agent as soon as they have a turn, so only
 * time is lost.
 *
 * This folder decides which worker gets which row, and checks the workers' answers. It knows no
 * transport: orders wait in the worker's list until the worker's stream takes them. Everything here
 * is called on the loop. */
#ifndef AGENTS_REMOTE_REMOTE_H
#define AGENTS_REMOTE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/agent.h"
#include "agents/remote/tensors.h"
#include "agents/remote/transcript.h"
#include "agents/turn.h"
#include "base/list.h"
#include "base/peer.h"
#include "base/status.h"

struct remote_agent;
struct remote_clone;
struct remote_row;

/* The spec in the agent_config of this kind is the struct peers among which the agent's workers
 * are. It must outlive the agent. Whoever calls peers_tick must call remote_agent_tick, too. */
extern const struct agent_type remote_agent_type;

enum {
    REMOTE_MAX_ROWS = 1024, /* rows of one step of one worker, and rows of an agent in flight */
    REMOTE_MAX_SLOTS = 16,  /* steps that one worker may have at once */
    REMOTE_MAX_STATE_BYTES = 1 << 20,       /* size of a saved state */
    REMOTE_MAX_PIECE_BYTES = 64 << 10,      /* text of one answer to one row */
    REMOTE_MAX_STEP_BYTES = 2 << 20,        /* messages of a step that has more than one row; the
                                               transcript of a conversation of a stateless agent */
    REMOTE_MAX_TRANSCRIPT_BYTES = 16 << 20, /* the transcript of any other conversation */
    REMOTE_MAX_ORDERS = 1 << 18,            /* for max_orders of the peers that are workers */
    REMOTE_MAX_VERSION = 64,                /* bytes of a version */
    REMOTE_SAVE_EVERY = 8,                  /* turns between two saves of a clone's state */
    REMOTE_MAX_LOSSES = 3,                  /* a turn that has lost so many workers fails */
    REMOTE_RETRY_MS = 1000,                 /* when to retry a turn that no worker could answer */
};

/* What a worker's clones can do. */
enum remote_capability {
    REMOTE_FORK = 1,
    REMOTE_REWIND = 2,
    REMOTE_SAVE = 4,
    REMOTE_DETERMINISTIC = 8, /* the same messages and sampling always give the same reply */
    REMOTE_STATELESS = 16,    /* the worker has no clones: each row carries the conversation */
};

/* What a worker's max_cost counts: rows, or bytes of messages. */
enum remote_cost { REMOTE_COST_ROWS, REMOTE_COST_BYTES };

/* A worker's description of itself. Workers of one agent must agree on version, cost, capabilities
 * and tensors. */
struct remote_offer {
    const char *version; /* letters, digits, '.', '_', '+' and '-'; "" stands for "1" */
    size_t max_rows;     /* the most rows of a step; 0: 64 */
    size_t n_slots;      /* the most steps that the worker takes at once; 0: 1 */
    size_t max_cost;     /* the largest cost of a step with more than one row; 0: no bound */
    enum remote_cost cost;
    unsigned capabilities; /* a sum of enum remote_capability */
    uint32_t save_every;   /* turns between two saves of a clone's state; 0: REMOTE_SAVE_EVERY */
    bool is_acting;        /* the worker acts on observations; it is then stateless */
    struct remote_tensors tensors; /* what it takes and gives if is_acting; else all zero */
};

/* The kinds of orders, with the members of struct remote_order that each uses besides clone. */
enum remote_order_kind {
    REMOTE_ORDER_OPEN,   /* opens a clone: system, state (NULL: none), at_turn of the state */
    REMOTE_ORDER_REPLAY, /* has the clone take in a turn that it had elsewhere: turn */
    REMOTE_ORDER_FORK,   /* opens a clone as a copy of another after a turn: parent, at_turn */
    REMOTE_ORDER_REWIND, /* takes the clone back to after a turn: at_turn */
    REMOTE_ORDER_CLOSE,  /* closes the clone */
    REMOTE_ORDER_STEP,   /* asks for answers to rows: step, without clone */
    REMOTE_ORDER_CANCEL, /* tells that the answer to a row will be ignored: step_id, row */
    REMOTE_ORDER_SAVE,   /* asks for the clone's state */
};

/* A message that waits for a worker's stream. The worker owns it until remote_worker_taken. */
struct remote_order {
    struct peer_order base; /* awaited if the order is a step */
    enum remote_order_kind kind;
    uint64_t clone, parent, step_id;    /* ids */
    uint32_t at_turn, row;              /* numbers: of a turn; of a row in its step */
    struct remote_blob *system, *state; /* one reference each, or NULL */
    struct remote_turn *turn;           /* one reference, or NULL */
};

/* A step of one worker: rows that it is asked to answer together. remote_agent_send makes it. It
 * ends when the worker answers it, when its last row is left before the order was taken, or when
 * the worker is closed. */
struct remote_step {
    struct remote_order order; /* sends the step */
    uint64_t id;               /* unique for the worker, from 1 */
    struct list rows;          /* of struct remote_row, in the order of their numbers */
    size_t n_rows;
};

/* A row: the agent's private state of a turn under way. remote_observe makes it IDLE. Each step of
 * the batcher gives an IDLE row to a worker; there it is QUEUED until a slot is free, SENT in a
 * step, and ANSWERED when the worker has answered. The end of the batcher's step reports the
 * outcome and makes the row IDLE again, for its next piece. When the turn is kept or dropped, the
 * row is left (remote_row_leave) and freed. A row that is SENT in a step already taken outlives its
 * turn: it is freed when its worker answers or is closed. */
struct remote_row {
    struct link link;              /* in its worker's queue, or in its step */
    struct agent_turn *turn;       /* NULL: the row was left, and its answer is ignored */
    struct remote_clone *clone;    /* NULL: the row was left */
    struct remote_turn *said;      /* the turn as the transcript will have it; its reply grows */
    struct remote_worker *worker;  /* the row's worker while it is QUEUED or SENT */
    struct remote_step *step;      /* the row's step while it is SENT */
    uint32_t number;               /* the row's number in the step, set when the order is taken */
    struct remote_tensors tensors; /* the agent's tensors when the turn was observed */
    enum remote_row_state {
        REMOTE_ROW_IDLE,
        REMOTE_ROW_QUEUED,
        REMOTE_ROW_SENT,
        REMOTE_ROW_ANSWERED,
    } state;
    bool has_begun;  /* the row's worker has answered it before */
    bool is_whole;   /* the worker's clone has taken in the whole turn */
    bool has_failed; /* the worker has failed the row, so its clone is as before the turn */
    size_t n_repeat; /* bytes of the known reply that a new worker has still to say again; they are
                        compared and left out */
    unsigned n_lost; /* workers that the turn has lost */
    enum row_outcome outcome; /* once ANSWERED */
    struct error err;         /* once ANSWERED, if the outcome is ROW_FAILED */
};

/* An attached worker. It lies in the memory of its stream, which opens peer, calls
 * remote_worker_open, takes orders, brings answers, and when it has ended closes peer and calls
 * remote_worker_close. */
struct remote_worker {
    struct peer peer;                   /* its orders are of struct remote_order; its awaited
                                           orders are the worker's steps */
    struct link link;                   /* in the agent's workers */
    struct remote_agent *agent;         /* NULL: the worker is not open */
    size_t max_rows, n_slots, max_cost; /* from its offer */
    struct list queued;                 /* of struct remote_row: rows that wait for a slot */
    size_t n_rows;                      /* rows, queued and in steps */
    struct list clones; /* of struct remote_clone: clones that are open at this worker */
    size_t n_clones;
    struct list saves;   /* of struct remote_save: states that it was asked for, oldest first */
    uint64_t n_numbered; /* id of the newest step */
};

/* A worker's answer to one row. All of it is borrowed. */
struct remote_answer {
    uint32_t row;             /* the row's number in its step */
    const char *text;         /* UTF-8: the next piece of the reply, "" for none */
    enum row_outcome outcome; /* DONE: the reply is complete; MORE: the row wants another step */
    enum finish finish;       /* with ROW_DONE */
    uint32_t n_prompt;        /* tokens of the prompt, as the worker counts them; 0: not counted */
    struct error err;         /* with ROW_FAILED */
    const struct tensor_view *output; /* [n_output], with ROW_DONE, if the worker acts */
    size_t n_output;
    uint64_t params_version; /* of the parameters that made the output */
};

/* Attaches a worker, whose peer is open, to the agent. INVALID names the field of the offer that is
 * at fault. PRECONDITION if the agent's other workers offer something else. A failure leaves the
 * agent unchanged. The offer is copied. */
enum status remote_worker_open(struct remote_worker *w, struct agent *a,
                               const struct remote_offer *offer, struct error *err) MUST_CHECK;
/* Detaches a worker that has gone: frees its orders, and gives its rows to other workers or ends
 * them. Does nothing if the worker is not open. */
void remote_worker_close(struct remote_worker *w);

/* Returns the next order to send, NULL if there is none. The caller must send it and call
 * remote_worker_taken at once: an order that waits may be recalled and freed. */
const struct remote_order *remote_worker_order(const struct remote_worker *w);
/* Tells that the order of remote_worker_order was sent; frees it. There must be one. */
void remote_worker_taken(struct remote_worker *w);

/* Takes a worker's answers to a step: each row of the step once. INVALID if the step was not sent
 * or has its answer, or if an answer is not valid. Then nothing of them was used, and the caller
 * must end the worker. */
enum status remote_worker_answer(struct remote_worker *w, uint64_t step_id,
                                 const struct remote_answer *answers, size_t n,
                                 struct error *err) MUST_CHECK;
/* Takes a clone's state, the worker's answer to REMOTE_ORDER_SAVE; it is copied. INVALID if this
 * state was not asked for or is too large; the caller must then end the worker. */
enum status remote_worker_state(struct remote_worker *w, uint64_t clone, const void *data,
                                size_t size_bytes, struct error *err) MUST_CHECK;

/* Ends the batcher's step if a turn of it is past its deadline, so that the batcher can end the
 * turn; else arms for the turn that is due next. */
void remote_agent_tick(struct agent *a, uint64_t now_us);
/* Returns how many rows the agent's workers take at once, at most REMOTE_MAX_ROWS. */
size_t remote_agent_capacity(const struct agent *a);
size_t remote_agent_n_workers(const struct agent *a);

/* For streams: the clone's id and system prompt (may be NULL) of a row in a step that was not taken
 * yet. */
uint64_t remote_row_clone(const struct remote_row *row);
const struct remote_blob *remote_row_system(const struct remote_row *row);
/* Returns whether the worker's agent is stateless. */
bool remote_worker_is_stateless(const struct remote_worker *w);
/* Returns the step that an order of kind REMOTE_ORDER_STEP sends. */
const struct remote_step *remote_order_step(const struct remote_order *o);
/* Sets err to the reason why a silent worker is ended: its oldest step has no answer. */
void remote_worker_say_silent(const struct remote_worker *w, struct error *err);

#endif
