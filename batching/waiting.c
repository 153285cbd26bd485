/* Keeps the waiting requests in one queue for each tenant and priority, and a queue of preempted
 * ones. The next request is found by the fronts of these queues alone. */
#include "batching/waiting.h"

#include <assert.h>

#include "batching/request.h"

void waiting_init(struct waiting *w)
{
    *w = (struct waiting){0};
    list_init(&w->preempted);
    list_init(&w->chosen);
    list_init(&w->tenants);
    list_init(&w->recent);
    tenant_init(&w->own, 1);
}

static size_t queue_of(const struct batch_request *request)
{
    assert(request->priority >= -PRIORITY_MAX && request->priority <= PRIORITY_MAX);
    return (size_t)(request->priority + PRIORITY_MAX);
}

struct tenant *waiting_tenant(const struct waiting *w, const struct batch_request *request)
{
    struct tenant *t = request->flow->tenant;

    return t != NULL ? t : (struct tenant *)&w->own;
}

void waiting_enter(struct waiting *w, struct tenant *t)
{
    if (t->n_active++ > 0)
        return;
    if (t->served < w->virtual_time)
        t->served = w->virtual_time;
    if (link_is_on(&t->active))
        list_remove(&t->active);
    t->max_rows = SIZE_MAX;
    list_push(&w->tenants, &t->active);
}

void waiting_leave(struct waiting *w, struct tenant *t, uint64_t now_us)
{
    assert(t->n_active > 0);
    if (--t->n_active > 0)
        return;
    list_remove(&t->active);
    t->left_us = now_us;
    list_push(&w->recent, &t->active);
}

void waiting_deinit(struct waiting *w)
{
    while (list_pop(&w->recent) != NULL)
        continue;
}

static struct tenant *tenant_of_link(struct link *l)
{
    return container_of(l, struct tenant, active);
}

bool waiting_is_shared(const struct waiting *w)
{
    struct link *first = list_first(&w->tenants);

    return first != NULL && list_next(&w->tenants, first) != NULL;
}

void waiting_advance(struct waiting *w)
{
    uint64_t least = UINT64_MAX;

    for (struct link *l = list_first(&w->tenants); l != NULL; l = list_next(&w->tenants, l))
        if (tenant_of_link(l)->served < least)
            least = tenant_of_link(l)->served;
    if (least != UINT64_MAX && least > w->virtual_time)
        w->virtual_time = least;
}

static void tenant_leave_queue(struct tenant *t, size_t i)
{
    t->n_queued--;
    if (list_is_empty(&t->queues[i]))
        t->in_use[i / 64] &= ~(UINT64_C(1) << i % 64);
}

void waiting_add(struct waiting *w, struct batch_request *request)
{
    struct tenant *t = waiting_tenant(w, request);
    size_t i = queue_of(request);

    list_push(&t->queues[i], &request->link);
    t->in_use[i / 64] |= UINT64_C(1) << i % 64;
    t->n_queued++;
    w->n_queued++;
}

void waiting_add_preempted(struct waiting *w, struct batch_request *request)
{
    request->is_preempted = true;
    list_push_front(&w->preempted, &request->link);
    w->n_preempted++;
}

void waiting_remove(struct waiting *w, struct batch_request *request)
{
    list_remove(&request->link);
    if (request->is_preempted) {
        request->is_preempted = false;
        w->n_preempted--;
        return;
    }
    w->n_queued--;
    if (request->is_chosen) {
        request->is_chosen = false;
        return;
    }
    tenant_leave_queue(waiting_tenant(w, request), queue_of(request));
}

void waiting_choose(struct waiting *w, struct batch_request *request)
{
    list_remove(&request->link);
    tenant_leave_queue(waiting_tenant(w, request), queue_of(request));
    request->is_chosen = true;
    list_push(&w->chosen, &request->link);
}

uint64_t waiting_aged_priority_us(const struct waiting *w, const struct batch_request *request)
{
    return request->since_us - (uint64_t)(int64_t)request->priority * w->ageing_us;
}

bool batch_request_is_before(const struct waiting *w, const struct batch_request *a,
                             const struct batch_request *b)
{
    uint64_t priority_a = waiting_aged_priority_us(w, a),
             priority_b = waiting_aged_priority_us(w, b);

    if (priority_a != priority_b)
        return (int64_t)(priority_a - priority_b) < 0;
    return a->number < b->number;
}

/* The first of each queue in use, one after the other; start with *at = 0. */
static struct batch_request *tenant_next_front(const struct tenant *t, size_t *at)
{
    while (*at < N_PRIORITIES) {
        uint64_t bits = t->in_use[*at / 64] >> *at % 64;

        if (bits != 0) {
            size_t i = *at + (size_t)__builtin_ctzll(bits);

            *at = i + 1;
            return container_of(list_first(&t->queues[i]), struct batch_request, link);
        }
        *at = (*at / 64 + 1) * 64;
    }
    return NULL;
}

/* The tenant whose queued request is next; NULL if none has one. */
static const struct tenant *waiting_next_tenant(const struct waiting *w)
{
    const struct tenant *next = NULL;

    for (struct link *l = list_first(&w->tenants); l != NULL; l = list_next(&w->tenants, l)) {
        const struct tenant *t = tenant_of_link(l);

        if (t->n_queued > 0 && t->n_rows < t->max_rows &&
            (next == NULL || tenant_is_before(t, next)))
            next = t;
    }
    return next;
}

static struct batch_request *tenant_first(const struct waiting *w, const struct tenant *t)
{
    struct batch_request *first = NULL;
    struct batch_request *request;
    size_t at = 0;

    while ((request = tenant_next_front(t, &at)) != NULL)
        if (first == NULL || batch_request_is_before(w, request, first))
            first = request;
    return first;
}

struct batch_request *waiting_first(const struct waiting *w)
{
    const struct tenant *t;

    for (struct link *l = list_first(&w->preempted); l != NULL; l = list_next(&w->preempted, l)) {
        struct batch_request *request = container_of(l, struct batch_request, link);

        t = waiting_tenant(w, request);
        if (t->n_rows < t->max_rows)
            return request;
    }
    if (!list_is_empty(&w->chosen))
        return container_of(list_first(&w->chosen), struct batch_request, link);
    t = waiting_next_tenant(w);
    return t != NULL ? tenant_first(w, t) : NULL;
}

struct batch_request *waiting_first_by_age(const struct waiting *w)
{
    struct batch_request *first = NULL;

    for (struct link *l = list_first(&w->tenants); l != NULL; l = list_next(&w->tenants, l)) {
        struct batch_request *request = tenant_first(w, tenant_of_link(l));

        if (request != NULL && (first == NULL || batch_request_is_before(w, request, first)))
            first = request;
    }
    return first;
}

struct batch_request *waiting_next(const struct waiting *w, const struct batch_request *request)
{
    const struct list *list = request->is_preempted ? &w->preempted
                              : request->is_chosen
                                  ? &w->chosen
                                  : &waiting_tenant(w, request)->queues[queue_of(request)];
    struct link *next = list_next(list, &request->link);

    return next == NULL ? NULL : container_of(next, struct batch_request, link);
}

static void tenant_each(const struct tenant *t,
                        void (*visit)(void *arg, struct batch_request *request), void *arg)
{
    struct batch_request *request;
    size_t at = 0;

    while ((request = tenant_next_front(t, &at)) != NULL) {
        const struct list *queue = &t->queues[queue_of(request)];

        for (struct link *l = &request->link; l != NULL; l = list_next(queue, l))
            visit(arg, container_of(l, struct batch_request, link));
    }
}

void waiting_each(const struct waiting *w, void (*visit)(void *arg, struct batch_request *request),
                  void *arg)
{
    for (struct link *l = list_first(&w->tenants); l != NULL; l = list_next(&w->tenants, l))
        tenant_each(tenant_of_link(l), visit, arg);
}

static uint64_t tenant_oldest_us(const struct tenant *t)
{
    uint64_t oldest_us = UINT64_MAX;
    struct batch_request *request;
    size_t at = 0;

    while ((request = tenant_next_front(t, &at)) != NULL)
        if (request->since_us < oldest_us)
            oldest_us = request->since_us;
    return oldest_us;
}

uint64_t waiting_oldest_us(const struct waiting *w)
{
    uint64_t oldest_us = UINT64_MAX;

    assert(w->n_queued > 0);
    for (struct link *l = list_first(&w->tenants); l != NULL; l = list_next(&w->tenants, l)) {
        uint64_t us = tenant_oldest_us(tenant_of_link(l));

        if (us < oldest_us)
            oldest_us = us;
    }
    return oldest_us;
}
