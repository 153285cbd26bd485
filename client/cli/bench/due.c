#include "client/cli/bench/due.h"

#include <stdlib.h>

#include "base/alloc.h"

void due_deinit(struct due *d)
{
    free(d->entries);
}

void due_add(struct due *d, uint64_t at_us, uint32_t id)
{
    size_t i = d->n++;

    if (d->n > d->cap) {
        d->cap = d->cap == 0 ? 64 : 2 * d->cap;
        d->entries = xrealloc(d->entries, d->cap * sizeof(*d->entries));
    }
    for (; i > 0 && d->entries[(i - 1) / 2].at_us > at_us; i = (i - 1) / 2)
        d->entries[i] = d->entries[(i - 1) / 2];
    d->entries[i] = (struct due_entry){at_us, id};
}

uint64_t due_next(const struct due *d)
{
    return d->n == 0 ? UINT64_MAX : d->entries[0].at_us;
}

struct due_entry due_take(struct due *d)
{
    struct due_entry first = d->entries[0], last = d->entries[--d->n];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < d->n) {
        if (child + 1 < d->n && d->entries[child + 1].at_us < d->entries[child].at_us)
            child++;
        if (d->entries[child].at_us >= last.at_us)
            break;
        d->entries[i] = d->entries[child];
        i = child;
    }
    d->entries[i] = last;
    return first;
}
