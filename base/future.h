/* A pending result, a member of the request. Its continuation is given at the start and called
 * exactly once, on the loop; it may free the request. */
#ifndef BASE_FUTURE_H
#define BASE_FUTURE_H

#include <stdbool.h>

#include "base/status.h"

struct future;
typedef void (*future_then_fn)(struct future *f, const struct error *err, void *arg);

struct future {
    future_then_fn then;
    void *arg;
    bool is_settled;
};

void future_init(struct future *f, future_then_fn then, void *arg);

/* err->status is STATUS_OK for success. Asserts that the future was pending. Nothing may touch the
 * future afterwards. */
void future_settle(struct future *f, const struct error *err);

#endif
