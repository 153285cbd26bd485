/* A request to a batcher, its row in a step, and the flow that it belongs to. */
#ifndef BATCHING_REQUEST_H
#define BATCHING_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/future.h"
#include "base/list.h"
#include "base/status.h"

struct batch_request;
struct tenant;

/* The requests of one clone to one batcher. They run one after the other, in the order of arrival.
 * A member of the clone, which must not move; 32 bytes. */
struct flow {
    struct list queued;         /* requests behind the head */
    struct batch_request *head; /* waiting, running or ending; NULL when there is none */
    struct tenant *tenant;      /* who pays; may change while the flow has no request */
};

/* Of the batcher's own tenant (NULL), until the caller sets another. */
void flow_init(struct flow *f);

enum row_outcome {
    ROW_DONE,   /* the future completes */
    ROW_MORE,   /* there is more to stream or to compute: the row needs another step */
    ROW_FAILED, /* this row alone fails, with row->err */
};

/* One clone's part in one step. Owned by compute while the step runs, by the loop otherwise. */
struct row {
    void *clone;        /* the agent's */
    void *turn;         /* the agent's private state of this request, in the request's arena */
    size_t n_scheduled; /* tokens of its cost that it may compute in this step */
    size_t extra;       /* tokens that compute added to n_scheduled; else 0 */
    enum row_outcome outcome;
    struct error err; /* with ROW_FAILED */
};

enum request_state {
    REQUEST_NEW,
    REQUEST_FLOW_QUEUED, /* behind an earlier request of its flow */
    REQUEST_WAITING,     /* for its first step, or again after it was preempted */
    REQUEST_RUNNING,     /* in a step, or between two */
    REQUEST_ENDING,      /* its result is known; the future settles as soon as the loop is free */
    REQUEST_SETTLED,
};

typedef void (*request_more_fn)(struct batch_request *request, void *arg);

/* A request for steps of a row. It lies in the caller's memory, which the caller zeroes, fills, and
 * keeps until the future is settled. batcher_submit makes the request WAITING, or FLOW_QUEUED while
 * an earlier request of its flow is not settled. When the batcher takes the request's row into a
 * step, the request is RUNNING, and stays so from step to step while the row's outcome is ROW_MORE.
 * A running request that must make room is preempted: it is WAITING again, in front of others. The
 * request is ENDING when its row is done or has failed, or when a cancel, the deadline or the
 * batcher's end has ended it between two steps. The batcher then settles the future, outside of the
 * calls of its callers: the request is SETTLED, the next request of its flow is WAITING, and the
 * memory is the caller's again. */
struct batch_request {
    struct row *row; /* lives as long as the request */
    struct flow *flow;
    uint64_t deadline_us; /* 0: none */
    int priority;         /* higher first; 0 is normal; clamped to -100 … 100 */
    /* Called on the loop after a step whose outcome is ROW_MORE; may be NULL. The next step may
     * already run. After the last step only the future is settled. */
    request_more_fn more;
    void *more_arg;
    struct future reply; /* OK, or the row's error, CANCELLED, DEADLINE, ABORTED, UNAVAILABLE */

    /* Owned by the batcher. */
    struct link link;      /* in the list of its state */
    struct link in_step;   /* while a step has its row */
    struct link to_notify; /* while its more has yet to be called */
    struct link chunked;   /* while a step is formed, if a chunk of its cost is of use */
    enum request_state state;
    bool is_cancelled;
    bool is_preempted; /* waits after it was preempted */
    bool is_paused;    /* runs, but yields its row to other tenants in the next step */
    bool is_chosen;    /* waits and belongs to the next batch (length bucketing) */
    bool is_short; /* when it began, its whole cost could have run in one step within max_itl_us */
    size_t cost;   /* tokens that its next step could compute */
    size_t least;  /* the smallest chunk of cost that is of use in the step that is formed */
    size_t deadline_place; /* in the heap of deadlines, from 1; 0: not in it */
    uint64_t number;       /* heads of flows are numbered 1, 2, … in order */
    uint64_t arrival_us, first_step_us;
    uint64_t since_us; /* when it became the head of its flow; its priority ages from then */
    uint32_t n_steps, n_preempted;
};

#endif
