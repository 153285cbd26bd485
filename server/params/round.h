/* The path of a gradient into a round of its set. A gradient becomes an update, which waits for its
 * round in the set's batcher; the update's waiters are told when the round settles. All functions
 * are called on the loop. */
#ifndef SERVER_PARAMS_ROUND_H
#define SERVER_PARAMS_ROUND_H

#include "server/params/set.h"

/* How an update ended. */
struct update_outcome {
    struct error err;
    uint64_t counted_in; /* the version that has the update */
    uint64_t wait_us;    /* from the update's arrival to its end */
};

/* A call that waits for an update. */
struct update_waiter {
    struct link link;
    void (*settled)(struct update_waiter *w, const struct update_outcome *end);
};

/* The state of a client's step. */
enum params_step {
    PARAMS_STEP_NEW,
    PARAMS_STEP_JOINS,  /* an update with the step is waiting */
    PARAMS_STEP_STORED, /* the step has counted, and is the client's last */
};

/* Looks a client's step up. *ret_version is set with STORED: the version that counted the step.
 * EXISTS for a step before the client's last; PRECONDITION for a new step whose base is too old. */
enum status params_look_up(enum params_step *out, uint64_t *ret_version, struct params_set *set,
                           const char *client, uint64_t step_id, uint64_t base_version,
                           struct error *err) MUST_CHECK;

/* Returns the client's last step that counted; 0: no step is known. */
uint64_t params_last_step(struct params_set *set, const char *client);

/* Makes a gradient for a round, which takes values. The gradient skips no tensor and asks for no
 * rate; a caller that wants this sets skips, which is then freed with the gradient, or rate.
 * EXHAUSTED: values stay the caller's. */
enum status gradient_make(struct params_gradient **out, const char *client, uint64_t step_id,
                          uint64_t base_version, float *values, struct error *err) MUST_CHECK;

/* Submits a gradient as an update, and takes the gradient in any case. The update waits for its
 * round at most timeout_ms; 0: as long as the round takes. On success w is told once, later:
 * DEADLINE after the timeout, ABORTED by the quorum; both name the clients that are missing.
 * EXHAUSTED. */
enum status params_submit(struct params_set *set, struct params_gradient *gradient,
                          uint64_t timeout_ms, struct update_waiter *w,
                          struct error *err) MUST_CHECK;
/* Submits a step of the set by tau (0 to 1) towards `to`, a version of another set of the same
 * tensors, whose name is source. Takes nothing. On success w is told once, later. PRECONDITION if
 * the set's rounds have more than one gradient. EXHAUSTED. */
enum status params_follow(struct params_set *set, const char *source, struct snapshot *to,
                          float tau, struct update_waiter *w, struct error *err) MUST_CHECK;
/* Adds a waiter to the update of a step that JOINS. */
void params_join(struct params_set *set, const char *client, uint64_t step_id,
                 struct update_waiter *w);
/* Ends the wait of w. An update without waiters leaves its round. */
void params_leave(struct params_set *set, struct update_waiter *w);

/* Queues a gradient, which it takes. When the queue is full, drops the oldest gradient. */
void params_push(struct params_set *set, struct params_gradient *gradient);
/* Returns how many gradients are queued. */
size_t params_depth(const struct params_set *set);

/* For this folder. Frees the queue and the contributors. */
void params_forget(struct params_set *set);

#endif
