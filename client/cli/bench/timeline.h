/* What happened when: counts and latencies of each slice of a load. The slices are one second long
 * at first; when there are too many, each two become one. */
#ifndef CLIENT_CLI_BENCH_TIMELINE_H
#define CLIENT_CLI_BENCH_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#include "client/cli/bench/quantiles.h"

enum { TIMELINE_MAX = 120 };

struct moment {
    uint64_t n_completed, n_failed, n_output; /* turns that ended in it, and their tokens */
    struct quantiles ttft_us, e2el_us;        /* of those turns */
};

struct timeline {
    struct moment moments[TIMELINE_MAX];
    size_t n;          /* up to the last one in which something happened */
    uint64_t width_us; /* 0: nothing happened yet */
};

/* Zeroed, it is empty. */
void timeline_deinit(struct timeline *t);
/* The slice at this time from the start of the load; valid until the next call. */
struct moment *timeline_at(struct timeline *t, uint64_t us);
/* Adds the slices of another, which began at this time. */
void timeline_merge(struct timeline *into, uint64_t from_us, const struct timeline *from);
double timeline_seconds(const struct timeline *t, size_t i); /* the middle of slice i */

#endif
