#include "server/conversation/ages.h"

#include <stdlib.h>

#include "base/alloc.h"

/* A pause between two records counts up to this part of the age that is looked for: a clock that
 * was wrong once adds no more than that. */
enum { AGES_MAX_PAUSE = 8, AGES_FIRST = 256 };

void ages_init(struct ages *a)
{
    *a = (struct ages){0};
}

void ages_deinit(struct ages *a)
{
    free(a->last);
    ages_init(a);
}

enum status ages_add(struct ages *a, uint64_t seq, uint64_t unix_ms, struct error *err)
{
    if (a->n == a->cap) {
        const size_t cap = a->cap == 0 ? AGES_FIRST : 2 * a->cap;
        struct last_record *last = try_realloc(a->last, cap, sizeof(*last));

        if (last == NULL)
            return error_no_memory(err, cap * sizeof(*last), "the ages of conversations");
        a->last = last;
        a->cap = cap;
    }
    a->last[a->n++] = (struct last_record){seq, unix_ms};
    return STATUS_OK;
}

static int compare_seq(const void *a, const void *b)
{
    const struct last_record *x = a, *y = b;

    return (x->seq > y->seq) - (x->seq < y->seq);
}

uint64_t ages_find(struct ages *a, uint64_t age_ms, uint64_t up_ms)
{
    const uint64_t max_ms = age_ms / AGES_MAX_PAUSE;
    uint64_t sum_ms = up_ms;

    if (a->n > 0)
        qsort(a->last, a->n, sizeof(a->last[0]), compare_seq);
    for (size_t i = a->n; i-- > 0;) {
        const struct last_record *r = &a->last[i];

        if (i + 1 < a->n && r[1].unix_ms > r->unix_ms)
            sum_ms += r[1].unix_ms - r->unix_ms < max_ms ? r[1].unix_ms - r->unix_ms : max_ms;
        if (sum_ms >= age_ms)
            return r->seq;
    }
    return 0;
}
