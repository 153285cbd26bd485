/* The offline scheduler runs the batcher of one participant without an event loop. It collects
 * requests, then computes batches in the calling thread until a request has its answer. A batch is
 * one step under the world's batching policy; all of its rows end before the next batch begins. The
 * batcher's clock counts batches, a millisecond each, so the time of day never decides which
 * requests share a batch. One thread. */
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

/* Called once for each request that was accepted; err says how the request ended. It runs inside
 * offline_scheduler_ask, _step or _finish, and may ask again with the same request. */
typedef void (*offline_request_fn)(struct offline_request *r, const struct error *err);

/* A request for a clone's answer. The caller owns it, zeroes it before its first use, fills in the
 * first part and passes it to offline_scheduler_ask. From then until `then` is called, the request
 * is in flight and must not be changed. The same request serves the clone's next answer. */
struct offline_request {
    struct participant_clone *clone;
    const struct act *observation; /* NULL: the clone has observed nothing */
    struct act *out;               /* the answer; complete if the request ends with OK */
    struct lengths lengths;        /* size of the observation, for batches by length */
    uint32_t slot;                 /* orders requests of equal length */
    offline_request_fn then;
    void *arg; /* for `then` */

    /* Owned by the scheduler. */
    struct offline_scheduler *scheduler;
    struct agent_turn *turn; /* turn of a participant with begin; NULL: has none, or it has ended */
    struct flow flow;
    struct row row;
    struct batch_request ask;
    bool is_asked; /* the batcher has the request */
};

/* Sums over all batches. Rows whose observation is padding do not count. Words count the rows'
 * lengths alone; cells count what was computed, with padding. n_padded is what the rows would take
 * if each were as long as the longest of its batch; it equals n_cells unless rows are packed. */
struct offline_counters {
    uint64_t n_steps, n_rows, n_cells, n_words, n_padded;
};

/* config gives the policy, the rows and the budget of a batch; its max_waiting must be the number
 * of requests that will be in flight at a time. env is copied and gives only random numbers.
 * Borrows p. Errors are those of batcher_open. */
enum status offline_scheduler_open(struct offline_scheduler **out, struct participant *p,
                                   const struct batcher_config *config, const struct env *env,
                                   struct error *err) MUST_CHECK;
/* No request may be in flight. s may be NULL. */
void offline_scheduler_close(struct offline_scheduler *s);

/* Asks for an answer. On success the request is in flight and `then` is called once: later, or
 * inside this call if there is nothing to compute. On failure `then` is never called; errors are
 * those of the participant's begin and of batcher_submit. */
enum status offline_scheduler_ask(struct offline_scheduler *s, struct offline_request *r,
                                  struct error *err) MUST_CHECK;

/* Computes batches until at least one request has ended. Returns false if none was in flight. */
bool offline_scheduler_step(struct offline_scheduler *s);

/* Cancels the request if it is in flight. It ends in a later step or finish, never in this call. */
void offline_scheduler_cancel(struct offline_scheduler *s, struct offline_request *r);
/* Computes batches until no request is in flight. */
void offline_scheduler_finish(struct offline_scheduler *s);

void offline_scheduler_counters(const struct offline_scheduler *s, struct offline_counters *out);

#endif
