/* The interfaces that a batcher works through: the agent whose rows it batches, the compute that
 * runs a step, and a timer. */
#ifndef BATCHING_ADAPTERS_H
#define BATCHING_ADAPTERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct row;

/* The agent whose requests are batched. Loop. */
struct batch_agent {
    /* What the row could compute in its next step: tokens, words, or 1. */
    size_t (*cost)(void *self, const struct row *row);
    /* The smallest prefill chunk that is of use when the budget is short: less than the cost for
     * rows that can be chunked, the cost itself for others. NULL: no row can be chunked. */
    size_t (*min_chunk)(void *self, const struct row *row);
    /* For length bucketing: rows sort by this, short ones first. NULL: by their cost. */
    uint64_t (*order)(void *self, const struct row *row);
    /* Reserves what a step of row->n_scheduled tokens needs (pages), all or nothing.
     * STATUS_EXHAUSTED: not now; any other failure ends the row. May lower n_scheduled if less is
     * left to compute than cost said. NULL: nothing to reserve. Called while no step runs. */
    enum status (*reserve)(void *self, struct row *row, struct error *err);
    /* The row is preempted: releases what it reserved; its next step begins from its start. NULL if
     * reserve is. */
    void (*release)(void *self, struct row *row);
    /* Called after each step for every row of it, before the request's more or future: takes over
     * what compute left in the row. May be NULL. */
    void (*stepped)(void *self, struct row *row);
    void *self;
};

/* A step that is computed. A batcher has at most one. */
struct batch_step {
    struct row *const *rows; /* [n_rows] owned by compute until done */
    size_t n_rows;
    uint64_t begun_us; /* set by the batcher; compute may correct it if it starts later */
    void (*done)(struct batch_step *step);
};

/* Runs steps: a thread, another process, or the loop itself. begin starts the step. When the step
 * ends, compute calls done(step) on the loop, never inside begin. It must always do so: cancels and
 * a close wait for it. By then each row has its outcome; a row without one has failed. */
struct batch_compute {
    void (*begin)(void *self, struct batch_step *step);
    /* A request of the running step was cancelled: a step that may take long can end now, with
     * ROW_MORE for rows that are not finished. done is not called inside. NULL: it is not told. */
    void (*interrupt)(void *self);
    void *self;
};

/* The one timer of a batcher. Its owner calls batcher_tick once the clock has reached at_us, which
 * may be now, but not inside arm. at_us 0 disarms it. The last call counts. */
struct batch_timer {
    void (*arm)(void *self, uint64_t at_us);
    void *self;
};

#endif
