/* Rows that yield. When a step has too few rows for all requests of several tenants, the rows are
 * granted to the tenants by their weights and by what they were served; running requests without a
 * row are paused: they keep what they hold and are in no step until there is room again. So a
 * tenant that arrives gets its rows with the next step, however long the requests of others run. */
#ifndef BATCHING_YIELD_H
#define BATCHING_YIELD_H

#include <stdbool.h>
#include <stddef.h>

#include "batching/state.h"

/* The most requests that run at a time, with the paused ones; SIZE_MAX if that overflows. */
size_t yield_max_running(const struct batcher_config *config);

/* Before a step is formed: chooses anew which running requests are paused; with to_waiting, rows
 * are also granted to waiting requests. */
void yield_rows(struct batcher *b, bool to_waiting, uint64_t now_us);

/* No tenant's rows are bounded for its share of the time, until the next step is formed. */
void yield_unbound(struct batcher *b);

/* The request, which ran, was taken out. */
void yield_forget(struct batcher *b, struct batch_request *request);

#endif
