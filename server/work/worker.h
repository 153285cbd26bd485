/* A worker that computes functions: the tasks that wait for it, and its results. In the memory of
 * its stream (parley.v1.Work.Attach), which knows the wire. Loop. */
#ifndef SERVER_WORK_WORKER_H
#define SERVER_WORK_WORKER_H

#include "server/work/work.h"

struct work_offer {
    const char *name; /* which its supervisor knows; "": it has none, nobody reports its end */
    uint32_t principal;
    bool is_private;              /* only tasks of its principal come to it */
    const char *const *functions; /* [n] */
    size_t n_functions;
    size_t room;      /* tasks that it has at once */
    size_t n_at_once; /* of those sent, the oldest so many may have begun */
};

/* That a worker offers a function. */
struct work_provider {
    struct link of_function;
    struct work_function *function;
    struct work_worker *worker;
};

struct work_worker {
    struct peer peer; /* its orders are tasks, all awaited */
    char name[WORK_NAME_SIZE];
    uint32_t principal;
    struct work_provider *provided; /* [n_provided] */
    size_t n_provided;
    size_t room, n_at_once;
    struct list recalls; /* of tasks sent whose result is of no use any more */
};

/* w is zeroed but for the callbacks of its peer. */
enum status work_worker_open(struct work_worker *w, struct work_table *work,
                             const struct work_offer *offer, struct error *err) MUST_CHECK;
/* Tasks that it may have begun count as lost, unless its supervisor knows better; the others wait
 * again, before all others. Not open is fine. */
void work_worker_close(struct work_worker *w);

/* The next task to send; NULL: none. */
struct work_task *work_worker_order(const struct work_worker *w);
void work_worker_taken(struct work_worker *w);
/* The id of the next task whose result is not wanted any more; false: none. It is taken. */
bool work_worker_recall(struct work_worker *w, uint64_t *id);

/* From now on it has at most so many tasks at once; 0: no more come. */
enum status work_worker_set_room(struct work_worker *w, uint64_t room,
                                 struct error *err) MUST_CHECK;
/* INVALID: it has no such task. */
enum status work_worker_find(struct work_task **out, const struct work_worker *w, uint64_t id,
                             struct error *err) MUST_CHECK;
/* The task's result: takes result, whole, and a failure (NULL: none), which is copied. */
void work_worker_result(struct work_worker *w, struct work_task *t, struct work_bytes *result,
                        const struct work_failure *failure);
/* It has not begun the task, and gives it back. */
void work_worker_return(struct work_worker *w, struct work_task *t);

/* What a supervisor tells of a worker's end, before or after its stream has ended. */
struct work_report {
    const char *name;
    uint32_t principal;
    int signal, exit_code;
    const char *tail;
    bool tells_begun;      /* else by n_at_once */
    const uint64_t *begun; /* [n_begun] */
    size_t n_begun;
};
enum status work_report(struct work_table *work, const struct work_report *r,
                        struct error *err) MUST_CHECK;

#endif
