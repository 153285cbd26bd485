#include "batching/waiting.h"

#include <assert.h>

#include "batching/request.h"

void waiting_init(struct waiting *w)
{
    *w = (struct waiting){0};
    list_init(&w->preempted);
    list_init(&w->chosen);
    for (size_t i = 0; i < N_PRIORITIES; i++)
        list_init(&w->queues[i]);
}

static size_t queue_of(const struct batch_request *request)
{
    assert(request->priority >= -PRIORITY_MAX && request->priority <= PRIORITY_MAX);
    return (size_t)(request->priority + PRIORITY_MAX);
}

static void leave_queue(struct waiting *w, size_t i)
{
    if (list_is_empty(&w->queues[i]))
        w->in_use[i / 64] &= ~(UINT64_C(1) << i % 64);
}

void waiting_add(struct waiting *w, struct batch_request *request)
{
    size_t i = queue_of(request);

    list_push(&w->queues[i], &request->link);
    w->in_use[i / 64] |= UINT64_C(1) << i % 64;
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
    size_t i = queue_of(request);

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
    leave_queue(w, i);
}

void waiting_choose(struct waiting *w, struct batch_request *request)
{
    list_remove(&request->link);
    leave_queue(w, queue_of(request));
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
static struct batch_request *next_front(const struct waiting *w, size_t *at)
{
    while (*at < N_PRIORITIES) {
        uint64_t bits = w->in_use[*at / 64] >> *at % 64;

        if (bits != 0) {
            size_t i = *at + (size_t)__builtin_ctzll(bits);

            *at = i + 1;
            return container_of(list_first(&w->queues[i]), struct batch_request, link);
        }
        *at = (*at / 64 + 1) * 64;
    }
    return NULL;
}

struct batch_request *waiting_first(const struct waiting *w)
{
    struct link *preempted = list_first(&w->preempted);
    struct batch_request *first = NULL;
    struct batch_request *request;
    size_t at = 0;

    if (preempted != NULL)
        return container_of(preempted, struct batch_request, link);
    if (!list_is_empty(&w->chosen))
        return container_of(list_first(&w->chosen), struct batch_request, link);
    while ((request = next_front(w, &at)) != NULL)
        if (first == NULL || batch_request_is_before(w, request, first))
            first = request;
    return first;
}

struct batch_request *waiting_next(const struct waiting *w, const struct batch_request *request)
{
    const struct list *list = request->is_preempted ? &w->preempted
                              : request->is_chosen  ? &w->chosen
                                                    : &w->queues[queue_of(request)];
    struct link *next = list_next(list, &request->link);

    return next == NULL ? NULL : container_of(next, struct batch_request, link);
}

void waiting_each(const struct waiting *w, void (*visit)(void *arg, struct batch_request *request),
                  void *arg)
{
    struct batch_request *request;
    size_t at = 0;

    while ((request = next_front(w, &at)) != NULL) {
        const struct list *queue = &w->queues[queue_of(request)];

        for (struct link *l = &request->link; l != NULL; l = list_next(queue, l))
            visit(arg, container_of(l, struct batch_request, link));
    }
}

uint64_t waiting_oldest_us(const struct waiting *w)
{
    uint64_t oldest_us = UINT64_MAX;
    struct batch_request *request;
    size_t at = 0;

    assert(w->n_queued > 0);
    while ((request = next_front(w, &at)) != NULL)
        if (request->since_us < oldest_us)
            oldest_us = request->since_us;
    return oldest_us;
}
