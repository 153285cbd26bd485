/* The requests that wait for a step, and which of them is next: first those that were preempted,
 * then those of the tenant that is next (tenant.h), by aged priority. A request gains one priority
 * for each ageing_us that it waits. So its aged priority is a time, since_us - priority *
 * ageing_us, the smallest first. It does not change while the request waits, so nothing is sorted
 * again. */
#ifndef BATCHING_WAITING_H
#define BATCHING_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "batching/tenant.h"

struct batch_request;

struct waiting {
    struct list preempted;        /* in the order in which they proceed */
    struct list chosen;           /* requests of the next batch, in order (length bucketing) */
    struct list tenants;          /* those with requests that wait or run */
    struct list recent;           /* those that had some lately, the longest ago first */
    struct tenant own;            /* of flows that name no tenant */
    uint64_t virtual_time;        /* what a tenant has been served, at least, that returns */
    size_t n_preempted, n_queued; /* n_queued includes the chosen ones */
    uint64_t ageing_us;           /* set by the owner; may change at any time */
};

void waiting_init(struct waiting *w);
void waiting_deinit(struct waiting *w); /* no request is left */

/* The tenant of the request. */
struct tenant *waiting_tenant(const struct waiting *w, const struct batch_request *request);
/* A request of the tenant is to wait, or one that waited or ran has ended. */
void waiting_enter(struct waiting *w, struct tenant *t);
void waiting_leave(struct waiting *w, struct tenant *t, uint64_t now_us);
/* True if requests of several tenants wait or run. */
bool waiting_is_shared(const struct waiting *w);
/* After a step's charges. */
void waiting_advance(struct waiting *w);

/* Appends to its priority's queue: since_us never decreases from one call to the next. */
void waiting_add(struct waiting *w, struct batch_request *request);
/* Puts a preempted request in front of all others. */
void waiting_add_preempted(struct waiting *w, struct batch_request *request);
void waiting_remove(struct waiting *w, struct batch_request *request);
/* Moves it from its queue to the end of the chosen ones, which come before all queued ones. */
void waiting_choose(struct waiting *w, struct batch_request *request);
/* Calls visit for each request that is queued and not chosen. */
void waiting_each(const struct waiting *w, void (*visit)(void *arg, struct batch_request *request),
                  void *arg);

/* The next one, NULL when none waits. Takes time proportional to the number of tenants and of the
 * priorities in use. */
struct batch_request *waiting_first(const struct waiting *w);
/* The queued one of the highest aged priority, whatever its tenant; NULL when none is queued. */
struct batch_request *waiting_first_by_age(const struct waiting *w);
/* The request behind it in the same list (preempted, chosen, or its tenant's of its priority); NULL
 * at the end. */
struct batch_request *waiting_next(const struct waiting *w, const struct batch_request *request);
/* May wrap: only differences are meaningful. */
uint64_t waiting_aged_priority_us(const struct waiting *w, const struct batch_request *request);
/* The smallest since_us of requests queued and not chosen; there must be one. */
uint64_t waiting_oldest_us(const struct waiting *w);

/* True when a is before b by aged priority, whatever their tenants. */
bool batch_request_is_before(const struct waiting *w, const struct batch_request *a,
                             const struct batch_request *b);

#endif
