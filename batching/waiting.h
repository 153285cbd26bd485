/* The asks that wait for a step, and who of them is next: first those that were preempted, then by
 * aged priority. An ask gains one step of priority for each ageing_us that it waits, which is the
 * same as saying that its rank is since_us - priority * ageing_us: a number that does not change
 * with time, so nothing is ever sorted again. */
#ifndef BATCHING_WAITING_H
#define BATCHING_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct ask;

enum { PRIORITY_MAX = 100, N_PRIORITIES = 2 * PRIORITY_MAX + 1 };

struct waiting {
    struct list returned;                      /* preempted, in the order in which they go on */
    struct list chosen;                        /* of the next batch by length, in its order */
    struct list queues[N_PRIORITIES];          /* each in the order of since_us */
    uint64_t in_use[(N_PRIORITIES + 63) / 64]; /* bit i: queues[i] is not empty */
    size_t n_returned, n_queued;               /* queued: the chosen ones too */
    uint64_t ageing_us;                        /* the owner's to set; may change at any time */
};

void waiting_init(struct waiting *w);

/* At the end of its priority's queue: since_us never goes back from one call to the next. */
void waiting_add(struct waiting *w, struct ask *ask);
/* In front of all. */
void waiting_return(struct waiting *w, struct ask *ask);
void waiting_remove(struct waiting *w, struct ask *ask);
/* From its queue to the end of the chosen, who come before all that are queued. */
void waiting_choose(struct waiting *w, struct ask *ask);
/* Calls visit for each that is queued and not chosen. */
void waiting_each(const struct waiting *w, void (*visit)(void *arg, struct ask *ask), void *arg);

/* Who is next, NULL when nobody waits. Constant time but for the priorities in use. */
struct ask *waiting_first(const struct waiting *w);
/* Who waits behind it in the same list, of those preempted or of its priority; NULL at the end. */
struct ask *waiting_behind(const struct waiting *w, const struct ask *ask);
/* since_us, put earlier by priority; wraps, only differences count. */
uint64_t waiting_rank_us(const struct waiting *w, const struct ask *ask);
/* The smallest since_us of those queued and not chosen; only when there is one. */
uint64_t waiting_oldest_us(const struct waiting *w);

/* True when a goes before b. */
bool ask_is_before(const struct waiting *w, const struct ask *a, const struct ask *b);

#endif
