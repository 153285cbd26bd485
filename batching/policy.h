/* A batching policy says how many of the asks that wait may begin now, and when to ask it again; by
 * length it says which. What each row may spend is the same under all of them: see step.c. */
#ifndef BATCHING_POLICY_H
#define BATCHING_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "batching/batcher.h"

struct by_length;
struct gather;
struct waiting;

/* What a policy may look at. */
struct policy_view {
    const struct batcher_config *config;
    uint64_t now_us;
    uint64_t oldest_us; /* since when the oldest of n_queued waits */
    size_t n_queued;    /* wait, and were not admitted yet */
    size_t n_admitted;  /* admitted earlier, but the step had no room for them yet */
    size_t n_running;
    struct gather *gather;
};

struct policy {
    const char *name;
    /* At most n_queued. *ret_wake_us (0 before the call): when to ask again if nothing else
     * happens first. */
    size_t (*admit)(const struct policy_view *v, uint64_t *ret_wake_us);
    /* Or instead: moves those that may begin in front of the others, in their order. Only with
     * n_queued above 0. */
    size_t (*choose)(struct waiting *w, struct by_length *by, const struct policy_view *v);
    /* When those that are queued give up, if nothing else happens first; 0: never. Only with
     * n_queued above 0. NULL: never. */
    uint64_t (*give_up_us)(const struct policy_view *v);
};

const struct policy *policy_of(enum batch_policy which);

/* Lets nobody begin: while a batcher changes its policy. */
extern const struct policy policy_hold;

#endif
