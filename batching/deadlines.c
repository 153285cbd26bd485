#include "batching/deadlines.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "batching/batcher.h"

enum status deadlines_open(struct deadlines *out, size_t cap, struct error *err)
{
    struct ask **heap = try_alloc(cap, sizeof(*heap));

    if (heap == NULL)
        return error_no_memory(err, (uint64_t)cap * sizeof(*heap), "the deadlines of asks");
    *out = (struct deadlines){.heap = heap, .cap = cap};
    return STATUS_OK;
}

void deadlines_close(struct deadlines *d)
{
    free(d->heap);
    *d = (struct deadlines){0};
}

static void put(struct deadlines *d, size_t at, struct ask *ask)
{
    d->heap[at] = ask;
    ask->deadline_place = at + 1;
}

static void move_up(struct deadlines *d, size_t at, struct ask *ask)
{
    while (at > 0) {
        size_t parent = (at - 1) / 2;

        if (d->heap[parent]->deadline_us <= ask->deadline_us)
            break;
        put(d, at, d->heap[parent]);
        at = parent;
    }
    put(d, at, ask);
}

static void move_down(struct deadlines *d, size_t at, struct ask *ask)
{
    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= d->n)
            break;
        if (child + 1 < d->n && d->heap[child + 1]->deadline_us < d->heap[child]->deadline_us)
            child++;
        if (ask->deadline_us <= d->heap[child]->deadline_us)
            break;
        put(d, at, d->heap[child]);
        at = child;
    }
    put(d, at, ask);
}

void deadlines_add(struct deadlines *d, struct ask *ask)
{
    if (ask->deadline_us == 0)
        return;
    assert(d->n < d->cap && ask->deadline_place == 0);
    move_up(d, d->n++, ask);
}

void deadlines_remove(struct deadlines *d, struct ask *ask)
{
    struct ask *last;
    size_t at;

    if (ask->deadline_place == 0)
        return;
    at = ask->deadline_place - 1;
    assert(d->heap[at] == ask);
    ask->deadline_place = 0;
    last = d->heap[--d->n];
    if (last == ask)
        return;
    if (at > 0 && last->deadline_us < d->heap[(at - 1) / 2]->deadline_us)
        move_up(d, at, last);
    else
        move_down(d, at, last);
}

struct ask *deadlines_first(const struct deadlines *d)
{
    return d->n > 0 ? d->heap[0] : NULL;
}
