#include "server/conversation/expiry.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { FIRST_CAP = 64 };

void expiry_init(struct expiry *e)
{
    *e = (struct expiry){0};
}

void expiry_deinit(struct expiry *e)
{
    assert(e->n == 0);
    free(e->heap);
    expiry_init(e);
}

static void expiry_put(struct expiry *e, size_t place, struct expiry_entry *entry)
{
    e->heap[place] = entry;
    entry->place = place;
}

static void rise(struct expiry *e, struct expiry_entry *entry)
{
    size_t at = entry->place;

    while (at > 1 && e->heap[at / 2]->at_us > entry->at_us) {
        expiry_put(e, at, e->heap[at / 2]);
        at /= 2;
    }
    expiry_put(e, at, entry);
}

static void expiry_sink(struct expiry *e, struct expiry_entry *entry)
{
    size_t at = entry->place;

    for (;;) {
        size_t child = 2 * at;

        if (child > e->n)
            break;
        if (child < e->n && e->heap[child + 1]->at_us < e->heap[child]->at_us)
            child++;
        if (e->heap[child]->at_us >= entry->at_us)
            break;
        expiry_put(e, at, e->heap[child]);
        at = child;
    }
    expiry_put(e, at, entry);
}

enum status expiry_add(struct expiry *e, struct expiry_entry *entry, struct error *err)
{
    assert(entry->place == 0);
    if (e->n + 1 >= e->cap) {
        size_t cap = e->cap == 0 ? FIRST_CAP : 2 * e->cap;
        struct expiry_entry **heap = try_realloc(e->heap, cap, sizeof(*heap));

        if (heap == NULL)
            return error_no_memory(err, cap * sizeof(*heap), "the times of expiry");
        e->heap = heap;
        e->cap = cap;
    }
    expiry_put(e, ++e->n, entry);
    rise(e, entry);
    return STATUS_OK;
}

void expiry_remove(struct expiry *e, struct expiry_entry *entry)
{
    struct expiry_entry *last = e->heap[e->n];

    assert(entry->place >= 1 && entry->place <= e->n);
    e->n--;
    if (last != entry) {
        expiry_put(e, entry->place, last);
        rise(e, last);
        expiry_sink(e, last);
    }
    entry->place = 0;
}

void expiry_shrink(struct expiry *e)
{
    struct expiry_entry **heap;
    size_t cap = FIRST_CAP;

    while (cap <= e->n + 1)
        cap *= 2;
    if (cap >= e->cap)
        return;
    heap = try_realloc(e->heap, cap, sizeof(*heap));
    if (heap == NULL)
        return; /* the heap stays as it is */
    e->heap = heap;
    e->cap = cap;
}

void expiry_moved(struct expiry *e, struct expiry_entry *entry)
{
    rise(e, entry);
    expiry_sink(e, entry);
}

struct expiry_entry *expiry_first(const struct expiry *e)
{
    return e->n == 0 ? NULL : e->heap[1];
}
