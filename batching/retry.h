/* When a refused client should submit again: the hint of a refusal. By Little's law, all waiting
 * requests have begun after run time * waiting requests / requests that run together. Until a
 * request has ended, the time without any end is used as the run time. */
#ifndef BATCHING_RETRY_H
#define BATCHING_RETRY_H

#include <stddef.h>
#include <stdint.h>

#include "base/env.h"

/* Plain data; zeroed, it has seen nothing. */
struct retry {
    double run_us;     /* from a request's first step to its end, smoothed; 0: none has ended */
    uint64_t quiet_us; /* since when no request has ended while some run; 0: none runs */
};

/* A step begins; counts if no request ran before. */
void retry_begin(struct retry *r, uint64_t now_us);
/* A request ended that had its first step at first_step_us. */
void retry_learn(struct retry *r, uint64_t first_step_us, uint64_t now_us);
/* Nothing runs any more. */
void retry_rest(struct retry *r);

/* n_waiting requests wait, n_together run at once. T is the time until all waiting requests have
 * begun and an eighth of the running ones have ended. The hint is drawn from env between T / 2 and
 * T, so that clients that were refused together do not come back together. From 1 ms to a minute.
 */
uint32_t retry_after_ms(const struct retry *r, size_t n_waiting, size_t n_together, uint64_t now_us,
                        const struct env *env);

#endif
