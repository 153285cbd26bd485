/* Who of those that wait makes a batch of like lengths. One starts: whoever has waited too long,
 * else the longest or one that chance picks (then the last of its length, since what follows gets
 * shorter). Its shorter neighbours join, the next first, then longer ones, until one does not fit;
 * none is skipped. */
#ifndef BATCHING_BY_LENGTH_H
#define BATCHING_BY_LENGTH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ask;
struct batch_agent;
struct env;
struct policy_view;
struct waiting;

struct by_length_item {
    uint64_t order; /* ties: by number */
    size_t cost;
    struct ask *ask;
};

struct by_length {
    struct by_length_item *items; /* [cap], sorted while a batch is chosen */
    size_t n, cap;
    const struct batch_agent *agent;
    const struct env *env;
};

/* For at most cap asks. Borrows agent and env. */
enum status by_length_open(struct by_length *out, size_t cap, const struct batch_agent *agent,
                           const struct env *env, struct error *err) MUST_CHECK;
void by_length_close(struct by_length *by);

/* struct policy's choose. Rows that run already take their places of max_rows, and those chosen
 * earlier that no step had room for yet begin before anybody else is chosen. */
size_t by_length_choose(struct waiting *w, struct by_length *by, const struct policy_view *v);

#endif
