/* Agents that another process computes, a worker, over a stream (parley.v1.Agents.Attach). The
 * worker keeps a clone for each conversation and answers steps; Parley keeps what a clone can be
 * built anew from: the transcript, and the state that the worker saved last. A worker that goes
 * away loses nothing but time: its clones are opened at another worker of the agent when they are
 * needed.
 *
 * This folder decides which worker gets which row, and checks what comes back. It knows no
 * transport: orders wait in the worker's list until its stream takes them. Loop. */
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
#include "base/status.h"

struct remote_agent;
struct remote_clone;
struct remote_row;

extern const struct agent_type remote_agent_type;

enum {
    REMOTE_MAX_ROWS = 1024, /* of one step of one worker, and of all in flight */
    REMOTE_MAX_SLOTS = 16,
    REMOTE_MAX_STATE_BYTES = 1 << 20,
    REMOTE_MAX_PIECE_BYTES = 64 << 10,
    REMOTE_MAX_STEP_BYTES = 2 << 20,        /* of the messages of a step, unless it has one row */
    REMOTE_MAX_TRANSCRIPT_BYTES = 16 << 20, /* of a conversation, unless the agent is stateless */
    REMOTE_MAX_ORDERS = 1 << 18,            /* that a worker has not taken yet */
    REMOTE_MAX_VERSION = 64,
    REMOTE_SAVE_EVERY = 8, /* turns */
    REMOTE_MAX_LOSSES = 3, /* workers that one turn may lose */
    REMOTE_RETRY_MS = 1000,
};

enum remote_capability {
    REMOTE_FORK = 1,
    REMOTE_REWIND = 2,
    REMOTE_SAVE = 4,
    REMOTE_DETERMINISTIC = 8, /* the same messages and sampling always give the same reply */
    REMOTE_STATELESS = 16,    /* no clones: each row carries the conversation */
};

enum remote_cost { REMOTE_COST_ROWS, REMOTE_COST_BYTES };

/* What a worker offers. */
struct remote_offer {
    const char
        *version;    /* "": "1". Workers of one agent have the same, and the same capabilities */
    size_t max_rows; /* of a step; 0: 64 */
    size_t n_slots;  /* steps that it takes at once; 0: 1 */
    size_t max_cost; /* of a step with more than one row; 0: no bound */
    enum remote_cost cost;
    unsigned capabilities; /* of enum remote_capability */
    uint32_t save_every;   /* turns between two saves of a clone's state; 0: REMOTE_SAVE_EVERY */
    bool is_acting;        /* on observations, as tensors says; such a worker is stateless */
    struct remote_tensors tensors; /* all zero unless is_acting */
};

/* The spec of an agent_config for this kind; outlives the agent. */
struct remote_config {
    uint64_t silence_us; /* a step that is not answered within this ends its worker */
    /* remote_agent_tick is to be called at at_us, or earlier. */
    void (*arm)(void *arg, uint64_t at_us);
    void *arg;
};

enum remote_order_kind {
    REMOTE_ORDER_OPEN,   /* system, state (NULL: none) */
    REMOTE_ORDER_REPLAY, /* turn: one that the clone has had */
    REMOTE_ORDER_FORK,   /* parent, at_turn */
    REMOTE_ORDER_REWIND, /* at_turn */
    REMOTE_ORDER_CLOSE,
    REMOTE_ORDER_STEP,   /* step */
    REMOTE_ORDER_CANCEL, /* step_id, row: its answer is of no use any more */
    REMOTE_ORDER_SAVE,
};

struct remote_step {
    struct link link; /* in the worker's steps, oldest first */
    uint64_t id;
    struct list rows; /* of struct remote_row; a row's number is its place */
    size_t n_rows;
    struct remote_order *order; /* that sends it; NULL once it is taken */
    uint64_t due_us;
};

/* A row of a turn; the agent's private state of it. */
struct remote_row {
    struct link link;              /* in its worker's queue, or in its step */
    struct agent_turn *turn;       /* NULL: it was left, and the answer is ignored */
    struct remote_clone *clone;    /* NULL as turn */
    struct remote_turn *said;      /* the turn as it will be in the transcript; its reply grows */
    struct remote_worker *worker;  /* QUEUED, SENT */
    struct remote_step *step;      /* SENT */
    uint32_t number;               /* within the step, once that is taken */
    struct remote_tensors tensors; /* the agent's, when the turn was observed */
    enum remote_row_state {
        REMOTE_ROW_IDLE,
        REMOTE_ROW_QUEUED,   /* at its worker, for a slot */
        REMOTE_ROW_SENT,     /* in a step */
        REMOTE_ROW_ANSWERED, /* outcome and err wait for the batcher */
    } state;
    bool has_begun;  /* its worker has answered it before, with ROW_MORE */
    bool is_whole;   /* the worker's clone has the whole turn */
    bool has_failed; /* the worker's clone is as before the turn */
    size_t n_repeat; /* bytes of the reply that another worker is to say again first */
    unsigned n_lost;
    enum row_outcome outcome;
    struct error err;
};

struct remote_order {
    struct link link;
    enum remote_order_kind kind;
    uint64_t clone, parent, step_id;
    uint32_t at_turn, row;
    struct remote_blob *system, *state; /* shared */
    struct remote_turn *turn;           /* shared */
    struct remote_step *step;           /* the worker's */
};

/* A worker that is attached; in the memory of its stream. */
struct remote_worker {
    struct link link;           /* in the agent's workers */
    struct remote_agent *agent; /* NULL: not open */
    size_t max_rows, n_slots, max_cost;
    struct list orders; /* of struct remote_order; the stream takes them in order */
    size_t n_orders;
    struct list queued; /* rows without a slot */
    struct list steps;
    size_t n_steps, n_rows; /* rows: queued and in steps */
    struct list clones;     /* open here */
    size_t n_clones;
    struct list saves; /* asked for, oldest first */
    uint64_t n_numbered;
    bool is_flooded; /* it has left too many orders untaken */
    /* The stream's: there are orders to take. */
    void (*notify)(struct remote_worker *w);
    /* The stream's: the worker is at fault; it is to be closed, and its stream ended with err. */
    void (*fail)(struct remote_worker *w, const struct error *err);
};

/* A row's answer. */
struct remote_answer {
    uint32_t row;
    const char *text; /* UTF-8; the next piece of the reply */
    enum row_outcome outcome;
    enum finish finish; /* with ROW_DONE */
    uint32_t n_prompt;  /* tokens of the prompt, as the worker counts them; 0: not counted */
    struct error err;   /* with ROW_FAILED */
    /* With ROW_DONE, of agents that act. */
    const struct tensor_view *output; /* [n_output] */
    size_t n_output;
    uint64_t params_version;
};

/* INVALID names the field; PRECONDITION where the agent's other workers offer something else. */
enum status remote_worker_open(struct remote_worker *w, struct agent *a,
                               const struct remote_offer *offer, struct error *err) MUST_CHECK;
/* The worker is gone: its rows go to others, or end. NULL agent is fine. */
void remote_worker_close(struct remote_worker *w);

/* The next order to send; NULL: none. It is valid until remote_worker_taken. */
const struct remote_order *remote_worker_order(const struct remote_worker *w);
/* The order is sent. */
void remote_worker_taken(struct remote_worker *w);

/* The answer to a step, each of whose rows must be in it once. On failure the worker is to be
 * closed: nothing of the answer was used. */
enum status remote_worker_answer(struct remote_worker *w, uint64_t step_id,
                                 const struct remote_answer *answers, size_t n,
                                 struct error *err) MUST_CHECK;
/* The answer to REMOTE_ORDER_SAVE; likewise. */
enum status remote_worker_state(struct remote_worker *w, uint64_t clone, const void *data,
                                size_t size_bytes, struct error *err) MUST_CHECK;

/* Ends workers that are silent, and lets turns whose deadline has passed end. Returns when to call
 * it again; 0: not because of what there is now. */
uint64_t remote_agent_tick(struct agent *a, uint64_t now_us);
/* Rows that its workers take at once. */
size_t remote_agent_capacity(const struct agent *a);
size_t remote_agent_n_workers(const struct agent *a);

/* For streams, of a row in a step that is not taken yet; system may be NULL. */
uint64_t remote_row_clone(const struct remote_row *row);
const struct remote_blob *remote_row_system(const struct remote_row *row);
bool remote_worker_is_stateless(const struct remote_worker *w);

#endif
