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

enum { WORK_RETRY_MS = 500, WORK_TURN = 1 << 20, WORK_TICK_US = 20000 };

static const struct work_failure work_no_memory = {
    .err = {.status = STATUS_EXHAUSTED,
            .reason = REASON_OUT_OF_MEMORY,
            .text = "out of memory for the task's failure"},
    .type = "",
    .message = "",
    .trace = "",
    .tail = "",
};

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

/* --- principals --- */

static struct work_principal *work_principal_get(struct work_table *w, uint32_t id)
{
    struct work_principal *p;

    for (struct link *l = list_first(&w->principals); l != NULL; l = list_next(&w->principals, l)) {
        p = container_of(l, struct work_principal, link);
        if (p->id == id)
            return p;
    }
    p = try_alloc(1, sizeof(*p));
    if (p == NULL)
        return NULL;
    p->id = id;
    p->turn = w->turn;
    list_push(&w->principals, &p->link);
    return p;
}

static void work_principal_leave(struct work_table *w, struct work_principal *p)
{
    if (p->n_tasks > 0 || shared_limit_held_by(&w->bytes_limit, p->id) > 0)
        return;
    list_remove(&p->link);
    free(p);
}

/* --- bytes --- */

static void work_count_bytes(struct work_table *w, struct work_principal *p, size_t n)
{
    shared_limit_hold(&w->bytes_limit, p->id, n);
}

/* Whether so many more are allowed; they are not taken. */
static enum status work_check_bytes(const struct work_table *w, const struct work_principal *p,
                                    size_t size_bytes, struct error *err)
{
    enum status rc = shared_limit_check(&w->bytes_limit, p->id, size_bytes, err);

    if (rc != STATUS_OK)
        err->retry_after_ms = WORK_RETRY_MS;
    return rc;
}

enum status work_bytes_begin(struct work_bytes *out, struct work_table *w, uint32_t principal,
                             uint64_t size_bytes, struct error *err)
{
    struct work_bytes b = {.size_bytes = (size_t)size_bytes};

    if (size_bytes > w->config.max_bytes / 4)
        return error_field(err, "payload", "has %" PRIu64 " bytes, at most %zu are taken",
                           size_bytes, w->config.max_bytes / 4);
    if (size_bytes == 0) {
        *out = b;
        return STATUS_OK;
    }
    b.principal = work_principal_get(w, principal);
    if (b.principal == NULL)
        return error_no_memory(err, sizeof(*b.principal), "a principal");
    if (work_check_bytes(w, b.principal, b.size_bytes, err) == STATUS_OK) {
        b.data = try_alloc(1, b.size_bytes);
        if (b.data == NULL)
            (void)error_no_memory(err, b.size_bytes, "a payload");
    }
    if (b.data == NULL) {
        work_principal_leave(w, b.principal);
        return err->status;
    }
    work_count_bytes(w, b.principal, b.size_bytes);
    *out = b;
    return STATUS_OK;
}

enum status work_bytes_append(struct work_bytes *b, const void *data, size_t size_bytes,
                              struct error *err)
{
    if (size_bytes > b->size_bytes - b->have_bytes)
        return error_field(err, "payload", "has more than the %zu bytes that were announced",
                           b->size_bytes);
    if (size_bytes > 0)
        memcpy(b->data + b->have_bytes, data, size_bytes);
    b->have_bytes += size_bytes;
    return STATUS_OK;
}

void work_bytes_free(struct work_bytes *b, struct work_table *w)
{
    if (b->principal != NULL) {
        shared_limit_give(&w->bytes_limit, b->principal->id, b->size_bytes);
        work_principal_leave(w, b->principal);
    }
    free(b->data);
    *b = (struct work_bytes){0};
}

/* --- failures --- */

const struct work_failure *work_failure_copy(struct work_task *t, const struct work_failure *f)
{
    struct work_table *w = t->work;
    struct error ignored;
    const char *const from[] = {f->type, f->message, f->trace, f->tail};
    const char *to[4];
    struct work_failure *copy;
    size_t n = sizeof(*copy);
    char *at;

    for (size_t i = 0; i < 4; i++)
        n += from[i] == NULL ? 1 : strlen(from[i]) + 1;
    copy = work_check_bytes(w, t->principal, n, &ignored) != STATUS_OK ? NULL : try_alloc(1, n);
    if (copy == NULL)
        return &work_no_memory;
    *copy = *f;
    copy->size_bytes = n;
    work_count_bytes(w, t->principal, n);
    at = (char *)(copy + 1);
    for (size_t i = 0; i < 4; i++) {
        size_t size = from[i] == NULL ? 1 : strlen(from[i]) + 1;

        memcpy(at, from[i] == NULL ? "" : from[i], size);
        to[i] = at;
        at += size;
    }
    copy->type = to[0];
    copy->message = to[1];
    copy->trace = to[2];
    copy->tail = to[3];
    return copy;
}

static void work_failure_free(struct work_task *t)
{
    const struct work_failure *f = t->failure;

    if (f == NULL || f == &work_no_memory)
        return;
    shared_limit_give(&t->work->bytes_limit, t->principal->id, f->size_bytes);
    free((void *)(uintptr_t)f);
}

/* --- functions --- */

static struct work_function *work_function_of(struct hash_node *node)
{
    return container_of(node, struct work_function, by_name);
}

/* The principal's own before one for all. */
static struct work_function *work_function_find(const struct work_table *w, uint32_t principal,
                                                const char *name)
{
    uint64_t hash = hash_text(&w->functions, 0, name);
    struct work_function *found = NULL;

    for (struct hash_node *n = hash_first(&w->functions, hash); n != NULL; n = hash_next(n)) {
        struct work_function *f = work_function_of(n);

        if (strcmp(f->name, name) != 0 || (f->is_private && f->owner != principal))
            continue;
        if (found == NULL || f->is_private)
            found = f;
    }
    return found;
}

struct work_function *work_function_provide(struct work_table *w, uint32_t principal,
                                            const char *name, bool is_private, struct error *err)
{
    uint64_t hash = hash_text(&w->functions, 0, name);
    struct work_function *f;

    for (struct hash_node *n = hash_first(&w->functions, hash); n != NULL; n = hash_next(n)) {
        f = work_function_of(n);
        if (strcmp(f->name, name) == 0 && f->is_private == is_private &&
            (!is_private || f->owner == principal))
            return f;
    }
    if (shared_limit_check(&w->functions_limit, principal, 1, err) != STATUS_OK)
        return NULL;
    f = try_alloc(1, sizeof(*f));
    if (f == NULL) {
        (void)error_no_memory(err, sizeof(*f), "a function");
        return NULL;
    }
    f->work = w;
    memcpy(f->name, name, strlen(name) + 1);
    f->is_private = is_private;
    f->owner = principal;
    list_init(&f->providers);
    list_init(&f->shares);
    hash_add(&w->functions, &f->by_name, hash);
    shared_limit_hold(&w->functions_limit, f->owner, 1);
    return f;
}

static void work_function_free(struct work_function *f)
{
    hash_remove(&f->work->functions, &f->by_name);
    shared_limit_give(&f->work->functions_limit, f->owner, 1);
    free(f);
}

void work_function_leave(struct work_function *f)
{
    if (!list_is_empty(&f->providers))
        return;
    if (list_is_empty(&f->shares) && f->work->is_ending) {
        work_function_free(f);
        return;
    }
    f->left_us = env_now_us(f->work->config.env);
    alarm_by(f->work->config.alarm, f->left_us + f->work->config.silence_us);
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

/* --- shares of principals --- */

static struct work_share *work_share_get(struct work_function *f, struct work_principal *p)
{
    struct work_share *s;

    for (struct link *l = list_first(&f->shares); l != NULL; l = list_next(&f->shares, l)) {
        s = container_of(l, struct work_share, link);
        if (s->principal == p)
            return s;
    }
    s = try_alloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->function = f;
    s->principal = p;
    list_init(&s->queue);
    list_push(&f->shares, &s->link);
    return s;
}

static void work_share_leave(struct work_share *s)
{
    if (s->n_tasks > 0)
        return;
    list_remove(&s->link);
    free(s);
}

/* The share whose principal's turn it is; NULL: nothing is queued. */
static struct work_share *work_function_next(const struct work_function *f)
{
    struct work_share *best = NULL;

    for (struct link *l = list_first(&f->shares); l != NULL; l = list_next(&f->shares, l)) {
        struct work_share *s = container_of(l, struct work_share, link);

        if (!list_is_empty(&s->queue) &&
            (best == NULL || s->principal->turn < best->principal->turn))
            best = s;
    }
    return best;
}

/* The head of the queue, off it. */
static struct work_task *work_share_take(struct work_share *s)
{
    struct work_task *t = container_of(list_pop(&s->queue), struct work_task, link);
    struct work_table *w = t->work;
    unsigned weight =
        w->config.weight == NULL ? 1 : w->config.weight(w->config.weight_self, s->principal->id);

    s->principal->n_queued--;
    w->turn = s->principal->turn;
    s->principal->turn += WORK_TURN / (weight > 0 ? weight : 1);
    return t;
}

/* --- who computes what --- */

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

/* --- tasks --- */

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

static void work_task_forget(struct work_task *t)
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

static void work_task_fail(struct work_task *t, enum status status, enum reason reason,
                           const char *text)
{
    struct work_failure f = {0};

    (void)error_because(&f.err, status, reason, NULL, "%s", text);
    work_task_finish(t, work_failure_copy(t, &f));
}

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
