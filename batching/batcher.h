/* The batcher owns the requests that wait for one original (one loaded agent). It lets a policy
 * choose the rows of the next step, has compute run the step, and settles each request's future
 * when its row is done. All on the loop; it never blocks. Time and compute are passed in, so it
 * runs under a fake clock in tests.
 *
 * Under every policy: a step is bounded by rows and by cost; a request settles exactly once;
 * requests of one flow run one after the other in the order of their arrival; priorities age, so
 * none starves; a deadline or a cancel takes effect while waiting and between steps; a row that
 * fails fails alone. */
#ifndef BATCHING_BATCHER_H
#define BATCHING_BATCHER_H

#include <stdint.h>

#include "base/env.h"
#include "base/status.h"
#include "batching/adapters.h"
#include "batching/config.h"
#include "batching/request.h"

struct batcher;

/* STATUS_INVALID names the invalid member of config. All memory is allocated here. The structs are
 * copied; what they point to is borrowed until closed is called. */
enum status batcher_open(struct batcher **out, const struct batcher_config *config,
                         const struct batch_agent *agent, const struct batch_compute *compute,
                         const struct batch_timer *timer, const struct env *env,
                         struct error *err) MUST_CHECK;

/* On success the request waits and its future will be settled, never inside this call. A refusal
 * (EXHAUSTED with a retry hint; UNAVAILABLE when closing; DEADLINE already past) starts nothing. */
enum status batcher_submit(struct batcher *b, struct batch_request *request,
                           struct error *err) MUST_CHECK;

/* Changes the policy and the bounds from the next batch on: admitted requests end first, no other
 * begins meanwhile, and waiting requests stay. STATUS_INVALID as for batcher_open, and for a
 * max_rows or max_waiting above the one that the batcher was opened with. The last call counts. */
enum status batcher_configure(struct batcher *b, const struct batcher_config *config,
                              struct error *err) MUST_CHECK;

/* Moves the deadline to deadline_us (0: none), if that is later. */
void batcher_postpone(struct batcher *b, struct batch_request *request, uint64_t deadline_us);

/* The future settles with CANCELLED: soon (but not inside this call) if the request waits, or after
 * the step that it is in, unless that step is its last. The request must not be settled. */
void batcher_cancel(struct batcher *b, struct batch_request *request);

/* Settles requests that have ended and starts a step if the policy wants one. The timer's owner
 * calls it; calling it too early does no harm. */
void batcher_tick(struct batcher *b);

void batcher_stats(const struct batcher *b, struct batcher_stats *out);

/* Refuses new requests, settles waiting ones with UNAVAILABLE and running ones after their step;
 * then frees the batcher and calls closed, on the loop and not inside this call. b is not NULL;
 * call it once. */
void batcher_close(struct batcher *b, void (*closed)(void *arg), void *arg);

#endif
