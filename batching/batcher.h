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

/* Who asks: one clone, of one batcher. Its asks keep their order. A member of the clone, which may
 * not move; 24 bytes. */
struct asker {
    struct list behind; /* asks that wait for the one before them */
    struct ask *front;  /* waiting, running or ending; NULL when there is none */
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
    size_t extra; /* 0, unless batch_act says that it spent more than that, unasked */
    enum row_outcome outcome;
    struct error err; /* with ROW_FAILED */
};

enum ask_state {
    ASK_NEW,
    ASK_BEHIND,  /* its asker has an earlier one */
    ASK_WAITING, /* for its first step, or again after it was preempted */
    ASK_RUNNING, /* in a step, or between two */
    ASK_ENDING,  /* its end is known; the future settles as soon as the loop is free */
    ASK_SETTLED,
};

typedef void (*ask_more_fn)(struct ask *ask, void *arg);

/* One question. The caller's memory, zeroed before it is filled, kept until the future settles. */
struct ask {
    struct row *row; /* kept as long as the ask */
    struct asker *asker;
    uint64_t deadline_us; /* 0: none */
    int priority; /* higher first; 0 is normal, -100 … 100, what is beyond counts as that */
    /* After a step that answered ROW_MORE, on the loop; may be NULL. The next step may run already,
     * and an ask that ends does so without: what the last step had to say comes with the future. */
    ask_more_fn more;
    void *more_arg;
    struct future reply; /* OK, or the row's error, CANCELLED, DEADLINE, ABORTED, UNAVAILABLE */

    /* The batcher's own. */
    struct link link;    /* of the list of its state */
    struct link in_step; /* while a step has its row */
    struct link to_tell; /* while its more is due */
    struct link part;    /* while a step is formed in which it could do with less */
    enum ask_state state;
    bool is_cancelled, is_returned; /* returned: waits because it was preempted */
    bool is_chosen;                 /* waits, and is of the next batch by length */
    bool is_short;         /* when it began, one step within the others' bound could have held it */
    size_t cost;           /* while it waits: what it counts for */
    size_t least;          /* of use to it in the step that is formed */
    size_t deadline_place; /* in the heap of deadlines, from 1; 0: not there */
    uint64_t number;       /* of its coming to the front of its asker: 1, 2, … */
    uint64_t arrival_us, first_step_us;
    uint64_t since_us; /* when it came to the front of its asker: from there it ages */
    uint32_t n_steps, n_preempted;
};

/* What a batcher needs from the agent whose asks it batches. */
struct batch_agent {
    /* What the row would spend in its next step if it could: tokens, words, or 1. Loop. */
    size_t (*cost)(void *self, const struct row *row);
    /* Least grant that is of use when the budget is short: rows that can be cut answer less than
     * their cost (a prompt's chunk), others the cost itself. NULL: rows cannot be cut. */
    size_t (*min_grant)(void *self, const struct row *row);
    /* For batches by length: where the row stands among others, the short ones first. NULL: its
     * cost. Loop. */
    uint64_t (*order)(void *self, const struct row *row);
    /* Takes what a step of row->grant needs (pages), or nothing. STATUS_EXHAUSTED: not now. Any
     * other failure is the row's end. May lower the grant, when less is left to spend than it cost
     * before. NULL: nothing to take. Loop, no step runs. */
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

/* A step on its way: submit has run(step) called on compute, then done(step) on the loop, the
 * latter never inside submit. A batcher has at most one under way. */
struct batch_step {
    struct link link;
    uint64_t begun_us; /* when it was submitted; who runs it later may say when */
    void (*run)(struct batch_step *step);
    void (*done)(struct batch_step *step);
};

struct batch_compute {
    void (*submit)(void *self, struct batch_step *step);
    void *self;
};

/* The one timer of a batcher: please call batcher_tick, not inside arm, once the clock has reached
 * at_us, which may be now (0: no more). The last word counts. */
struct batch_timer {
    void (*arm)(void *self, uint64_t at_us);
    void *self;
};

enum batch_policy {
    /* Exactly max_rows; the last to arrive releases the batch. One that is not full when its oldest
     * has waited max_delay_us runs with at least min_rows, and with fewer ends ABORTED as a whole,
     * on time even while a step runs. */
    BATCH_FIXED,
    /* As soon as min_rows are there, at most max_rows; fewer when the oldest has waited
     * max_delay_us. */
    BATCH_WINDOW,
    BATCH_CONTINUOUS, /* running rows first, then waiting ones, until max_cost */
    /* The same, but what steps have taken so far decides: one waits for those who were answered a
     * moment ago, where they will be back before it has lost what one step instead of two saves;
     * and has one row where that saves nothing. */
    BATCH_GATHER,
    /* Of those who wait, rows of like length: one that starts, and its neighbours in order, shorter
     * ones first, until max_rows or max_cost. The two differ in what bounds them by rights:
     * batchsort is given a small max_rows, full a buffer's. */
    BATCH_BATCHSORT,
    BATCH_FULL,
};

/* Under all policies rows that answer MORE are in the next step again, before any other. A fixed
 * group that max_cost or the agent's reserve does not let run in one step runs in several, and the
 * next group begins when all its rows are through. A row whose cost is above max_cost and that
 * cannot be cut runs in a step of its own: the one case in which a step exceeds max_cost. */

struct batcher_config {
    enum batch_policy policy;
    size_t max_rows;         /* of a step */
    size_t min_rows;         /* fixed, window; 0: max_rows */
    size_t max_cost;         /* of a step; 0: no bound */
    size_t max_waiting;      /* asks, not counting those that run; one more is STATUS_EXHAUSTED */
    size_t max_waiting_cost; /* sum over waiting asks, but for one that waits alone; 0: no bound */
    uint64_t max_delay_us;   /* window: 0, at once; fixed: 0, as long as it takes; by length: who
                                has waited so long (by rank: priority counts) starts the next
                                batch; 0: who waits longest always does */
    uint64_t max_itl_us;     /* of a step in which rows that cannot be cut run; 0: no bound */
    uint64_t ageing_us;      /* one step of priority gained per so much waiting; 0: 100 ms */

    /* By length. */
    bool pads;            /* max_cost bounds rows times the largest, not the sum of rows */
    bool start_by_chance; /* a batch starts anywhere, by env; else with the longest */
    size_t rows_multiple; /* batches of more rows than that have a multiple of it; 0: any number */
};

/* n_asked = n_done + n_failed + n_cancelled + n_expired + n_waiting + n_behind + n_running. */
struct batcher_stats {
    size_t n_waiting, n_running, n_behind; /* now; waiting: also those about to settle */
    uint64_t n_steps, n_rows, n_cost;      /* sums over steps */
    uint64_t n_asked, n_refused;
    uint64_t n_done, n_failed, n_cancelled, n_expired, n_preempted;
    size_t max_rows_seen, last_rows;
    uint64_t rows_histogram[12]; /* steps with 1, 2, 3-4, 5-8, … rows: bucket i holds ≤ 2^i */
};

/* STATUS_INVALID names what in the config cannot be. All the memory it will ever use is taken here.
 * The structs are copied; what they point to is borrowed until closed is called. */
enum status batcher_open(struct batcher **out, const struct batcher_config *config,
                         const struct batch_agent *agent, const struct batch_compute *compute,
                         const struct batch_timer *timer, const struct env *env,
                         struct error *err) MUST_CHECK;

void asker_init(struct asker *a);

/* On success the ask waits and its future will be settled, never inside this call. A refusal
 * (EXHAUSTED with a retry hint; UNAVAILABLE when closing; DEADLINE already past) starts nothing. */
enum status batcher_ask(struct batcher *b, struct ask *ask, struct error *err) MUST_CHECK;

/* Another policy and other bounds, from the next batch on: what the present ones let in comes to
 * its end first, and nobody begins meanwhile; then those who wait are looked at anew, none is lost.
 * STATUS_INVALID names what can never be met: what batcher_open refuses, and a max_rows or
 * max_waiting above the one that the batcher was opened with. The last call counts. */
enum status batcher_configure(struct batcher *b, const struct batcher_config *config,
                              struct error *err) MUST_CHECK;

/* Somebody else waits for the ask too: it has until deadline_us (0: for ever), where that is later
 * than until now. */
void batcher_postpone(struct batcher *b, struct ask *ask, uint64_t deadline_us);

/* A wish: the future settles with CANCELLED, at once (but not inside this call) when the ask waits,
 * after the step when it runs. A settled ask must not be given. */
void batcher_cancel(struct batcher *b, struct ask *ask);

/* Settles what has ended, starts a step if the policy wants one. Called by the timer's owner; too
 * early does no harm. */
void batcher_tick(struct batcher *b);

void batcher_stats(const struct batcher *b, struct batcher_stats *out);

/* Refuses new asks, settles what waits with UNAVAILABLE and running asks after their step; then
 * calls closed, on the loop and not inside this call, and the batcher is gone. Not NULL, not twice.
 */
void batcher_close(struct batcher *b, void (*closed)(void *arg), void *arg);

#endif
