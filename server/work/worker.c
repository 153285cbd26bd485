/* Workers: how they attach, take tasks, answer them, and end. A worker computes its tasks in the
 * order in which it got them, so the first n_at_once of those sent may have begun when it is lost.
 *
 * A worker that is at fault, silent or gone is closed. Of a supervised worker the supervisor
 * reports the end (work_report), before or after the end of its stream: a task that may have begun
 * waits for the report. */
#include "server/work/worker.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/name.h"
#include "server/work/parts.h"

enum { WORK_MAX_DEATHS = 1024 };

static struct work_task *work_task_of(struct peer_order *o)
{
    return container_of(o, struct work_task, order);
}

static struct work_table *work_table_of(const struct work_worker *w)
{
    return container_of(w->peer.all, struct work_table, workers);
}

/* --- reports --- */

static struct work_death *work_death_find(const struct work_table *w, uint32_t principal,
                                          const char *name)
{
    for (struct link *l = list_first(&w->deaths); l != NULL; l = list_next(&w->deaths, l)) {
        struct work_death *d = container_of(l, struct work_death, link);

        if (d->principal == principal && strcmp(d->name, name) == 0)
            return d;
    }
    return NULL;
}

/* NULL: no memory, or there are too many. */
static struct work_death *work_death_make(struct work_table *w, uint32_t principal,
                                          const char *name)
{
    struct work_death *d;
    size_t n = 0;

    for (struct link *l = list_first(&w->deaths); l != NULL; l = list_next(&w->deaths, l))
        n++;
    d = n >= WORK_MAX_DEATHS ? NULL : try_alloc(1, sizeof(*d));
    if (d == NULL)
        return NULL;
    d->principal = principal;
    memcpy(d->name, name, strlen(name) + 1);
    list_init(&d->tasks);
    d->until_us = env_now_us(w->config.env) + (uint64_t)WORK_REPORT_MS * 1000;
    list_push(&w->deaths, &d->link);
    alarm_by(w->config.alarm, d->until_us);
    return d;
}

/* d NULL: nothing is known of it. */
static void work_task_abort(struct work_task *t, const struct work_death *d)
{
    struct work_failure f = {.is_loss = true};
    const char *how = "its worker was lost";

    if (d != NULL && d->is_reported) {
        f.signal = d->signal;
        f.exit_code = d->exit_code;
        f.tail = d->tail;
    }
    if (f.signal != 0)
        (void)error_because(&f.err, STATUS_ABORTED, REASON_WORKER_LOST, NULL,
                            "%s by signal %d, as often as it may be (%u)", how, f.signal,
                            t->n_lost);
    else if (d != NULL && d->is_reported)
        (void)error_because(&f.err, STATUS_ABORTED, REASON_WORKER_LOST, NULL,
                            "%s with exit status %d, as often as it may be (%u)", how, f.exit_code,
                            t->n_lost);
    else
        (void)error_because(&f.err, STATUS_ABORTED, REASON_WORKER_LOST, NULL,
                            "%s, as often as it may be (%u)", how, t->n_lost);
    work_task_finish(t, work_failure_copy(t, &f));
}

static bool work_death_has_begun(const struct work_death *d, uint64_t id)
{
    if (!d->is_reported || !d->tells_begun)
        return true; /* it may have */
    for (size_t i = 0; i < d->n_begun; i++)
        if (d->begun[i] == id)
            return true;
    return false;
}

/* Waits again, in its old place. */
static void work_task_again(struct work_task *t)
{
    work_task_move(t, WORK_TASK_QUEUED);
    work_task_queue(t);
}

/* The worker had it, and has ended so; d NULL: nothing is known. */
static void work_task_lose(struct work_task *t, const struct work_death *d)
{
    struct work_table *w = t->work;

    if (link_is_on(&t->link))
        list_remove(&t->link);
    if (d != NULL && !work_death_has_begun(d, t->by_id.hash)) {
        work_task_again(t);
        return;
    }
    w->n_lost++;
    if (++t->n_lost > t->n_retries) {
        work_task_abort(t, d);
        return;
    }
    w->n_retried++;
    work_task_again(t);
}

/* What is to become of its tasks is known. */
static void work_death_over(struct work_death *d)
{
    struct link *l;

    list_remove(&d->link);
    while ((l = list_last(&d->tasks)) != NULL) {
        struct work_task *t = container_of(l, struct work_task, link);
        struct work_function *f = t->share->function;

        work_task_lose(t, d);
        work_function_assign(f);
    }
    free(d->tail);
    free(d->begun);
    free(d);
}

enum status work_report(struct work_table *work, const struct work_report *r, struct error *err)
{
    struct work_death *d;

    if (r->name[0] == '\0' || strlen(r->name) >= WORK_NAME_SIZE)
        return error_field(err, "worker", "has %zu bytes, it has 1 to %d", strlen(r->name),
                           WORK_NAME_SIZE - 1);
    if (strlen(r->tail) > WORK_MAX_TAIL_BYTES)
        return error_field(err, "stderr_tail", "has %zu bytes, at most %d are taken",
                           strlen(r->tail), WORK_MAX_TAIL_BYTES);
    if (r->n_begun > WORK_MAX_BEGUN)
        return error_field(err, "begun", "has %zu tasks, at most %d are taken", r->n_begun,
                           WORK_MAX_BEGUN);
    d = work_death_find(work, r->principal, r->name);
    if (d != NULL && d->is_reported)
        return STATUS_OK; /* the same again */
    if (d == NULL)
        d = work_death_make(work, r->principal, r->name);
    if (d != NULL) {
        d->tail = try_strndup(r->tail, strlen(r->tail));
        d->begun = try_alloc(r->n_begun + 1, sizeof(d->begun[0]));
    }
    if (d == NULL || d->tail == NULL || d->begun == NULL) {
        if (d != NULL)
            work_death_over(d);
        return error_no_memory(err, sizeof(*d), "a report");
    }
    d->signal = r->signal;
    d->exit_code = r->exit_code;
    d->tells_begun = r->tells_begun;
    if (r->n_begun > 0)
        memcpy(d->begun, r->begun, r->n_begun * sizeof(d->begun[0]));
    d->n_begun = r->n_begun;
    d->is_reported = true;
    if (!list_is_empty(&d->tasks))
        work_death_over(d);
    return STATUS_OK;
}

/* --- coming and going --- */

static bool work_name_is_fine(const char *name)
{
    return name_is_valid(name, strlen(name), WORK_NAME_SIZE - 1, NAME_MARKS "/");
}

static enum status work_check_offer(const struct work_table *work, const struct work_offer *o,
                                    struct error *err)
{
    if (work->is_ending)
        return error_draining(err);
    if (!work->config.may_attach)
        return error_set(err, STATUS_DENIED,
                         "workers may not attach here (parleyd --attach says who may)");
    if (o->name[0] != '\0' && !work_name_is_fine(o->name))
        return error_field(err, "offer.name",
                           "has 1 to %d letters, digits, '.', '_', '/' and '-', or none",
                           WORK_NAME_SIZE - 1);
    if (o->n_functions == 0 || o->n_functions > WORK_MAX_OFFERED)
        return error_field(err, "offer.functions", "has %zu, it has 1 to %d", o->n_functions,
                           WORK_MAX_OFFERED);
    for (size_t i = 0; i < o->n_functions; i++) {
        if (!work_name_is_fine(o->functions[i]))
            return error_field(err, "offer.functions",
                               "has a name that is not 1 to %d letters, digits, '.', '_', '/' and "
                               "'-'",
                               WORK_NAME_SIZE - 1);
        for (size_t k = 0; k < i; k++)
            if (strcmp(o->functions[i], o->functions[k]) == 0)
                return error_field(err, "offer.functions", "has '%s' twice", o->functions[i]);
    }
    if (o->room > WORK_MAX_ROOM)
        return error_field(err, "offer.room", "is %zu, at most %d are sent", o->room,
                           WORK_MAX_ROOM);
    if (o->n_at_once > WORK_MAX_ROOM)
        return error_field(err, "offer.at_once", "is %zu, it is at most %d", o->n_at_once,
                           WORK_MAX_ROOM);
    return shared_limit_check(&work->workers_limit, o->principal, 1, err);
}

static void work_worker_withdraw(struct work_worker *w)
{
    while (w->n_provided > 0) {
        struct work_provider *p = &w->provided[--w->n_provided];

        list_remove(&p->of_function);
        work_function_leave(p->function);
    }
    free(w->provided);
    w->provided = NULL;
}

enum status work_worker_open(struct work_worker *w, struct work_table *work,
                             const struct work_offer *offer, struct error *err)
{
    if (work_check_offer(work, offer, err) != STATUS_OK)
        return err->status;
    memcpy(w->name, offer->name, strlen(offer->name) + 1);
    w->principal = offer->principal;
    w->room = offer->room > 0 ? offer->room : 1;
    w->n_at_once = offer->n_at_once > 0 ? offer->n_at_once : 1;
    w->provided = try_alloc(offer->n_functions, sizeof(w->provided[0]));
    if (w->provided == NULL)
        (void)error_no_memory(err, offer->n_functions * sizeof(w->provided[0]), "functions");
    for (size_t i = 0; w->provided != NULL && i < offer->n_functions; i++) {
        struct work_provider *p = &w->provided[i];

        p->worker = w;
        p->function =
            work_function_provide(work, w->principal, offer->functions[i], offer->is_private, err);
        if (p->function == NULL) {
            work_worker_withdraw(w);
            break;
        }
        list_push(&p->function->providers, &p->of_function);
        w->n_provided++;
    }
    if (w->provided == NULL)
        return err->status;
    list_init(&w->recalls);
    peer_open(&w->peer, &work->workers, true);
    shared_limit_hold(&work->workers_limit, w->principal, 1);
    work_worker_fill(w);
    return STATUS_OK;
}

static void work_task_requeue(struct work_task *t)
{
    work_task_release(t);
    if (t->state == WORK_TASK_DONE)
        work_task_settle(t);
    else
        work_task_again(t);
}

/* Loses the tasks that the worker still has. */
static void work_worker_lose_begun(struct work_worker *w, struct work_table *work)
{
    bool is_supervised = w->name[0] != '\0' && !work->is_ending;
    struct work_death *d = is_supervised ? work_death_find(work, w->principal, w->name) : NULL;
    struct peer_order *o;

    if (is_supervised && d == NULL)
        d = work_death_make(work, w->principal, w->name);
    while ((o = peer_newest(&w->peer)) != NULL) {
        struct work_task *t = work_task_of(o);

        if (t->state == WORK_TASK_DONE) {
            work_task_requeue(t);
            continue;
        }
        work_task_release(t);
        work_task_move(t, WORK_TASK_LOST);
        if (d == NULL || d->is_reported)
            work_task_lose(t, d);
        else
            list_push_front(&d->tasks, &t->link);
    }
    if (d != NULL && d->is_reported)
        work_death_over(d);
}

void work_worker_close(struct work_worker *w)
{
    const struct peer *p = &w->peer;
    struct work_table *work;
    size_t n_begun;

    if (!peer_is_open(p))
        return;
    work = work_table_of(w);
    peer_close(&w->peer);
    shared_limit_give(&work->workers_limit, w->principal, 1);
    w->room = 0;
    n_begun = p->n_awaited - p->n_orders;
    if (n_begun > w->n_at_once)
        n_begun = w->n_at_once;
    while (p->n_awaited > n_begun) /* the newest first, which finds its place at once */
        work_task_requeue(work_task_of(peer_newest(p)));
    if (n_begun > 0)
        work_worker_lose_begun(w, work);
    for (size_t i = 0; i < w->n_provided; i++)
        work_function_assign(w->provided[i].function);
    work_worker_withdraw(w);
}

/* --- orders and results --- */

struct work_task *work_worker_order(const struct work_worker *w)
{
    struct peer_order *o = peer_next(&w->peer);

    return o == NULL ? NULL : work_task_of(o);
}

void work_worker_taken(struct work_worker *w)
{
    work_task_move(work_task_of(peer_take(&w->peer)), WORK_TASK_SENT);
}

bool work_worker_recall(struct work_worker *w, uint64_t *id)
{
    struct link *l = list_pop(&w->recalls);

    if (l == NULL)
        return false;
    *id = container_of(l, struct work_task, recall)->by_id.hash;
    return true;
}

enum status work_worker_set_room(struct work_worker *w, uint64_t room, struct error *err)
{
    if (room > WORK_MAX_ROOM)
        return error_field(err, "room", "is %" PRIu64 ", at most %d are sent", room, WORK_MAX_ROOM);
    w->room = (size_t)room;
    work_worker_fill(w);
    return STATUS_OK;
}

enum status work_worker_find(struct work_task **out, const struct work_worker *w, uint64_t id,
                             struct error *err)
{
    struct hash_node *n = hash_first(&work_table_of(w)->tasks, id);
    struct work_task *t = n == NULL ? NULL : container_of(n, struct work_task, by_id);

    if (t == NULL || t->worker != w || t->state == WORK_TASK_ASSIGNED)
        return error_field(err, "task", "is %016" PRIx64 ", which this worker does not have", id);
    *out = t;
    return STATUS_OK;
}

void work_worker_result(struct work_worker *w, struct work_task *t, struct work_bytes *result,
                        const struct work_failure *failure)
{
    bool is_done = t->state == WORK_TASK_DONE; /* cancelled, or late */

    if (!is_done) {
        t->result = *result;
        *result = (struct work_bytes){0};
    } else {
        work_bytes_free(result, t->work);
    }
    work_task_release(t);
    if (is_done)
        work_task_settle(t);
    else
        work_task_finish(t, failure == NULL ? NULL : work_failure_copy(t, failure));
    work_worker_fill(w);
}

void work_worker_return(struct work_worker *w, struct work_task *t)
{
    struct work_function *f = t->state == WORK_TASK_DONE ? NULL : t->share->function;

    work_task_requeue(t);
    if (f != NULL)
        work_function_assign(f);
}

void work_worker_say_silent(const struct peer *p, struct error *err)
{
    (void)error_set(err, STATUS_DEADLINE,
                    "the worker said nothing for %" PRIu64 " ms (--attach-timeout)",
                    p->all->silence_us / 1000);
}

void work_deaths_tick(struct work_table *w, uint64_t now_us)
{
    struct link *l, *next;

    for (l = list_first(&w->deaths); l != NULL; l = next) {
        struct work_death *d = container_of(l, struct work_death, link);

        next = list_next(&w->deaths, l);
        if (d->until_us <= now_us || w->is_ending)
            work_death_over(d);
        else
            alarm_by(w->config.alarm, d->until_us);
    }
}
