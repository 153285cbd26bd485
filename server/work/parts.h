/* The structs and functions that the files of this folder have in common: shares.c has the
 * functions and the principals, tasks.c the states of a task, worker.c the workers and their ends.
 * No other file includes this. All functions are called on the loop. */
#ifndef SERVER_WORK_PARTS_H
#define SERVER_WORK_PARTS_H

#include "server/work/table.h"

/* A function that workers offer. It outlives its last worker by silence_us, so that its tasks wait
 * for another worker. */
struct work_function {
    struct hash_node by_name;
    struct work_table *work;
    char name[WORK_NAME_SIZE];
    bool is_private;
    uint32_t owner;        /* the principal of the worker that offered the function first; the only
                              principal that may use it if is_private */
    struct list providers; /* of struct work_provider */
    struct list shares;    /* of struct work_share */
    uint64_t left_us;      /* when the last worker left, if providers is empty */
};

/* A share: the tasks of one principal for one function that are not done. It is freed with its last
 * task. */
struct work_share {
    struct link link; /* in the function's shares */
    struct work_function *function;
    struct work_principal *principal;
    struct list queue; /* of struct work_task: those that wait for a worker, by their numbers */
    size_t n_tasks;
};

/* A principal that has tasks or bytes in the table. */
struct work_principal {
    struct link link;
    uint32_t id;
    uint64_t turn; /* grows with each task that begins; the principal with the lowest comes next */
    size_t n_tasks, n_queued;
};

/* The end of a supervised worker. If the worker's report came first, the death holds the report
 * until the worker's stream ends. If the stream ended first, the death holds the worker's tasks
 * until the report comes, or until until_us. */
struct work_death {
    struct link link;
    uint32_t principal;
    char name[WORK_NAME_SIZE]; /* the worker's */
    bool is_reported;
    int signal, exit_code; /* these and the following members are the report's */
    char *tail;
    bool tells_begun;
    uint64_t *begun; /* [n_begun] */
    size_t n_begun;
    uint64_t until_us;
    struct list tasks; /* of struct work_task, which are LOST */
};

enum { WORK_RETRY_MS = 500 }; /* after so long a refused submission may succeed */

/* Returns the principal of an id, and makes it if it is new; NULL: no memory. */
struct work_principal *work_principal_get(struct work_table *w, uint32_t id);
/* Frees a principal that has neither tasks nor bytes. */
void work_principal_leave(struct work_table *w, struct work_principal *p);
/* Checks whether the principal may have so many more bytes. EXHAUSTED, with a hint when to retry.
 */
enum status work_check_bytes(const struct work_table *w, const struct work_principal *p,
                             size_t size_bytes, struct error *err) MUST_CHECK;
/* Returns the tasks of a principal for a function, and makes the share if it is new; NULL: no
 * memory. */
struct work_share *work_share_get(struct work_function *f, struct work_principal *p);
/* Frees a share that has no tasks. */
void work_share_leave(struct work_share *s);
/* Returns the share whose principal's turn it is; NULL: no task of the function is queued. */
struct work_share *work_function_next(const struct work_function *f);
/* Takes the first task off the queue of a share, which is not empty, and ends the turn of its
 * principal. */
struct work_task *work_share_take(struct work_share *s);
/* Frees the failure of a task that has one. */
void work_failure_free(struct work_task *t);
/* Returns the function of a node of the table's functions. */
struct work_function *work_function_of(struct hash_node *node);
/* Finds a function by its name: the principal's own before one for all. NULL: there is none. */
struct work_function *work_function_find(const struct work_table *w, uint32_t principal,
                                         const char *name);
/* Frees a function that has neither providers nor tasks. */
void work_function_free(struct work_function *f);

/* Moves a task from its state to another one that may follow. */
void work_task_move(struct work_task *t, enum work_task_state state);
/* Puts a QUEUED task into its place in its share's queue. */
void work_task_queue(struct work_task *t);
/* Makes a task DONE and tells the calls that wait for it. Takes failure; NULL: it has succeeded. */
void work_task_finish(struct work_task *t, const struct work_failure *failure);
/* Forgets a task that is DONE: nobody may find it any more. */
void work_task_forget(struct work_task *t);
/* Makes a task fail that is not DONE. text is copied. */
void work_task_fail(struct work_task *t, enum status status, enum reason reason, const char *text);
/* Frees a task that is DONE, or puts it into the table's done list, if no call waits for it. */
void work_task_settle(struct work_task *t);
/* Takes a task away from its worker. The caller then settles a task that is DONE. */
void work_task_release(struct work_task *t);
/* Returns a copy of f for the task, in one block. Without memory for it, returns a failure that
 * says so. */
const struct work_failure *work_failure_copy(struct work_task *t, const struct work_failure *f);

/* Returns the function that a worker of the principal offers, and makes it if it is new. NULL: err
 * says why not. */
struct work_function *work_function_provide(struct work_table *w, uint32_t principal,
                                            const char *name, bool is_private, struct error *err);
/* Tells that a provider of the function has left. */
void work_function_leave(struct work_function *f);
/* Gives queued tasks of the function to workers that have room. */
void work_function_assign(struct work_function *f);
/* Gives queued tasks of the worker's functions to the worker, as long as it has room. */
void work_worker_fill(struct work_worker *w);
/* Sets err to the reason why a silent worker is ended. */
void work_worker_say_silent(const struct peer *p, struct error *err);
/* Ends the waits for reports that have not come in time. */
void work_deaths_tick(struct work_table *w, uint64_t now_us);

#endif
