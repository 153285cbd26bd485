/* A worker that computes functions: the tasks that are assigned to it, and its results. A worker
 * lies in the memory of its stream (parley.v1.Work.Attach), which knows the wire. All functions are
 * called on the loop. */
#ifndef SERVER_WORK_WORKER_H
#define SERVER_WORK_WORKER_H

#include "server/work/table.h"

/* A worker's description of itself. */
struct work_offer {
    const char *name;   /* under which its supervisor reports its end; "": no report will come */
    uint32_t principal; /* the principal whose key the worker has */
    bool is_private;    /* the worker takes only tasks of its principal */
    const char *const *functions; /* [n_functions] names */
    size_t n_functions;
    size_t room;      /* tasks that the worker has at once; 0: 1 */
    size_t n_at_once; /* tasks that the worker computes at once, the oldest of those it has; 0: 1 */
};

/* Attaches a worker, which is zeroed but for what the stream sets of its peer, and gives it queued
 * tasks. DENIED, UNAVAILABLE, EXHAUSTED; INVALID names the field of the offer that is at fault. */
enum status work_worker_open(struct work_worker *w, struct work_table *work,
                             const struct work_offer *offer, struct error *err) MUST_CHECK;
/* Detaches a worker. The tasks that it may have begun are lost, unless its supervisor reports that
 * it has not begun them; its other tasks are queued again in their old places. Does nothing if the
 * worker is not open. */
void work_worker_close(struct work_worker *w);

/* Returns the task that the stream sends next; NULL: there is none. */
struct work_task *work_worker_order(const struct work_worker *w);
/* Tells that the task of work_worker_order was sent. There must be one. */
void work_worker_taken(struct work_worker *w);
/* Takes the next recall: the id of a task whose result is not wanted any more. False: there is
 * none. */
bool work_worker_recall(struct work_worker *w, uint64_t *id);

/* Sets how many tasks the worker may have at once. With 0 it gets no more tasks. INVALID. */
enum status work_worker_set_room(struct work_worker *w, uint64_t room,
                                 struct error *err) MUST_CHECK;
/* Finds a task that was sent to the worker and is not answered. INVALID: the worker has no such
 * task. */
enum status work_worker_find(struct work_task **out, const struct work_worker *w, uint64_t id,
                             struct error *err) MUST_CHECK;
/* Ends a task that the worker has answered. Takes result, which must be whole. failure is copied;
 * NULL: the task has succeeded. */
void work_worker_result(struct work_worker *w, struct work_task *t, struct work_bytes *result,
                        const struct work_failure *failure);
/* Queues again a task that the worker has not begun and gives back. */
void work_worker_return(struct work_worker *w, struct work_task *t);

/* A supervisor's report of the end of a worker. It may come before or after the end of the worker's
 * stream. */
struct work_report {
    const char *name; /* the worker's */
    uint32_t principal;
    int signal, exit_code; /* how the worker's process ended */
    const char *tail;      /* the end of what the worker wrote on its stderr */
    bool tells_begun;      /* begun is known; else n_at_once of the offer counts */
    const uint64_t *begun; /* [n_begun] ids of the tasks that the worker had begun */
    size_t n_begun;
};
/* Takes a report, and decides what becomes of the tasks that wait for it. A second report of the
 * same end changes nothing. INVALID names the field; EXHAUSTED. */
enum status work_report(struct work_table *work, const struct work_report *r,
                        struct error *err) MUST_CHECK;

#endif
