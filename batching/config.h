/* A batcher's configuration and its statistics. */
#ifndef BATCHING_CONFIG_H
#define BATCHING_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Under all policies rows that answer MORE are in the next step again, before any other. A fixed
 * batch that max_cost or the agent's reserve does not let run in one step runs in several, and the
 * next batch begins when all its rows have ended. A row whose cost is above max_cost and that
 * cannot be chunked runs in a step of its own: the one case in which a step exceeds max_cost. */
enum batch_policy {
    /* Exactly max_rows; the last request to arrive starts the batch. A batch that is not full when
     * its oldest request has waited max_delay_us runs with at least min_rows; with fewer all its
     * requests end ABORTED, on time even while a step runs. */
    BATCH_FIXED,
    /* Starts once min_rows wait, with at most max_rows; with fewer once the oldest has waited
     * max_delay_us. */
    BATCH_WINDOW,
    BATCH_CONTINUOUS, /* running rows first, then waiting ones, until max_cost */
    /* As continuous, but measured step times decide: a step waits for clients that were answered a
     * moment ago, if they are expected back before the wait costs more than merging two steps
     * saves. Where batches save nothing, a step has one row. */
    BATCH_ADAPTIVE,
    /* Length bucketing: one waiting request starts a batch, and its neighbours in order of length
     * join, shorter ones first, until max_rows or max_cost. The two differ only in their usual
     * bounds: batchsort gets a small max_rows, full the size of a buffer. */
    BATCH_BATCHSORT,
    BATCH_FULL,
};

struct batcher_config {
    enum batch_policy policy;
    size_t max_rows;         /* of a step */
    size_t min_rows;         /* fixed, window; 0: max_rows */
    size_t max_cost;         /* of a step; 0: no bound */
    size_t max_waiting;      /* requests, not counting running ones; one more is STATUS_EXHAUSTED */
    size_t max_waiting_cost; /* sum over waiting requests, unless one waits alone; 0: no bound */
    uint64_t max_delay_us;   /* window: 0: no wait; fixed: 0: no limit; length bucketing: a request
                                that waited so long (by aged priority) starts the next batch; 0: the
                                oldest always does */
    uint64_t max_itl_us; /* inter-token latency: bounds a step that has decode rows; 0: no bound */
    uint64_t ageing_us;  /* a request gains one priority per so much waiting; 0: 100 ms */

    /* Length bucketing. */
    bool pads;            /* max_cost bounds rows times the largest cost, not the sum of costs */
    bool start_by_chance; /* a random request (drawn from env) starts a batch; else the longest */
    size_t rows_multiple; /* batches of more rows than that have a multiple of it; 0: any number */
};

/* n_submitted = n_done + n_failed + n_cancelled + n_expired + n_waiting + n_flow_queued +
 * n_running. */
struct batcher_stats {
    size_t n_waiting, n_running;      /* now; waiting: also those about to settle */
    size_t n_flow_queued;             /* now: queued behind the head of their flow */
    uint64_t n_steps, n_rows, n_cost; /* sums over steps */
    uint64_t n_submitted, n_refused;
    uint64_t n_done, n_failed, n_cancelled, n_expired, n_preempted;
    size_t max_rows_seen, last_rows;
    uint64_t rows_histogram[12]; /* steps with 1, 2, 3-4, 5-8, … rows: bucket i holds ≤ 2^i */
};

#endif
