/* The compute thread of one device: runs jobs in the order in which they were submitted, and hands
 * each back to the loop. */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include <stdbool.h>
#include <uv.h>

#include "base/list.h"
#include "base/owner_thread.h"
#include "base/status.h"

struct job;
typedef void (*job_fn)(struct job *job);

/* A member of the request. run is called on the compute thread, then done on the loop. */
struct job {
    struct link link;
    job_fn run, done;
};

struct worker;

/* On the loop's thread. */
enum status worker_start(struct worker **out, uv_loop_t *loop, const char *thread_name,
                         struct error *err) MUST_CHECK;

/* Hands the job over; done is called exactly once, on the loop, never from inside this call. Loop.
 */
void worker_submit(struct worker *w, struct job *job);

/* Lets the jobs that were submitted run, joins the thread, then delivers their done calls, and
 * calls stopped last, on the loop. Loop. */
void worker_stop(struct worker *w, void (*stopped)(void *arg), void *arg);

/* No job is pending: the done of each was called, or is being called. Loop. */
bool worker_is_idle(const struct worker *w);

/* True on the compute thread of w. */
int worker_is_current(const struct worker *w);

#endif
