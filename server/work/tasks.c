/* The states of a task: how it is queued, which worker gets it, how it ends, and when it is freed.
 * struct work_task tells its life. */
#include <assert.h>
#include <stdlib.h>

#include "base/alarm.h"
#include "server/work/parts.h"

void work_task_move(struct work_task *t, enum work_task_state state)
{
    static const unsigned may[N_WORK_TASK_STATES] = {
        [WORK_TASK_QUEUED] = 1u << WORK_TASK_ASSIGNED | 1u << WORK_TASK_DONE,
        [WORK_TASK_ASSIGNED] = 1u << WORK_TASK_QUEUED | 1u << WORK_TASK_SENT | 1u << WORK_TASK_DONE,
        [WORK_TASK_SENT] = 1u << WORK_TASK_QUEUED | 1u << WORK_TASK_LOST | 1u << WORK_TASK_DONE,
        [WORK_TASK_LOST] = 1u << WORK_TASK_QUEUED | 1u << WORK_TASK_DONE,
    };

    assert((may[t->state] & 1u << state) != 0);
    t->state = state;
}

void work_task_queue(struct work_task *t)
{
    struct work_principal *p = t->principal;
    struct link *last = list_last(&t->share->queue), *l;

    if (p->n_queued++ == 0 && p->turn < t->work->turn)
        p->turn = t->work->turn; /* what it did not use while it had nothing is gone */
    if (last == NULL || container_of(last, struct work_task, link)->number < t->number) {
        list_push(&t->share->queue, &t->link);
        return;
    }
    l = list_first(&t->share->queue); /* one that comes back is among the first */
    while (container_of(l, struct work_task, link)->number < t->number)
        l = list_next(&t->share->queue, l);
    list_insert_before(l, &t->link);
}

static void work_task_free(struct work_task *t)
{
    struct work_table *w = t->work;

    hash_remove(&w->tasks, &t->by_id);
    if (t->request_id[0] != '\0')
        hash_remove(&w->requests, &t->by_request);
    if (link_is_on(&t->over))
        list_remove(&t->over);
    work_bytes_free(&t->payload, w);
    work_bytes_free(&t->result, w);
    work_failure_free(t);
    t->principal->n_tasks--;
    shared_limit_give(&w->tasks_limit, t->principal->id, 1);
    work_principal_leave(w, t->principal);
    free(t);
}

void work_task_settle(struct work_task *t)
{
    if (!list_is_empty(&t->waits) || link_is_on(&t->over))
        return;
    if (t->is_forgotten && t->worker == NULL) {
        work_task_free(t);
        return;
    }
    if (t->is_forgotten)
        return;
    t->done_us = env_now_us(t->work->config.env);
    list_push(&t->work->done, &t->over);
    alarm_by(t->work->config.alarm, t->done_us + (uint64_t)WORK_KEEP_MS * 1000);
}

void work_task_forget(struct work_task *t)
{
    t->is_forgotten = true;
    if (link_is_on(&t->over))
        list_remove(&t->over);
    work_task_settle(t);
}

void work_task_release(struct work_task *t)
{
    if (link_is_on(&t->recall))
        list_remove(&t->recall);
    peer_drop(&t->worker->peer, &t->order);
    t->worker = NULL;
    if (t->state == WORK_TASK_DONE)
        work_bytes_free(&t->payload, t->work);
}

static void work_worker_assign(struct work_worker *w, struct work_task *t)
{
    work_task_move(t, WORK_TASK_ASSIGNED);
    t->worker = w;
    peer_give(&w->peer, &t->order, true);
}

void work_function_assign(struct work_function *f)
{
    struct work_share *s;

    while ((s = work_function_next(f)) != NULL) {
        struct work_worker *best = NULL;

        for (struct link *l = list_first(&f->providers); l != NULL;
             l = list_next(&f->providers, l)) {
            struct work_worker *w = container_of(l, struct work_provider, of_function)->worker;

            if (w->peer.n_awaited < w->room &&
                (best == NULL || w->peer.n_awaited < best->peer.n_awaited))
                best = w;
        }
        if (best == NULL)
            return;
        work_worker_assign(best, work_share_take(s));
    }
}

void work_worker_fill(struct work_worker *w)
{
    while (w->peer.n_awaited < w->room) {
        struct work_share *best = NULL;

        for (size_t i = 0; i < w->n_provided; i++) {
            struct work_share *s = work_function_next(w->provided[i].function);

            if (s != NULL && (best == NULL || s->principal->turn < best->principal->turn))
                best = s;
        }
        if (best == NULL)
            return;
        work_worker_assign(w, work_share_take(best));
    }
}

void work_task_finish(struct work_task *t, const struct work_failure *failure)
{
    struct work_table *w = t->work;
    struct work_worker *worker = t->worker;
    enum work_task_state was = t->state;
    struct link *l;

    work_task_move(t, WORK_TASK_DONE);
    if (link_is_on(&t->over))
        list_remove(&t->over); /* its deadline */
    t->failure = failure;
    w->n_done++;
    w->n_failed += failure != NULL;
    if (was == WORK_TASK_QUEUED) {
        list_remove(&t->link);
        t->principal->n_queued--;
    } else if (was == WORK_TASK_ASSIGNED) {
        work_task_release(t);
    } else if (was == WORK_TASK_SENT && worker != NULL) {
        list_push(&worker->recalls, &t->recall);
        worker->peer.notify(&worker->peer);
    } else if (link_is_on(&t->link)) {
        list_remove(&t->link); /* of a death */
    }
    if (t->worker == NULL)
        work_bytes_free(&t->payload, w); /* else its stream may be sending it */
    t->share->n_tasks--;
    work_share_leave(t->share);
    t->share = NULL;
    for (l = list_first(&t->waits); l != NULL; l = list_next(&t->waits, l)) {
        struct work_wait_entry *e = container_of(l, struct work_wait_entry, of_task);

        list_remove(&e->of_wait);
        list_push(&e->wait->ready, &e->of_wait);
        e->wait->n_pending--;
        e->wait->notify(e->wait);
    }
    work_task_settle(t);
    if (was == WORK_TASK_ASSIGNED)
        work_worker_fill(worker);
}

void work_task_fail(struct work_task *t, enum status status, enum reason reason, const char *text)
{
    struct work_failure f = {0};

    (void)error_because(&f.err, status, reason, NULL, "%s", text);
    work_task_finish(t, work_failure_copy(t, &f));
}
