/* Work: clients submit tasks by the name of a function, and attached workers compute them. The
 * table keeps a task from its submission until its result was taken or is too old. The table knows
 * the functions that workers offer or have offered. Payloads and results are bytes that the table
 * does not read. All functions are called on the loop.
 *
 * Tasks of one principal and one function begin in the order of their submission. Principals that
 * wait for the same workers take turns by their weights. A task whose worker is lost is run again
 * as often as its submitter allowed; after that it fails with ABORTED and with what is known of the
 * worker's end. */
#ifndef SERVER_WORK_WORK_H
#define SERVER_WORK_WORK_H

#include "server/work/table.h"

struct buf;

struct work_submission {
    uint32_t principal;
    const char *function;
    const char *request_id; /* a second request with this id means the same task; "": no id */
    unsigned n_retries;     /* how many lost workers the task survives */
    uint64_t deadline_us;   /* 0: no deadline */
};

void work_init(struct work_table *w, const struct work_config *config);
/* Frees all tasks. All workers and waits must be closed. */
void work_deinit(void *work);
/* Ends silent workers, overdue tasks, and results that are too old. */
void work_tick(void *work);
/* Ends all workers and fails all tasks, because the server stops. */
void work_end(void *work);
/* Ends all workers and fails all tasks, since another daemon has them from now on. */
void work_leave(void *work, const struct error *why);

/* Submits a task, or finds the task of the request id. Takes payload, which must be whole; a
 * failure takes nothing. NOT_FOUND if no worker offers the function; EXISTS if the request id was
 * used with another body; EXHAUSTED. */
enum status work_submit(struct work_task **out, struct work_table *w,
                        const struct work_submission *s, struct work_bytes *payload,
                        struct error *err) MUST_CHECK;
/* NOT_FOUND if no worker offers the function to the principal. */
enum status work_check_function(struct work_table *w, uint32_t principal, const char *name,
                                struct error *err) MUST_CHECK;
/* Finds a task by its id. NOT_FOUND, also for a task of another principal. */
enum status work_find(struct work_task **out, struct work_table *w, uint32_t principal, uint64_t id,
                      struct error *err) MUST_CHECK;
/* Returns how many tasks wait for a worker. */
size_t work_n_queued(const struct work_table *w);
uint32_t work_task_principal(const struct work_task *t);
/* Returns the name of the function of a task that is not done. */
const char *work_task_function(const struct work_task *t);
/* Ends a task with CANCELLED if it is not done. A task that is done is forgotten, and freed once no
 * call waits for it. */
void work_cancel(struct work_task *t);

/* --- waiting --- */

void work_wait_init(struct work_wait *wait, void (*notify)(struct work_wait *wait));
/* Ends the wait. If is_owner, cancels and forgets the tasks whose results were not taken. */
void work_wait_close(struct work_wait *wait, bool is_owner);
/* Adds a task to the wait. Calls notify inside if the task is done. EXHAUSTED. */
enum status work_wait_add(struct work_wait *wait, struct work_task *t, uint64_t tag,
                          struct error *err) MUST_CHECK;
/* Returns the next entry whose task is done; NULL: there is none yet. */
struct work_wait_entry *work_wait_next(const struct work_wait *wait);
/* Frees an entry whose result was delivered. If forget, the task is forgotten, too. */
void work_wait_taken(struct work_wait_entry *e, bool forget);

/* Appends the lines of the table's metrics. */
void work_metrics(const struct work_table *w, struct buf *out);

#endif
