/* What remote.c and worker.c share. */
#ifndef AGENTS_REMOTE_PARTS_H
#define AGENTS_REMOTE_PARTS_H

#include "agents/remote/remote.h"

struct remote_agent {
    struct agent base;
    const struct remote_config *config;
    struct list workers;
    size_t n_workers;
    /* What all workers offer alike: of the last one that came, while there is none. */
    char version[REMOTE_MAX_VERSION + 1];
    unsigned capabilities;
    enum remote_cost cost;
    uint32_t save_every;
    struct remote_tensors tensors;
    uint32_t epoch;          /* counts versions: states are of one */
    struct batch_step *step; /* the batcher's running step; NULL: none */
    uint64_t n_clones;       /* since the start: ids */
};

struct remote_clone {
    struct clone base;
    uint64_t id;
    struct remote_blob *system;   /* NULL: none was given */
    struct remote_turn *last;     /* NULL: no turn yet */
    struct remote_blob *saved;    /* the newest state; NULL: none */
    struct remote_worker *worker; /* where it is open; NULL: nowhere */
    struct link on_worker;
    struct remote_row *row;   /* of the turn under way; NULL: none */
    struct remote_save *save; /* that its worker was asked for; NULL: none */
};

/* A save that a worker was asked for. */
struct remote_save {
    struct link link;
    uint64_t id;                /* of the clone */
    struct remote_clone *clone; /* NULL: it was closed or taken back since */
    uint32_t turn;
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

/* Gives an idle row to a worker; without one it is answered at once, with a failure. */
void remote_row_assign(struct remote_row *row);
/* Its turn is kept or dropped: frees the row, now or once its worker has answered. */
void remote_row_leave(struct remote_row *row);
/* Lets the workers fill their slots from their queues. */
void remote_agent_send(struct remote_agent *a);
/* Ends the batcher's step if a row of it is answered, or anyway. */
void remote_agent_end_step(struct remote_agent *a, bool is_forced);

/* Orders about a clone. c->worker is not NULL. */
void remote_worker_order_close(struct remote_clone *c);
void remote_worker_order_rewind(struct remote_clone *c);
void remote_worker_order_save(struct remote_clone *c);
/* child becomes what its parent is at at_turn, which is in c's transcript already. */
void remote_worker_order_fork(struct remote_clone *child, const struct remote_clone *parent);
/* The answer to a save is of no use any more. */
void remote_clone_forget_save(struct remote_clone *c);

#endif
