/* What the files of this folder share. */
#ifndef SERVER_WORK_PARTS_H
#define SERVER_WORK_PARTS_H

#include "server/work/worker.h"

struct work_function {
    struct hash_node by_name;
    struct work_table *work;
    char name[WORK_NAME_SIZE];
    bool is_private;
    uint32_t owner;        /* whose worker offered it first; if is_private, the only one */
    struct list providers; /* of struct work_provider */
    struct list shares;
    uint64_t left_us; /* no worker has offered it since */
};

/* The tasks of one principal for one function that are not done; there is one as long as there are
 * any. */
struct work_share {
    struct link link; /* in the function's shares */
    struct work_function *function;
    struct work_principal *principal;
    struct list queue;
    size_t n_tasks; /* not done */
};

struct work_principal {
    struct link link;
    uint32_t id;
    uint64_t turn; /* the lowest comes next */
    size_t n_tasks, n_queued;
};

/* A supervised worker that is lost: its report, or the tasks that wait for that. */
struct work_death {
    struct link link;
    uint32_t principal;
    char name[WORK_NAME_SIZE];
    bool is_reported;
    int signal, exit_code;
    char *tail; /* NULL: none */
    bool tells_begun;
    uint64_t *begun; /* [n_begun] */
    size_t n_begun;
    uint64_t until_us;
    struct list tasks;
};

void work_task_move(struct work_task *t, enum work_task_state state);
/* To its place in its queue, which is in the order of submission. */
void work_task_queue(struct work_task *t);
/* It is done: takes failure (NULL: it succeeded). */
void work_task_finish(struct work_task *t, const struct work_failure *failure);
/* One that is done and nobody waits for is kept for a while, or freed if it is of no use. */
void work_task_settle(struct work_task *t);
/* Its worker has it no more. One that is done is to be settled then. */
void work_task_release(struct work_task *t);
/* A copy in one block, for the task; one without room for its texts has none. */
const struct work_failure *work_failure_copy(struct work_task *t, const struct work_failure *f);

/* Of a worker's offer; NULL: err says why not. */
struct work_function *work_function_provide(struct work_table *w, uint32_t principal,
                                            const char *name, bool is_private, struct error *err);
void work_function_leave(struct work_function *f);
/* Gives queued tasks to workers with room. */
void work_function_assign(struct work_function *f);
/* Gives queued tasks of any of its functions to the worker, as long as it has room. */
void work_worker_fill(struct work_worker *w);
void work_worker_assign(struct work_worker *w, struct work_task *t);
void work_worker_say_silent(const struct peer *p, struct error *err);
void work_deaths_tick(struct work_table *w, uint64_t now_us);

#endif
