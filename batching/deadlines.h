/* The deadlines of waiting requests: a binary heap, the earliest on top. */
#ifndef BATCHING_DEADLINES_H
#define BATCHING_DEADLINES_H

#include <stddef.h>

#include "base/status.h"

struct batch_request;

struct deadlines {
    struct batch_request **heap; /* [cap], heap[0] the earliest */
    size_t n, cap;
};

enum status deadlines_open(struct deadlines *out, size_t cap, struct error *err) MUST_CHECK;
void deadlines_close(struct deadlines *d);

/* Does nothing for a request without a deadline. Never more than cap (asserted). */
void deadlines_add(struct deadlines *d, struct batch_request *request);
/* Does nothing for a request that is not in the heap. */
void deadlines_remove(struct deadlines *d, struct batch_request *request);

/* The request with the earliest deadline, NULL when there is none. */
struct batch_request *deadlines_first(const struct deadlines *d);

#endif
