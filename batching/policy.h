/* A batching policy says how many waiting requests may begin now, and when to call it again; with
 * length bucketing it also says which. How many tokens of a row are scheduled is the same under all
 * policies: see step.h. */
#ifndef BATCHING_POLICY_H
#define BATCHING_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "batching/config.h"

struct length_buckets;
struct adaptive;
struct waiting;

/* What a policy may look at. */
struct policy_view {
    const struct batcher_config *config;
    uint64_t now_us;
    uint64_t oldest_us; /* since when the oldest of the n_queued requests waits */
    size_t n_queued;    /* requests that wait and are not admitted yet */
    size_t n_admitted;  /* requests admitted earlier that no step had room for yet */
    size_t n_running;   /* without the paused ones */
    struct adaptive *adaptive;
};

struct batch_policy_type {
    const char *name;
    /* Returns how many requests may begin, at most n_queued. *ret_wake_us (0 before the call): when
     * to call again if nothing else happens first. */
    size_t (*admit)(const struct policy_view *v, uint64_t *ret_wake_us);
    /* Running rows of one tenant may yield to waiting requests of another: see yield.h. */
    bool yields;
    /* Instead of admit: moves the requests that may begin to the front, in their order, and returns
     * how many. Called only with n_queued above 0. */
    size_t (*choose)(struct waiting *w, struct length_buckets *by, const struct policy_view *v);
    /* When the queued requests end ABORTED if nothing else happens first; 0: never. Called only
     * with n_queued above 0. NULL: never. */
    uint64_t (*give_up_us)(const struct policy_view *v);
};

const struct batch_policy_type *policy_of(enum batch_policy which);

/* Admits none: while a batcher changes its policy. */
extern const struct batch_policy_type policy_hold;

#endif
