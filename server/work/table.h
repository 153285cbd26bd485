/* What the table of work.h consists of: its tasks, their payloads and results, and its workers. All
 * functions are called on the loop. */
#ifndef SERVER_WORK_TABLE_H
#define SERVER_WORK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/peer.h"
#include "base/shared_limit.h"
#include "base/status.h"

struct alarm;

enum {
    WORK_NAME_SIZE = 128, /* bytes of the name of a function or a worker, with the NUL */
    WORK_REQUEST_ID_SIZE = 129,
    WORK_MAX_WORKERS = 4096,
    WORK_MAX_FUNCTIONS = 4096, /* functions of all workers */
    WORK_MAX_OFFERED = 64,     /* functions of one worker */
    WORK_MAX_ROOM = 1024,      /* tasks that a worker has at once */
    WORK_MAX_RETRIES = 100,
    WORK_MAX_BEGUN = 1024,           /* tasks in the report of a worker's end */
    WORK_MAX_TASKS = 1 << 18,        /* tasks of all principals */
    WORK_MAX_TRACE_BYTES = 64 << 10, /* the message, and the trace, of an exception */
    WORK_MAX_TAIL_BYTES = 4 << 10,   /* the end of a worker's stderr */
    WORK_KEEP_MS = 10 * 60 * 1000,   /* how long a result is kept for which no call waits */
    WORK_REPORT_MS = 5000,           /* how long tasks wait for the report of a worker's end */
};

struct work_config {
    const struct env *env;
    uint64_t silence_us; /* a worker that says nothing for this long is lost */
    bool may_attach;     /* else every worker is refused */
    size_t max_bytes;    /* all payloads and results; each may have at most a quarter of it */
    /* Returns the weight of a principal. NULL: all principals have the same weight. */
    unsigned (*weight)(void *self, uint32_t principal);
    void *weight_self;
    struct alarm *alarm; /* rings work_tick */
};

struct work_table {
    struct work_config config;
    bool is_ending;                 /* the server stops: no worker and no task is taken any more */
    struct hash functions;          /* of struct work_function, by name */
    struct hash tasks;              /* of struct work_task, by id */
    struct hash requests;           /* of struct work_task, by principal and request id */
    struct peers workers;           /* of struct work_worker */
    struct list principals, deaths; /* of struct work_principal; of struct work_death */
    struct list done; /* of struct work_task: those that are done and for which no call waits, the
                         oldest first */
    struct list due;  /* of struct work_task: those with a deadline that are not done */
    struct shared_limit workers_limit, functions_limit, tasks_limit, bytes_limit;
    uint64_t turn; /* the turn of the principal that was served last */
    uint64_t n_submitted, n_done, n_failed, n_lost, n_retried;
};

/* A payload or a result, whose bytes may come in parts. A zeroed struct has no bytes. */
struct work_bytes {
    struct work_principal *principal; /* the principal whose bytes they count as; NULL: no bytes */
    uint8_t *data;                    /* [size_bytes] */
    size_t size_bytes, have_bytes;    /* have_bytes: the bytes that have come */
};

static inline bool work_bytes_is_whole(const struct work_bytes *b)
{
    return b->have_bytes == b->size_bytes;
}

enum work_task_state {
    WORK_TASK_QUEUED,   /* the task waits for a worker */
    WORK_TASK_ASSIGNED, /* a worker was chosen, whose stream has not taken the task */
    WORK_TASK_SENT,     /* the worker has the task */
    WORK_TASK_LOST,     /* the worker is lost, and a report of its end may come */
    WORK_TASK_DONE,     /* the task has a result or a failure */
    N_WORK_TASK_STATES
};

/* How a task failed. A text that is not known is "". The struct and its texts are one block. */
struct work_failure {
    struct error err;
    size_t size_bytes;                  /* the size of the block */
    bool is_exception, is_loss;         /* the function raised an exception; the worker was lost */
    const char *type, *message, *trace; /* the exception's */
    int signal, exit_code;              /* the lost worker's; both 0: not known */
    const char *tail;                   /* the end of what the lost worker wrote on its stderr */
};

/* A task. work_submit makes it and queues it in its share: the tasks of its principal for its
 * function. When a worker that offers the function has room, the task is ASSIGNED and becomes an
 * order of that worker; it is SENT once the worker's stream has taken the order. The worker's
 * result makes it DONE. A worker may also return the task, which is then queued in its old place.
 * If the worker is lost, a task that it may have begun is LOST until the worker's supervisor
 * reports, or until WORK_REPORT_MS have passed; then it is queued again, or, after n_retries
 * losses, DONE with ABORTED. All other tasks of the worker are queued again. A cancel or the
 * deadline makes the task DONE wherever it is, the end of the function's last worker if it is
 * queued. A worker that has such a task is told by a recall, and keeps a place for the task until
 * it answers.
 *
 * A task that is DONE serves the calls that wait for it. Once no call waits, it is freed if it was
 * forgotten, else it stays in the table's done list for WORK_KEEP_MS, for calls that come later. A
 * task that a worker still has is freed only when the worker has answered or has gone. */
struct work_task {
    struct hash_node by_id; /* its hash is the task's id */
    struct hash_node by_request;
    struct link link;        /* in its share's queue, or in a death's tasks */
    struct peer_order order; /* among its worker's orders */
    struct link over;        /* in the table's due while it is not done, or in done */
    struct link recall;      /* in its worker's recalls */
    struct work_table *work;
    struct work_share *share; /* NULL once the task is done */
    struct work_principal *principal;
    struct work_worker *worker; /* the worker that has the task, even if it is done meanwhile */
    enum work_task_state state;
    uint64_t deadline_us;       /* 0: no deadline */
    uint64_t number;            /* tasks are numbered in the order of their submission */
    uint64_t done_us;           /* when the task came into the table's done list */
    uint64_t digest;            /* of the request's body, if the request has an id */
    unsigned n_retries, n_lost; /* losses that are allowed; losses so far */
    bool is_forgotten;          /* nobody may find the task any more */
    struct work_bytes payload, result;
    const struct work_failure *failure; /* NULL: the task is not done, or has succeeded */
    struct list waits;                  /* of struct work_wait_entry */
    char request_id[WORK_REQUEST_ID_SIZE];
};

/* A task for whose result a call waits. */
struct work_wait_entry {
    struct link of_task, of_wait; /* in the task's waits; in the wait's pending or ready */
    struct work_task *task;
    struct work_wait *wait;
    uint64_t tag; /* the call's own */
};

/* A call that wants the results of tasks: each result once, in the order in which the tasks are
 * done. */
struct work_wait {
    struct list pending,
        ready; /* of struct work_wait_entry: of tasks that are not done; that are */
    size_t n_pending;
    void (*notify)(struct work_wait *wait); /* one more entry is ready */
};

/* The fact that a worker offers a function. */
struct work_provider {
    struct link of_function; /* in the function's providers */
    struct work_function *function;
    struct work_worker *worker;
};

struct work_worker {
    struct peer peer; /* its orders are tasks, all awaited */
    char name[WORK_NAME_SIZE];
    uint32_t principal;
    struct work_provider *provided; /* [n_provided] */
    size_t n_provided;
    size_t room, n_at_once; /* see struct work_offer */
    struct list recalls;    /* of struct work_task: tasks whose results are not wanted any more, and
                               of which the worker was not told yet */
};

/* Reserves size_bytes for a payload or result of a task of the principal. EXHAUSTED if there is no
 * room now; INVALID if size_bytes is more than one payload may have. */
enum status work_bytes_begin(struct work_bytes *out, struct work_table *w, uint32_t principal,
                             uint64_t size_bytes, struct error *err) MUST_CHECK;
/* Appends bytes. INVALID if these are more than were announced to work_bytes_begin. */
enum status work_bytes_append(struct work_bytes *b, const void *data, size_t size_bytes,
                              struct error *err) MUST_CHECK;
/* Frees the bytes and zeroes b. Does nothing if b is zeroed. */
void work_bytes_free(struct work_bytes *b, struct work_table *w);

#endif
