#include "batching/waiting.h"

#include <assert.h>

#include "batching/batcher.h"

void waiting_init(struct waiting *w)
{
    *w = (struct waiting){0};
    list_init(&w->returned);
    list_init(&w->chosen);
    for (size_t i = 0; i < N_PRIORITIES; i++)
        list_init(&w->queues[i]);
}

static size_t queue_of(const struct ask *ask)
{
    assert(ask->priority >= -PRIORITY_MAX && ask->priority <= PRIORITY_MAX);
    return (size_t)(ask->priority + PRIORITY_MAX);
}

static void leave_queue(struct waiting *w, size_t i)
{
    if (list_is_empty(&w->queues[i]))
        w->in_use[i / 64] &= ~(UINT64_C(1) << i % 64);
}

void waiting_add(struct waiting *w, struct ask *ask)
{
    size_t i = queue_of(ask);

    list_push(&w->queues[i], &ask->link);
    w->in_use[i / 64] |= UINT64_C(1) << i % 64;
    w->n_queued++;
}

void waiting_return(struct waiting *w, struct ask *ask)
{
    ask->is_returned = true;
    list_push_front(&w->returned, &ask->link);
    w->n_returned++;
}

void waiting_remove(struct waiting *w, struct ask *ask)
{
    size_t i = queue_of(ask);

    list_remove(&ask->link);
    if (ask->is_returned) {
        ask->is_returned = false;
        w->n_returned--;
        return;
    }
    w->n_queued--;
    if (ask->is_chosen) {
        ask->is_chosen = false;
        return;
    }
    leave_queue(w, i);
}

void waiting_choose(struct waiting *w, struct ask *ask)
{
    list_remove(&ask->link);
    leave_queue(w, queue_of(ask));
    ask->is_chosen = true;
    list_push(&w->chosen, &ask->link);
}

uint64_t waiting_rank_us(const struct waiting *w, const struct ask *ask)
{
    return ask->since_us - (uint64_t)(int64_t)ask->priority * w->ageing_us;
}

bool ask_is_before(const struct waiting *w, const struct ask *a, const struct ask *b)
{
    uint64_t rank_a = waiting_rank_us(w, a), rank_b = waiting_rank_us(w, b);

    if (rank_a != rank_b)
        return (int64_t)(rank_a - rank_b) < 0;
    return a->number < b->number;
}

/* The first of each queue in use, one after the other; start with *at = 0. */
static struct ask *next_front(const struct waiting *w, size_t *at)
{
    while (*at < N_PRIORITIES) {
        uint64_t bits = w->in_use[*at / 64] >> *at % 64;

        if (bits != 0) {
            size_t i = *at + (size_t)__builtin_ctzll(bits);

            *at = i + 1;
            return container_of(list_first(&w->queues[i]), struct ask, link);
        }
        *at = (*at / 64 + 1) * 64;
    }
    return NULL;
}

struct ask *waiting_first(const struct waiting *w)
{
    struct link *returned = list_first(&w->returned);
    struct ask *first = NULL;
    struct ask *ask;
    size_t at = 0;

    if (returned != NULL)
        return container_of(returned, struct ask, link);
    if (!list_is_empty(&w->chosen))
        return container_of(list_first(&w->chosen), struct ask, link);
    while ((ask = next_front(w, &at)) != NULL)
        if (first == NULL || ask_is_before(w, ask, first))
            first = ask;
    return first;
}

struct ask *waiting_behind(const struct waiting *w, const struct ask *ask)
{
    const struct list *list = ask->is_returned ? &w->returned
                              : ask->is_chosen ? &w->chosen
                                               : &w->queues[queue_of(ask)];
    struct link *next = list_next(list, &ask->link);

    return next == NULL ? NULL : container_of(next, struct ask, link);
}

void waiting_each(const struct waiting *w, void (*visit)(void *arg, struct ask *ask), void *arg)
{
    struct ask *ask;
    size_t at = 0;

    while ((ask = next_front(w, &at)) != NULL) {
        const struct list *queue = &w->queues[queue_of(ask)];

        for (struct link *l = &ask->link; l != NULL; l = list_next(queue, l))
            visit(arg, container_of(l, struct ask, link));
    }
}

uint64_t waiting_oldest_us(const struct waiting *w)
{
    uint64_t oldest_us = UINT64_MAX;
    struct ask *ask;
    size_t at = 0;

    assert(w->n_queued > 0);
    while ((ask = next_front(w, &at)) != NULL)
        if (ask->since_us < oldest_us)
            oldest_us = ask->since_us;
    return oldest_us;
}
