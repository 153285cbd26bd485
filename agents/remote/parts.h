/* The structs and functions that remote.c (the agent and its clones) and worker.c (rows and
 * workers) have in common. No other file includes this. Loop. */
#ifndef AGENTS_REMOTE_PARTS_H
#define AGENTS_REMOTE_PARTS_H

#include "agents/remote/remote.h"

struct remote_agent {
    struct agent base;
    const struct peers *peers; /* the config's spec, borrowed */
    struct list workers;       /* of struct remote_worker */
    size_t n_workers;
    /* What all workers offer alike. While none is attached these are the values of the worker that
     * was attached last; the next worker may bring others. */
    char version[REMOTE_MAX_VERSION + 1];
    unsigned capabilities;
    enum remote_cost cost;
    uint32_t save_every;
    struct remote_tensors tensors;
    uint32_t epoch;          /* rises with each change of version; a saved state is of one epoch */
    struct batch_step *step; /* the batcher's running step; NULL: none */
    uint64_t n_clones;       /* clones made since the start; the newest clone's id */
};

/* A clone. clone_open or fork makes it without a worker; its first row opens it at one. While it is
 * open there and no turn is under way, the worker's clone has exactly the turns of the transcript.
 * A worker that goes away, or a turn that the worker has otherwise than the transcript, leaves the
 * clone without a worker again. */
struct remote_clone {
    struct clone base;
    uint64_t id;
    struct remote_blob *system;   /* the system prompt; NULL: none was given */
    struct remote_turn *last;     /* the last turn of the transcript; NULL: no turn yet */
    struct remote_blob *saved;    /* the newest saved state; NULL: none */
    struct remote_worker *worker; /* the worker at which the clone is open; NULL: none */
    struct link on_worker;        /* in the worker's clones */
    struct remote_row *row;       /* the row of the turn under way; NULL: none */
    struct remote_save *save;     /* the save that its worker was asked for; NULL: none */
};

/* A state that a worker was asked to save. The worker's list owns it until the state comes. */
struct remote_save {
    struct link link;           /* in the worker's saves */
    uint64_t id;                /* the clone's id */
    struct remote_clone *clone; /* NULL: the clone was closed or rewound since; the state is of no
                                   use */
    uint32_t turn;              /* the clone's number of turns when it was asked for */
};

static inline struct remote_agent *remote_of(struct agent *a)
{
    return container_of(a, struct remote_agent, base);
}

static inline const struct remote_agent *const_remote_of(const struct agent *a)
{
    return (const struct remote_agent *)a; /* base comes first */
}

static inline struct remote_clone *remote_clone_of(struct clone *c)
{
    return container_of(c, struct remote_clone, base);
}

static inline const struct remote_clone *const_remote_clone_of(const struct clone *c)
{
    return (const struct remote_clone *)c; /* base comes first */
}

static inline struct remote_agent *remote_agent_of(const struct remote_clone *c)
{
    return remote_of(c->base.agent);
}

static inline uint32_t remote_clone_n_turns(const struct remote_clone *c)
{
    return c->last == NULL ? 0 : c->last->number;
}

static inline bool remote_agent_can(const struct remote_agent *a, enum remote_capability what)
{
    return (a->capabilities & what) != 0;
}

/* Queues an IDLE row at its clone's worker, or at the least busy one, which is told to open the
 * clone. If no worker can take the row, the row is ANSWERED at once: with a failure, or, if it has
 * a part of its reply, as DONE with FINISH_WORKER_LOST. */
void remote_row_assign(struct remote_row *row);
/* Called when the row's turn is kept or dropped: frees the row, now or when its worker answers. */
void remote_row_leave(struct remote_row *row);
/* Sends queued rows in steps, as far as the workers have free slots. */
void remote_agent_send(struct remote_agent *a);
/* Ends the batcher's step if at least one of its rows is ANSWERED, or if is_forced. Rows that are
 * not ANSWERED end it with ROW_MORE. */
void remote_agent_end_step(struct remote_agent *a, bool is_forced);

/* Give the clone's worker an order about it; c->worker is not NULL. close also detaches the clone
 * from the worker; rewind takes it back to the clone's last turn; save does nothing if a save was
 * asked for already. */
void remote_worker_order_close(struct remote_clone *c);
void remote_worker_order_rewind(struct remote_clone *c);
void remote_worker_order_save(struct remote_clone *c);
/* Tells the parent's worker to open child as a copy of the parent after child's last turn. child
 * has its transcript already. */
void remote_worker_order_fork(struct remote_clone *child, const struct remote_clone *parent);
/* Has the state that the clone's worker was asked to save ignored when it comes. */
void remote_clone_forget_save(struct remote_clone *c);

#endif
