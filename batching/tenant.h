/* A tenant of a batcher: the requests of one principal. Tenants that wait share the scheduled
 * tokens in proportion to their weights, however much each has queued. Each tenant counts the
 * tokens that its rows were scheduled, divided by its weight; the waiting tenant of the smallest
 * count is next. A tenant that returns from idleness starts at the smallest count of the others, so
 * idleness earns no credit. (The virtual token counter of "Fairness in Serving Large Language
 * Models", OSDI 2024.) Priorities order the requests of one tenant, not those of different ones. */
#ifndef BATCHING_TENANT_H
#define BATCHING_TENANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

enum {
    PRIORITY_MAX = 100,
    N_PRIORITIES = 2 * PRIORITY_MAX + 1,
    TENANT_WEIGHT_MAX = 1000,
};

/* The caller's memory. It must not move and must outlive the batcher. On the loop. */
struct tenant {
    /* Owned by the batcher. */
    struct link active; /* among those with requests that wait or run, or that had some lately */
    struct list queues[N_PRIORITIES];          /* waiting requests, each in the order of since_us */
    uint64_t in_use[(N_PRIORITIES + 63) / 64]; /* bit i: queues[i] is not empty */
    size_t n_queued;                           /* in queues */
    size_t n_active;                           /* requests that wait or run */
    size_t n_flow_queued;                      /* requests behind the head of their flow */
    size_t waiting_cost;                       /* of those that wait or are queued in their flow */
    size_t n_rows;                             /* running requests, without the paused ones */
    size_t n_paused;                           /* running requests that yield their rows */
    size_t n_granted;      /* rows that it may have in the step that is formed */
    size_t max_rows;       /* likewise, for its share of the time; SIZE_MAX: no bound */
    uint64_t left_us;      /* it has had no request since */
    double run_us;         /* what its requests took, smoothed */
    uint64_t token_charge; /* added to served for each token */
    uint64_t served;       /* scheduled tokens divided by the weight */
};

/* weight: 1 … TENANT_WEIGHT_MAX. */
void tenant_init(struct tenant *t, unsigned weight);
/* Takes effect with the next step. */
void tenant_set_weight(struct tenant *t, unsigned weight);

/* True if a is to be scheduled before b. */
bool tenant_is_before(const struct tenant *a, const struct tenant *b);
/* Charges it for n tokens. */
void tenant_charge(struct tenant *t, size_t n);
/* n rows divided by its weight: only comparisons are meaningful. */
uint64_t tenant_rows(const struct tenant *t, size_t n);

#endif
