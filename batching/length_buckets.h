/* Length bucketing chooses waiting requests of similar lengths for a batch. One request starts the
 * batch: one that has waited too long, else the longest, or a random one (the last of its length).
 * Its shorter neighbours join, the nearest first, then longer ones, until one does not fit; none is
 * skipped. */
#ifndef BATCHING_LENGTH_BUCKETS_H
#define BATCHING_LENGTH_BUCKETS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct batch_request;
struct batch_agent;
struct env;
struct policy_view;
struct waiting;

struct length_bucket_item {
    uint64_t order; /* ties: by number */
    size_t cost;
    struct batch_request *request;
};

struct length_buckets {
    struct length_bucket_item *items; /* [cap], sorted while a batch is chosen */
    size_t n, cap;
    const struct batch_agent *agent;
    const struct env *env;
};

/* Holds at most cap requests. Borrows agent and env. */
enum status length_buckets_open(struct length_buckets *out, size_t cap,
                                const struct batch_agent *agent, const struct env *env,
                                struct error *err) MUST_CHECK;
void length_buckets_close(struct length_buckets *by);

/* The choose of a struct batch_policy_type. Running rows count towards max_rows. Requests that were
 * chosen earlier but had no room in a step begin before others are chosen. */
size_t length_buckets_choose(struct waiting *w, struct length_buckets *by,
                             const struct policy_view *v);

#endif
