/* Work: tasks that clients submit by the name of a function, and attached workers compute. The
 * table keeps a task from its submission until its result was taken, or is old; it knows functions
 * by the workers that offer them. Payloads are bytes that nobody here reads. Loop.
 *
 * Tasks of one principal and function begin in the order in which they came; principals that wait
 * for the same workers take turns by their weights. A task whose worker is lost is run again as
 * often as its submitter allowed, then it is ABORTED with what is known of the worker's end. */
#ifndef SERVER_WORK_WORK_H
#define SERVER_WORK_WORK_H

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
    WORK_NAME_SIZE = 128, /* of a function, or of a worker */
    WORK_REQUEST_ID_SIZE = 129,
    WORK_MAX_WORKERS = 4096,
    WORK_MAX_FUNCTIONS = 4096, /* of all workers */
    WORK_MAX_OFFERED = 64,     /* of one worker */
    WORK_MAX_ROOM = 1024,      /* tasks that a worker has at once */
    WORK_MAX_RETRIES = 100,
    WORK_MAX_BEGUN = 1024,
    WORK_MAX_TASKS = 1 << 18, /* of all principals */
    WORK_MAX_TRACE_BYTES = 64 << 10,
    WORK_MAX_TAIL_BYTES = 4 << 10,
    WORK_KEEP_MS = 10 * 60 * 1000, /* a result that nobody waits for */
    WORK_REPORT_MS = 5000,         /* for the end of a supervised worker to be told */
};

struct work_config {
    const struct env *env;
    uint64_t silence_us; /* a worker that says nothing for this long is lost */
    bool may_attach;     /* else every worker is refused */
    size_t max_bytes;    /* of all payloads and results; one has at most a quarter of it */
    /* The share of a principal; NULL: all have the same. */
    unsigned (*weight)(void *self, uint32_t principal);
    void *weight_self;
    struct alarm *alarm; /* rings work_tick */
};

struct work_table {
    struct work_config config;
    bool is_ending; /* no worker and no task is taken any more */
    struct hash functions, tasks, requests;
    struct peers workers;
    struct list principals, deaths;
    struct list done; /* of tasks that nobody waits for, the oldest first */
    struct list due;  /* of tasks with a deadline that are not done */
    struct shared_limit workers_limit, functions_limit, tasks_limit, bytes_limit;
    uint64_t turn; /* of the principal that was served last */
    uint64_t n_submitted, n_done, n_failed, n_lost, n_retried;
};

/* Bytes that may come in parts. Zeroed: none. */
struct work_bytes {
    struct work_principal *principal; /* who pays; NULL: there are none */
    uint8_t *data;
    size_t size_bytes, have_bytes;
};

static inline bool work_bytes_is_whole(const struct work_bytes *b)
{
    return b->have_bytes == b->size_bytes;
}

enum work_task_state {
    WORK_TASK_QUEUED,
    WORK_TASK_ASSIGNED, /* to a worker, which has not got it yet */
    WORK_TASK_SENT,
    WORK_TASK_LOST, /* with its worker, of whose end a report may come */
    WORK_TASK_DONE,
    N_WORK_TASK_STATES
};

/* How a task failed; texts are "" where there is none. In one block. */
struct work_failure {
    struct error err;
    size_t size_bytes;
    bool is_exception, is_loss;
    const char *type, *message, *trace; /* of the exception */
    int signal, exit_code;              /* of the worker; both 0: not known */
    const char *tail;                   /* of what it wrote on its stderr */
};

struct work_task {
    struct hash_node by_id; /* its hash is the id */
    struct hash_node by_request;
    struct link link;        /* in its share's queue, or a death's tasks */
    struct peer_order order; /* of its worker */
    struct link over;        /* in the work's due, or done */
    struct link recall;
    struct work_table *work;
    struct work_share *share;
    struct work_principal *principal;
    struct work_worker *worker; /* which has it, even if it is done meanwhile */
    enum work_task_state state;
    uint64_t deadline_us; /* 0: none */
    uint64_t number;      /* of its submission */
    uint64_t done_us, digest;
    unsigned n_retries, n_lost;
    bool is_forgotten;
    struct work_bytes payload, result;
    const struct work_failure *failure; /* once done; NULL: it succeeded */
    struct list waits;                  /* of struct work_wait_entry */
    char request_id[WORK_REQUEST_ID_SIZE];
};

struct work_submission {
    uint32_t principal;
    const char *function;
    const char *request_id; /* "": none. The same again is the same task */
    unsigned n_retries;
    uint64_t deadline_us; /* 0: none */
};

void work_init(struct work_table *w, const struct work_config *config);
/* All workers and waits are closed. */
void work_deinit(struct work_table *w);
void work_tick(void *work);
/* The server stops: workers are ended, tasks fail. */
void work_end(struct work_table *w);

/* Room for a payload or result of a task of the principal. EXHAUSTED: come back later; INVALID:
 * more than one may have. */
enum status work_bytes_begin(struct work_bytes *out, struct work_table *w, uint32_t principal,
                             uint64_t size_bytes, struct error *err) MUST_CHECK;
/* INVALID: more than it was to have. */
enum status work_bytes_append(struct work_bytes *b, const void *data, size_t size_bytes,
                              struct error *err) MUST_CHECK;
void work_bytes_free(struct work_bytes *b, struct work_table *w); /* zeroed is fine */

/* Takes payload, which is whole, unless it fails. NOT_FOUND: no worker offers the function. EXISTS:
 * the request id has another body. */
enum status work_submit(struct work_task **out, struct work_table *w,
                        const struct work_submission *s, struct work_bytes *payload,
                        struct error *err) MUST_CHECK;
/* Whether a worker offers the function to the principal; NOT_FOUND. */
enum status work_check_function(struct work_table *w, uint32_t principal, const char *name,
                                struct error *err) MUST_CHECK;
/* NOT_FOUND, also for another principal's. */
enum status work_find(struct work_task **out, struct work_table *w, uint32_t principal, uint64_t id,
                      struct error *err) MUST_CHECK;
size_t work_n_queued(const struct work_table *w); /* tasks that wait for a worker */
uint32_t work_task_principal(const struct work_task *t);
/* Of one that is not done. */
const char *work_task_function(const struct work_task *t);
/* One that is not done ends CANCELLED. One that is done is forgotten once nobody waits for it. */
void work_cancel(struct work_task *t);

/* --- waiting --- */

struct work_wait_entry {
    struct link of_task, of_wait;
    struct work_task *task;
    struct work_wait *wait;
    uint64_t tag;
};

/* Somebody who wants the results of tasks, each once, in the order in which they are done. */
struct work_wait {
    struct list pending, ready;
    size_t n_pending;
    void (*notify)(struct work_wait *wait); /* one more is ready */
};

void work_wait_init(struct work_wait *wait, void (*notify)(struct work_wait *wait));
/* is_owner: tasks whose result was not taken are cancelled and forgotten. */
void work_wait_close(struct work_wait *wait, bool is_owner);
/* Notifies at once where the task is done. EXHAUSTED. */
enum status work_wait_add(struct work_wait *wait, struct work_task *t, uint64_t tag,
                          struct error *err) MUST_CHECK;
/* The next that is done; NULL: none yet. */
struct work_wait_entry *work_wait_next(const struct work_wait *wait);
/* Its result was delivered. forget: the task is freed. */
void work_wait_taken(struct work_wait_entry *e, bool forget);

#endif
