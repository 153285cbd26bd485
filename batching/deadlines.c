#include "batching/deadlines.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "batching/request.h"

enum status deadlines_open(struct deadlines *out, size_t cap, struct error *err)
{
    struct batch_request **heap = try_alloc(cap, sizeof(*heap));

    if (heap == NULL)
        return error_no_memory(err, (uint64_t)cap * sizeof(*heap), "the deadlines of requests");
    *out = (struct deadlines){.heap = heap, .cap = cap};
    return STATUS_OK;
}

void deadlines_close(struct deadlines *d)
{
    free(d->heap);
    *d = (struct deadlines){0};
}

static void deadlines_put(struct deadlines *d, size_t at, struct batch_request *request)
{
    d->heap[at] = request;
    request->deadline_place = at + 1;
}

static void deadlines_move_up(struct deadlines *d, size_t at, struct batch_request *request)
{
    while (at > 0) {
        size_t parent = (at - 1) / 2;

        if (d->heap[parent]->deadline_us <= request->deadline_us)
            break;
        deadlines_put(d, at, d->heap[parent]);
        at = parent;
    }
    deadlines_put(d, at, request);
}

static void deadlines_move_down(struct deadlines *d, size_t at, struct batch_request *request)
{
    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= d->n)
            break;
        if (child + 1 < d->n && d->heap[child + 1]->deadline_us < d->heap[child]->deadline_us)
            child++;
        if (request->deadline_us <= d->heap[child]->deadline_us)
            break;
        deadlines_put(d, at, d->heap[child]);
        at = child;
    }
    deadlines_put(d, at, request);
}

void deadlines_add(struct deadlines *d, struct batch_request *request)
{
    if (request->deadline_us == 0)
        return;
    assert(d->n < d->cap && request->deadline_place == 0);
    deadlines_move_up(d, d->n++, request);
}

void deadlines_remove(struct deadlines *d, struct batch_request *request)
{
    struct batch_request *last;
    size_t at;

    if (request->deadline_place == 0)
        return;
    at = request->deadline_place - 1;
    assert(d->heap[at] == request);
    request->deadline_place = 0;
    last = d->heap[--d->n];
    if (last == request)
        return;
    if (at > 0 && last->deadline_us < d->heap[(at - 1) / 2]->deadline_us)
        deadlines_move_up(d, at, last);
    else
        deadlines_move_down(d, at, last);
}

struct batch_request *deadlines_first(const struct deadlines *d)
{
    return d->n > 0 ? d->heap[0] : NULL;
}
