/* Runs the batcher of one participant without an event loop: it collects requests, then computes
 * batches in the calling thread until a request has its answer. A batch is a step of the policy
 * that the world gives; all its rows end before the next one begins. The clock counts batches, a
 * millisecond each, so the time of day never decides which requests share a batch. One thread. */
#ifndef WORLDS_PARTICIPANT_OFFLINE_SCHEDULER_H
#define WORLDS_PARTICIPANT_OFFLINE_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/status.h"
#include "batching/batcher.h"
#include "worlds/participant/participant.h"

struct offline_scheduler;
struct offline_request;

enum { OFFLINE_STEP_US = 1000 };

/* err: how the row ended. Called within offline_scheduler_step or _cancel; it may ask again. */
typedef void (*offline_request_fn)(struct offline_request *r, const struct error *err);

/* A request to a clone; zeroed before its first use, and used again for the clone's next one. */
struct offline_request {
    struct participant_clone *clone;
    const struct act *observation; /* NULL: the clone has observed nothing */
    struct act *out;               /* filled when the answer is good */
    struct lengths lengths;
    uint32_t slot; /* orders requests of equal length */
    offline_request_fn then;
    void *arg;

    /* The scheduler's own. */
    struct offline_scheduler *scheduler;
    struct agent_turn *turn; /* of a participant that answers by turns, else NULL */
    struct flow flow;
    struct row row;
    struct batch_request ask;
    bool is_asked;
};

/* What the batches computed: cells include the padding, words do not. padded: what the rows would
 * take if each were as long as the longest, which is n_cells unless rows are packed. */
struct offline_counters {
    uint64_t n_steps, n_rows, n_cells, n_words, n_padded;
};

/* config: policy, rows and budget of a step; max_waiting as many as will be asked at a time. env:
 * for its random numbers alone, copied. Borrows p. STATUS_INVALID: as batcher_open. */
enum status offline_scheduler_open(struct offline_scheduler **out, struct participant *p,
                                   const struct batcher_config *config, const struct env *env,
                                   struct error *err) MUST_CHECK;
void offline_scheduler_close(
    struct offline_scheduler *s); /* no request is in flight. NULL is fine */

/* On success `then` is called later, or inside this call where there is nothing to compute. */
enum status offline_scheduler_ask(struct offline_scheduler *s, struct offline_request *r,
                                  struct error *err) MUST_CHECK;

/* Computes batches until at least one request has its answer. False: there was no request. */
bool offline_scheduler_step(struct offline_scheduler *s);

/* Cancels the request, if it is in flight; offline_scheduler_finish waits for all requests. */
void offline_scheduler_cancel(struct offline_scheduler *s, struct offline_request *r);
void offline_scheduler_finish(struct offline_scheduler *s);

void offline_scheduler_counters(const struct offline_scheduler *s, struct offline_counters *out);

#endif
