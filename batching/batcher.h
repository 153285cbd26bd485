/* The batcher owns the asks that wait for one original (one loaded agent), lets a policy choose the
 * rows of the next step, has the compute thread run that step, and settles each ask's future when
 * its row is done. All on the loop; it never blocks. Wants of time and of compute come in by
 * argument, so the whole of it runs under a fake clock.
 *
 * What holds under every policy: a step is bounded by rows and by cost; an ask settles exactly
 * once; asks of one asker run one after the other in the order of their arrival; priorities age, so
 * none starves; a deadline or a cancel is honoured while waiting and between steps; a row that
 * fails fails alone. */
#ifndef BATCHING_BATCHER_H
#define BATCHING_BATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/future.h"
#include "base/list.h"
#include "base/status.h"

struct batcher;

/* Who asks: one clone. Its asks keep their order. A member of the clone's owner; 32 bytes. */
struct asker {
    struct list behind; /* asks that wait for the one before them */
    struct ask *front;  /* waiting or running, NULL when there is none */
};

enum row_outcome {
    ROW_DONE,   /* the future completes */
    ROW_MORE,   /* something to stream or still to compute: another step, please */
    ROW_FAILED, /* this row alone fails, with row->err */
};

/* One clone's part in one step. Belongs to compute while the step runs, to the loop otherwise. */
struct row {
    void *clone;  /* the agent's */
    void *turn;   /* the agent's private state of this question, in the ask's arena */
    size_t grant; /* of the cost it asked for: what it may spend in this step */
    enum row_outcome outcome;
    struct error err; /* with ROW_FAILED */
};

enum ask_state { ASK_NEW, ASK_BEHIND, ASK_WAITING, ASK_RUNNING, ASK_SETTLED };

typedef void (*ask_more_fn)(struct ask *ask, void *arg);

/* One question. The caller's memory, kept until the future settles. */
struct ask {
    struct row row;
    struct asker *asker;
    uint64_t deadline_us; /* 0: none */
    int priority;         /* higher first; 0 is normal, -100 … 100 */
    ask_more_fn more;     /* after each step that answered ROW_MORE, on the loop; may be NULL */
    void *more_arg;
    struct future reply; /* OK, or the row's error, CANCELLED, DEADLINE, UNAVAILABLE */

    /* The batcher's own. */
    struct link link;
    enum ask_state state;
    bool is_cancelled;
    size_t cost;
    uint64_t arrival_us, first_step_us;
    uint32_t n_steps, n_preempted;
    struct link in_batch;
};

/* What a batcher needs from the agent whose asks it batches. */
struct batch_agent {
    /* What the row would spend in its next step if it could: tokens, words, or 1. Loop. */
    size_t (*cost)(void *self, const struct row *row);
    /* Least grant that is of use when the budget is short: rows that can be cut answer less than
     * their cost (a prompt's chunk), others the cost itself. NULL: rows cannot be cut. */
    size_t (*min_grant)(void *self, const struct row *row);
    /* Takes what a step of row->grant needs (pages). STATUS_EXHAUSTED: not now. NULL: nothing. */
    enum status (*reserve)(void *self, struct row *row, struct error *err);
    /* Preempted: gives up what the row holds; it will be asked again from its start. NULL if
     * reserve is. */
    void (*release)(void *self, struct row *row);
    /* One step of all rows; sets each outcome. Compute thread. */
    void (*batch_act)(void *self, struct row *const *rows, size_t n);
    /* Back on the loop after each step, for every row of it, before its ask's more or its future:
     * what compute left in the row becomes the loop's. NULL: nothing. */
    void (*stepped)(void *self, struct row *row);
    void *self;
};

/* Runs a step: calls run(batch) on compute, then back on the loop calls done(batch). */
struct batch_step {
    struct link link;
    void (*run)(struct batch_step *step);
    void (*done)(struct batch_step *step);
};

struct batch_compute {
    void (*submit)(void *self, struct batch_step *step);
    void *self;
};

/* The one timer of a batcher: please call batcher_tick at at_us (0: no more). */
struct batch_timer {
    void (*arm)(void *self, uint64_t at_us);
    void *self;
};

enum batch_policy {
    BATCH_FIXED,      /* exactly max_rows; the last to arrive releases the batch */
    BATCH_WINDOW,     /* at most max_rows, or when the oldest has waited max_delay_us */
    BATCH_CONTINUOUS, /* running rows first, then waiting ones, until max_cost */
};

struct batcher_config {
    enum batch_policy policy;
    size_t max_rows;         /* of a step */
    size_t max_cost;         /* of a step; 0: no bound */
    size_t max_waiting;      /* asks; one more is STATUS_EXHAUSTED */
    size_t max_waiting_cost; /* sum over waiting asks; 0: no bound */
    uint64_t max_delay_us;   /* window */
    uint64_t ageing_us;      /* one step of priority gained per so much waiting; 0: 100 ms */
};

struct batcher_stats {
    size_t n_waiting, n_running, n_behind;
    uint64_t n_steps, n_rows, n_cost; /* sums over steps */
    uint64_t n_done, n_failed, n_cancelled, n_expired, n_refused, n_preempted;
    size_t max_rows_seen, last_rows;
    uint64_t rows_histogram[12]; /* steps with 1, 2, 3-4, 5-8, … rows: bucket i holds ≤ 2^i */
};

enum status batcher_open(struct batcher **out, const struct batcher_config *config,
                         const struct batch_agent *agent, const struct batch_compute *compute,
                         const struct batch_timer *timer, const struct env *env,
                         struct error *err) MUST_CHECK;

void asker_init(struct asker *a);

/* On success the ask waits and its future will be settled, never inside this call. A refusal
 * (EXHAUSTED with a retry hint; UNAVAILABLE when closing; DEADLINE already past) starts nothing. */
enum status batcher_ask(struct batcher *b, struct ask *ask, struct error *err) MUST_CHECK;

/* A wish: the future settles with CANCELLED, at once (but not inside this call) when the ask waits,
 * after the step when it runs. A settled ask must not be given. */
void batcher_cancel(struct batcher *b, struct ask *ask);

/* Starts a step if the policy wants one; honours deadlines. Called by the timer's owner. */
void batcher_tick(struct batcher *b);

void batcher_stats(const struct batcher *b, struct batcher_stats *out);

/* Refuses new asks, settles what waits with UNAVAILABLE and running asks after their step; then
 * calls closed, on the loop, and the batcher is gone. */
void batcher_close(struct batcher *b, void (*closed)(void *arg), void *arg);

#endif
