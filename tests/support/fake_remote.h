/* An agent whose steps are computed elsewhere: by a thread of its own, which ends each step when
 * the test says so, or never. A turn takes seen.turn steps; a turn with a reward below 0 fails in
 * its first step. */
#ifndef TESTS_SUPPORT_FAKE_REMOTE_H
#define TESTS_SUPPORT_FAKE_REMOTE_H

#include <pthread.h>
#include <uv.h>

#include "agents/agent.h"
#include "base/worker.h"

extern const struct agent_type fake_remote_agent; /* its spec: struct fake_remote */

struct fake_remote {
    struct worker *worker;
    bool is_held;            /* steps that begin wait for fake_remote_release, or an abort */
    struct batch_step *step; /* begun, not done */
    bool is_away;            /* the thread computes it */
    bool is_aborted;         /* abort was called: the step is not computed */
    struct job job;
    pthread_t thread; /* the thread that computed last */
    unsigned n_begun, n_aborts;
    size_t n_rows; /* of the last step */
    bool is_stopped;
};

void fake_remote_open(struct fake_remote *r, uv_loop_t *loop);
/* No step may be under way. Runs the loop until the thread has ended. */
void fake_remote_close(struct fake_remote *r, uv_loop_t *loop);
/* Computes the held step, and later ones at once. */
void fake_remote_release(struct fake_remote *r);

#endif
