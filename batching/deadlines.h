/* The deadlines of asks that wait: a binary heap, the earliest on top. */
#ifndef BATCHING_DEADLINES_H
#define BATCHING_DEADLINES_H

#include <stddef.h>

#include "base/status.h"

struct ask;

struct deadlines {
    struct ask **heap; /* [cap], heap[0] the earliest */
    size_t n, cap;
};

enum status deadlines_open(struct deadlines *out, size_t cap, struct error *err) MUST_CHECK;
void deadlines_close(struct deadlines *d);

/* Does nothing for an ask without a deadline. Never more than cap (asserted). */
void deadlines_add(struct deadlines *d, struct ask *ask);
/* Does nothing for an ask that is not in it. */
void deadlines_remove(struct deadlines *d, struct ask *ask);

/* The ask with the earliest deadline, NULL when there is none. */
struct ask *deadlines_first(const struct deadlines *d);

#endif
