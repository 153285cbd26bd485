/* The table's tasks: how they are submitted, which of the waiting ones a worker gets, how they end,
 * and which calls wait for their results. worker.c has the workers and what becomes of the tasks of
 * a lost one; struct work_task tells the life of a task. */
#include "server/work/work.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "server/telemetry/metric.h"
#include "server/work/parts.h"

static const struct limit_kind kind_of_work_workers = {"workers of Work", NULL, NULL};
static const struct limit_kind kind_of_work_functions = {"functions of Work", NULL,
                                                         "offer.functions"};
static const struct limit_kind kind_of_work_tasks = {"tasks of Work", NULL, NULL};
static const struct limit_kind kind_of_work_bytes = {"bytes of payloads and results of Work",
                                                     "--work-bytes", "payload"};

enum { WORK_TICK_US = 20000 };

void work_init(struct work_table *w, const struct work_config *config)
{
    *w = (struct work_table){.config = *config};
    shared_limit_init(&w->workers_limit, &kind_of_work_workers, WORK_MAX_WORKERS);
    shared_limit_init(&w->functions_limit, &kind_of_work_functions, WORK_MAX_FUNCTIONS);
    shared_limit_init(&w->tasks_limit, &kind_of_work_tasks, WORK_MAX_TASKS);
    shared_limit_init(&w->bytes_limit, &kind_of_work_bytes, config->max_bytes);
    hash_init(&w->functions, config->env);
    hash_init(&w->tasks, NULL); /* ids are random */
    hash_init(&w->requests, config->env);
    w->workers = (struct peers){.env = config->env,
                                .silence_us = config->silence_us,
                                .alarm = config->alarm,
                                .say_silent = work_worker_say_silent};
    peers_init(&w->workers);
    list_init(&w->principals);
    list_init(&w->deaths);
    list_init(&w->done);
    list_init(&w->due);
}

enum status work_check_function(struct work_table *w, uint32_t principal, const char *name,
                                struct error *err)
{
    if (work_function_find(w, principal, name) != NULL)
        return STATUS_OK;
    (void)error_field(err, "function", "'%.127s' is offered by no worker", name);
    return err->status = STATUS_NOT_FOUND;
}

size_t work_n_queued(const struct work_table *w)
{
    size_t n = 0;

    for (struct link *l = list_first(&w->principals); l != NULL; l = list_next(&w->principals, l))
        n += container_of(l, struct work_principal, link)->n_queued;
    return n;
}

/* --- tasks --- */

static struct work_task *work_task_of_request(const struct work_table *w,
                                              const struct work_submission *s, uint64_t hash)
{
    for (struct hash_node *n = hash_first(&w->requests, hash); n != NULL; n = hash_next(n)) {
        struct work_task *t = container_of(n, struct work_task, by_request);

        if (t->principal->id == s->principal && strcmp(t->request_id, s->request_id) == 0)
            return t;
    }
    return NULL;
}

static uint64_t work_digest(const struct work_table *w, const struct work_submission *s,
                            const struct work_bytes *payload)
{
    uint64_t hash = hash_text(&w->requests, s->n_retries, s->function);

    return payload->size_bytes == 0
               ? hash
               : hash_bytes(&w->requests, hash, payload->data, payload->size_bytes);
}

static enum status work_check_submission(const struct work_table *w,
                                         const struct work_submission *s, struct error *err)
{
    if (w->is_ending)
        return error_draining(err);
    if (strlen(s->request_id) >= WORK_REQUEST_ID_SIZE)
        return error_field(err, "request_id", "has %zu bytes, at most %d are taken",
                           strlen(s->request_id), WORK_REQUEST_ID_SIZE - 1);
    if (s->n_retries > WORK_MAX_RETRIES)
        return error_field(err, "retries", "is %u, at most %d are made", s->n_retries,
                           WORK_MAX_RETRIES);
    return STATUS_OK;
}

/* A task in its share, not queued yet; NULL: no memory. */
static struct work_task *work_task_make(struct work_table *w, struct work_function *f,
                                        const struct work_submission *s, uint64_t request_hash)
{
    struct work_principal *p = work_principal_get(w, s->principal);
    struct work_share *share = p == NULL ? NULL : work_share_get(f, p);
    struct work_task *t = share == NULL ? NULL : try_alloc(1, sizeof(*t));
    uint64_t id;

    if (t == NULL) {
        if (share != NULL)
            work_share_leave(share);
        if (p != NULL)
            work_principal_leave(w, p);
        return NULL;
    }
    t->work = w;
    t->share = share;
    t->principal = p;
    t->deadline_us = s->deadline_us;
    t->n_retries = s->n_retries;
    list_init(&t->waits);
    memcpy(t->request_id, s->request_id, strlen(s->request_id) + 1);
    do
        w->config.env->random(w->config.env->self, &id, sizeof(id));
    while (id == 0 || hash_first(&w->tasks, id) != NULL);
    hash_add(&w->tasks, &t->by_id, id);
    if (s->request_id[0] != '\0')
        hash_add(&w->requests, &t->by_request, request_hash);
    share->n_tasks++;
    p->n_tasks++;
    shared_limit_hold(&w->tasks_limit, p->id, 1);
    t->number = ++w->n_submitted;
    return t;
}

enum status work_submit(struct work_task **out, struct work_table *w,
                        const struct work_submission *s, struct work_bytes *payload,
                        struct error *err)
{
    uint64_t request_hash = 0, digest = 0;
    struct work_function *f;
    struct work_task *t;

    if (work_check_submission(w, s, err) != STATUS_OK)
        return err->status;
    if (s->request_id[0] != '\0') {
        request_hash = hash_text(&w->requests, s->principal, s->request_id);
        digest = work_digest(w, s, payload);
        t = work_task_of_request(w, s, request_hash);
        if (t != NULL && t->digest != digest)
            return error_because(err, STATUS_EXISTS, REASON_NONE, "request_id",
                                 "request_id was used before with another body");
        if (t != NULL) {
            work_bytes_free(payload, w);
            *out = t;
            return STATUS_OK;
        }
    }
    if (work_check_function(w, s->principal, s->function, err) != STATUS_OK)
        return err->status;
    f = work_function_find(w, s->principal, s->function);
    if (shared_limit_check(&w->tasks_limit, s->principal, 1, err) != STATUS_OK) {
        err->retry_after_ms = WORK_RETRY_MS;
        return err->status;
    }
    t = work_task_make(w, f, s, request_hash);
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a task");
    t->digest = digest;
    t->payload = *payload;
    *payload = (struct work_bytes){0};
    if (t->deadline_us != 0) {
        list_push(&w->due, &t->over);
        alarm_by(w->config.alarm, t->deadline_us);
    }
    work_task_queue(t);
    work_function_assign(f);
    *out = t;
    return STATUS_OK;
}

enum status work_find(struct work_task **out, struct work_table *w, uint32_t principal, uint64_t id,
                      struct error *err)
{
    struct hash_node *n = hash_first(&w->tasks, id);
    struct work_task *t = n == NULL ? NULL : container_of(n, struct work_task, by_id);

    if (t == NULL || t->principal->id != principal || t->is_forgotten) {
        (void)error_field(err, "tasks", "has %016" PRIx64 ", there is no such task", id);
        return err->status = STATUS_NOT_FOUND;
    }
    *out = t;
    return STATUS_OK;
}

uint32_t work_task_principal(const struct work_task *t)
{
    return t->principal->id;
}

const char *work_task_function(const struct work_task *t)
{
    return t->share->function->name;
}

void work_cancel(struct work_task *t)
{
    if (t->state == WORK_TASK_DONE)
        work_task_forget(t);
    else
        work_task_fail(t, STATUS_CANCELLED, REASON_NONE, "the task was cancelled");
}

/* --- waiting --- */

void work_wait_init(struct work_wait *wait, void (*notify)(struct work_wait *wait))
{
    list_init(&wait->pending);
    list_init(&wait->ready);
    wait->n_pending = 0;
    wait->notify = notify;
}

enum status work_wait_add(struct work_wait *wait, struct work_task *t, uint64_t tag,
                          struct error *err)
{
    struct work_wait_entry *e = try_alloc(1, sizeof(*e));

    if (e == NULL)
        return error_no_memory(err, sizeof(*e), "a wait");
    e->task = t;
    e->wait = wait;
    e->tag = tag;
    list_push(&t->waits, &e->of_task);
    if (t->state != WORK_TASK_DONE) {
        list_push(&wait->pending, &e->of_wait);
        wait->n_pending++;
        return STATUS_OK;
    }
    if (link_is_on(&t->over))
        list_remove(&t->over);
    list_push(&wait->ready, &e->of_wait);
    wait->notify(wait);
    return STATUS_OK;
}

struct work_wait_entry *work_wait_next(const struct work_wait *wait)
{
    struct link *l = list_first(&wait->ready);

    return l == NULL ? NULL : container_of(l, struct work_wait_entry, of_wait);
}

void work_wait_taken(struct work_wait_entry *e, bool forget)
{
    struct work_task *t = e->task;

    if (t->state != WORK_TASK_DONE)
        e->wait->n_pending--;
    list_remove(&e->of_task);
    list_remove(&e->of_wait);
    free(e);
    if (t->state != WORK_TASK_DONE)
        return;
    if (forget)
        work_task_forget(t);
    else
        work_task_settle(t);
}

void work_wait_close(struct work_wait *wait, bool is_owner)
{
    struct link *l;

    while ((l = list_first(&wait->pending)) != NULL) {
        struct work_wait_entry *e = container_of(l, struct work_wait_entry, of_wait);
        struct work_task *t = e->task;

        work_wait_taken(e, false);
        if (is_owner && list_is_empty(&t->waits)) {
            t->is_forgotten = true;
            work_cancel(t);
        }
    }
    while ((l = list_first(&wait->ready)) != NULL)
        work_wait_taken(container_of(l, struct work_wait_entry, of_wait), is_owner);
}

/* --- time --- */

static void work_tick_done(struct work_table *w, uint64_t now_us)
{
    struct link *l;

    while ((l = list_first(&w->done)) != NULL) {
        struct work_task *t = container_of(l, struct work_task, over);
        uint64_t until_us = t->done_us + (uint64_t)WORK_KEEP_MS * 1000;

        if (until_us > now_us) {
            alarm_by(w->config.alarm, until_us);
            return;
        }
        work_task_forget(t);
    }
}

static void work_tick_due(struct work_table *w, uint64_t now_us)
{
    uint64_t next_us = UINT64_MAX;
    struct link *l, *next;

    for (l = list_first(&w->due); l != NULL; l = next) {
        struct work_task *t = container_of(l, struct work_task, over);

        next = list_next(&w->due, l);
        if (t->deadline_us <= now_us)
            work_task_fail(t, STATUS_DEADLINE, REASON_NONE,
                           "the task was not done by its deadline");
        else if (t->deadline_us < next_us)
            next_us = t->deadline_us;
    }
    if (next_us != UINT64_MAX) /* many deadlines are looked at together */
        alarm_by(w->config.alarm,
                 next_us > now_us + WORK_TICK_US ? next_us : now_us + WORK_TICK_US);
}

/* The shares of a function are freed with their last task. */
static void work_function_fail(struct work_function *f, enum status status, enum reason reason,
                               const char *text)
{
    for (struct link *l = list_first(&f->shares), *next; l != NULL; l = next) {
        struct work_share *s = container_of(l, struct work_share, link);
        size_t n = s->n_tasks;

        next = list_next(&f->shares, l);
        for (struct link *head; n > 0 && (head = list_first(&s->queue)) != NULL; n--)
            work_task_fail(container_of(head, struct work_task, link), status, reason, text);
    }
}

static void work_tick_functions(struct work_table *w, uint64_t now_us)
{
    struct hash_node *n = hash_each(&w->functions, NULL), *next;

    for (; n != NULL; n = next) {
        struct work_function *f = work_function_of(n);

        next = hash_each(&w->functions, n);
        if (!list_is_empty(&f->providers))
            continue;
        if (f->left_us + w->config.silence_us > now_us && !w->is_ending) {
            alarm_by(w->config.alarm, f->left_us + w->config.silence_us);
            continue;
        }
        work_function_fail(f, STATUS_UNAVAILABLE,
                           w->is_ending ? REASON_SERVER_DRAINING : REASON_WORKER_LOST,
                           w->is_ending ? "the server is shutting down"
                                        : "no worker offers the function any longer");
        if (list_is_empty(&f->shares))
            work_function_free(f);
        else /* of workers that are lost: their ends are awaited */
            alarm_by(w->config.alarm, now_us + w->config.silence_us);
    }
}

void work_tick(void *work)
{
    struct work_table *w = work;
    uint64_t now_us = env_now_us(w->config.env);

    peers_tick(&w->workers);
    work_deaths_tick(w, now_us);
    work_tick_functions(w, now_us);
    work_tick_due(w, now_us);
    work_tick_done(w, now_us);
}

void work_end(void *work)
{
    struct work_table *w = work;

    w->is_ending = true;
    peers_end(&w->workers);
    work_tick(w);
}

void work_leave(void *work, const struct error *why)
{
    struct work_table *w = work;
    const bool was_ending = w->is_ending;

    work_end(w);
    w->is_ending = was_ending;
}

void work_deinit(void *work)
{
    struct work_table *w = work;
    struct hash_node *n;
    struct link *l;

    assert(list_is_empty(&w->workers.list));
    work_end(w);
    assert(list_is_empty(&w->deaths));
    while ((l = list_first(&w->done)) != NULL)
        work_task_forget(container_of(l, struct work_task, over));
    assert(w->tasks_limit.held == 0 && w->bytes_limit.held == 0 && list_is_empty(&w->principals));
    while ((n = hash_each(&w->functions, NULL)) != NULL)
        work_function_free(work_function_of(n));
    shared_limit_deinit(&w->workers_limit);
    shared_limit_deinit(&w->functions_limit);
    shared_limit_deinit(&w->tasks_limit);
    shared_limit_deinit(&w->bytes_limit);
    hash_deinit(&w->functions);
    hash_deinit(&w->tasks);
    hash_deinit(&w->requests);
}

/* --- metrics --- */

void work_metrics(const struct work_table *w, struct buf *out)
{
    static const struct metric_row held[] = {
        METRIC("gauge", "parley_work_workers", "Workers attached that compute functions.",
               work_table, workers_limit.held),
        METRIC("gauge", "parley_work_tasks", "Tasks whose results were not fetched or forgotten.",
               work_table, tasks_limit.held),
    };
    static const struct metric_row rest[] = {
        METRIC("gauge", "parley_work_bytes", "Payloads and results; --work-bytes is the ceiling.",
               work_table, bytes_limit.held),
        METRIC("counter", "parley_work_tasks_total", "Tasks submitted.", work_table, n_submitted),
        METRIC("counter", "parley_work_failed_total", "Tasks that ended with a failure.",
               work_table, n_failed),
        METRIC("counter", "parley_work_lost_total", "Times that a task was lost with its worker.",
               work_table, n_lost),
        METRIC("counter", "parley_work_retried_total", "Of those, the ones run again.", work_table,
               n_retried),
    };

    METRIC_ROWS(out, held, w);
    metric_one(out, "parley_work_queued", "gauge", "Of those, the ones that wait for a worker.",
               (double)work_n_queued(w));
    METRIC_ROWS(out, rest, w);
}
