/* Who has what in the table: principals and the bytes that count as theirs, the functions that
 * workers offer, and the shares in which a function's tasks wait. The principals that have tasks in
 * a function take turns by their weights. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "server/work/parts.h"

enum { WORK_TURN = 1 << 20 };

static const struct work_failure work_no_memory = {
    .err = {.status = STATUS_EXHAUSTED,
            .reason = REASON_OUT_OF_MEMORY,
            .text = "out of memory for the task's failure"},
    .type = "",
    .message = "",
    .trace = "",
    .tail = "",
};

/* --- principals --- */

struct work_principal *work_principal_get(struct work_table *w, uint32_t id)
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

void work_principal_leave(struct work_table *w, struct work_principal *p)
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
enum status work_check_bytes(const struct work_table *w, const struct work_principal *p,
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

void work_failure_free(struct work_task *t)
{
    const struct work_failure *f = t->failure;

    if (f == NULL || f == &work_no_memory)
        return;
    shared_limit_give(&t->work->bytes_limit, t->principal->id, f->size_bytes);
    free((void *)(uintptr_t)f);
}

/* --- functions --- */

struct work_function *work_function_of(struct hash_node *node)
{
    return container_of(node, struct work_function, by_name);
}

/* The principal's own before one for all. */
struct work_function *work_function_find(const struct work_table *w, uint32_t principal,
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

void work_function_free(struct work_function *f)
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

/* --- shares of principals --- */

struct work_share *work_share_get(struct work_function *f, struct work_principal *p)
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

void work_share_leave(struct work_share *s)
{
    if (s->n_tasks > 0)
        return;
    list_remove(&s->link);
    free(s);
}

/* The share whose principal's turn it is; NULL: nothing is queued. */
struct work_share *work_function_next(const struct work_function *f)
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
struct work_task *work_share_take(struct work_share *s)
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
