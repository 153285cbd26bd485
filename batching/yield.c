#include "batching/yield.h"

#include "batching/time_share.h"

size_t yield_max_running(const struct batcher_config *config)
{
    size_t n;

    return __builtin_mul_overflow(config->max_rows, 2, &n) ? SIZE_MAX : n;
}

static void batch_request_set_paused(struct batcher *b, struct batch_request *request,
                                     bool is_paused)
{
    struct tenant *t = waiting_tenant(&b->waiting, request);

    if (request->is_paused == is_paused)
        return;
    request->is_paused = is_paused;
    t->n_rows += is_paused ? (size_t)-1 : 1;
    t->n_paused += is_paused ? 1 : (size_t)-1;
    b->n_paused += is_paused ? 1 : (size_t)-1;
}

void yield_forget(struct batcher *b, struct batch_request *request)
{
    batch_request_set_paused(b, request, false);
    waiting_tenant(&b->waiting, request)->n_rows--;
}

static void resume_all(struct batcher *b)
{
    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l))
        batch_request_set_paused(b, container_of(l, struct batch_request, link), false);
}

/* Pauses the running request of the tenant that has the lowest aged priority. */
static void tenant_pause_one(struct batcher *b, const struct tenant *t)
{
    struct batch_request *lowest = NULL;

    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l)) {
        struct batch_request *request = container_of(l, struct batch_request, link);

        if (request->is_paused || waiting_tenant(&b->waiting, request) != t)
            continue;
        if (lowest == NULL || batch_request_is_before(&b->waiting, lowest, request))
            lowest = request;
    }
    if (lowest != NULL)
        batch_request_set_paused(b, lowest, true);
}

/* A tenant that was served more than others pays its lead back over so many steps: fewer would
 * pause its rows for long after each prompt, more would take longer to even out. */
static const uint64_t payback_steps = 64;

/* The tenant of the smallest key gets the next row. */
static uint64_t tenant_key(const struct batcher *b, const struct tenant *t)
{
    return tenant_rows(t, t->n_granted + 1) * payback_steps + t->served - b->waiting.virtual_time;
}

/* Whether it has use for another row; room: waiting requests that may begin. */
static bool tenant_wants_row(const struct tenant *t, size_t room)
{
    return t->n_granted < t->n_rows || (t->n_granted < t->n_rows + t->n_queued && room > 0);
}

static struct tenant *next_to_grant(const struct batcher *b, size_t room)
{
    const struct list *tenants = &b->waiting.tenants;
    struct tenant *next = NULL;

    for (struct link *l = list_first(tenants); l != NULL; l = list_next(tenants, l)) {
        struct tenant *t = container_of(l, struct tenant, active);

        if (tenant_wants_row(t, room) && (next == NULL || tenant_key(b, t) < tenant_key(b, next)))
            next = t;
    }
    return next;
}

/* Grants the rows of a step to the tenants, one by one. */
static void grant_rows(struct batcher *b, bool to_waiting)
{
    const struct list *tenants = &b->waiting.tenants;
    size_t room = to_waiting ? yield_max_running(&b->config) - b->n_running : 0;
    struct tenant *t;

    for (struct link *l = list_first(tenants); l != NULL; l = list_next(tenants, l))
        container_of(l, struct tenant, active)->n_granted = 0;
    for (size_t n = 0; n < b->config.max_rows && (t = next_to_grant(b, room)) != NULL; n++)
        if (++t->n_granted > t->n_rows)
            room--;
}

/* Pauses rows of heavy tenants that would take more than their share of the time. */
static void pause_heavy(struct batcher *b, uint64_t now_us)
{
    const struct list *tenants = &b->waiting.tenants;

    if (!time_share_bound(b, now_us))
        return;
    for (struct link *l = list_first(tenants); l != NULL; l = list_next(tenants, l)) {
        struct tenant *t = container_of(l, struct tenant, active);

        while (t->n_rows > t->max_rows)
            tenant_pause_one(b, t);
    }
}

void yield_unbound(struct batcher *b)
{
    const struct list *tenants = &b->waiting.tenants;

    for (struct link *l = list_first(tenants); l != NULL; l = list_next(tenants, l))
        container_of(l, struct tenant, active)->max_rows = SIZE_MAX;
    b->heavy_us = 0;
}

/* Resumes what was paused, then pauses what has no row. */
void yield_rows(struct batcher *b, bool to_waiting, uint64_t now_us)
{
    const struct list *tenants = &b->waiting.tenants;
    const bool is_shared = waiting_is_shared(&b->waiting);

    if (b->n_paused > 0)
        resume_all(b);
    if (b->heavy_us > 0)
        yield_unbound(b);
    to_waiting = to_waiting && b->policy->yields;
    if (to_waiting &&
        (is_shared || (!list_is_empty(tenants) && !list_is_empty(&b->waiting.recent))))
        pause_heavy(b, now_us);
    to_waiting = to_waiting && is_shared;
    if (b->n_running - b->n_paused < b->config.max_rows ||
        (b->n_running - b->n_paused == b->config.max_rows && !to_waiting))
        return;
    grant_rows(b, to_waiting);
    for (struct link *l = list_first(tenants); l != NULL; l = list_next(tenants, l)) {
        struct tenant *t = container_of(l, struct tenant, active);

        while (t->n_rows > t->n_granted)
            tenant_pause_one(b, t);
    }
}
