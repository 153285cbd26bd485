/* Drives the batcher of one participant where there is no loop: asks are gathered, then steps run
 * in the calling thread until somebody has an answer. The clock counts steps, a millisecond each,
 * so who is in a batch never depends on the time of day. One thread. */
#ifndef WORLDS_DRIVER_H
#define WORLDS_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/status.h"
#include "batching/batcher.h"
#include "worlds/participant.h"

struct driver;
struct question;

enum { DRIVER_STEP_US = 1000 };

/* err: how the row ended. Called while driver_step runs, or driver_cancel; it may ask again. */
typedef void (*question_then_fn)(struct question *q, const struct error *err);

/* What a clone is asked; zeroed before its first use, the same one for all of a clone's. */
struct question {
    struct participant_clone *clone;
    const struct act *observation; /* NULL: it has heard nothing */
    struct act *out;               /* filled when the answer is good */
    struct lengths lengths;
    uint32_t slot; /* ties of length go by it */
    question_then_fn then;
    void *arg;

    /* The driver's own. */
    struct driver *driver;
    struct asker asker;
    struct row row; /* of those who have none of their own */
    struct ask ask;
    bool is_asked;
};

/* What the driver's steps had to compute, padding included and not. */
struct driver_counters {
    uint64_t n_steps, n_cells, n_words;
};

/* config: policy, rows and budget of a step; max_waiting as many as will be asked at a time. env:
 * for its chance alone, copied. Borrows p. STATUS_INVALID: what batcher_open refuses. */
enum status driver_open(struct driver **out, struct participant *p,
                        const struct batcher_config *config, const struct env *env,
                        struct error *err) MUST_CHECK;
void driver_close(struct driver *d); /* nothing is asked. NULL is fine */

/* On success then will be called, never inside this call but when there is nothing to compute. */
enum status driver_ask(struct driver *d, struct question *q, struct error *err) MUST_CHECK;

/* Runs steps until at least one question has its answer. False: nothing was asked. */
bool driver_step(struct driver *d);

/* A wish, for a question that may have been asked; driver_finish has all come to their end. */
void driver_cancel(struct driver *d, struct question *q);
void driver_finish(struct driver *d);

void driver_counters(const struct driver *d, struct driver_counters *out);

#endif
