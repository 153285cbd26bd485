#include "worlds/teachers/length_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The position of length, or where it would be inserted. */
static size_t length_cache_place_of(const struct length_cache *c, uint32_t length)
{
    size_t low = 0, high = c->n_buckets;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (c->buckets[middle].length < length)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The nearest bucket less than range away, NULL if there is none. */
static struct length_bucket *length_cache_nearest(const struct length_cache *c, uint32_t length,
                                                  size_t at)
{
    struct length_bucket *above = at < c->n_buckets ? &c->buckets[at] : NULL;
    struct length_bucket *below = at > 0 ? &c->buckets[at - 1] : NULL;

    if (above != NULL && above->length - length >= c->range)
        above = NULL;
    if (below != NULL && length - below->length >= c->range)
        below = NULL;
    if (above == NULL || below == NULL)
        return above != NULL ? above : below;
    return above->length - length <= length - below->length ? above : below;
}

static enum status open_bucket(struct length_cache *c, uint32_t length, size_t at,
                               struct error *err)
{
    if (c->n_buckets == c->cap_buckets) {
        size_t cap = c->cap_buckets == 0 ? 16 : 2 * c->cap_buckets;
        struct length_bucket *buckets = try_realloc(c->buckets, cap, sizeof(*buckets));

        if (buckets == NULL)
            return error_no_memory(err, cap * sizeof(*buckets), "buckets by length");
        c->buckets = buckets;
        c->cap_buckets = cap;
    }
    memmove(&c->buckets[at + 1], &c->buckets[at], (c->n_buckets - at) * sizeof(*c->buckets));
    c->buckets[at] = (struct length_bucket){.length = length};
    c->n_buckets++;
    return STATUS_OK;
}

enum status length_cache_put(struct length_cache *c, uint32_t length, void *item, struct error *err)
{
    size_t at = length_cache_place_of(c, length);
    struct length_bucket *b = length_cache_nearest(c, length, at);

    if (b == NULL) {
        if (open_bucket(c, length, at, err) != STATUS_OK)
            return err->status;
        b = &c->buckets[at];
    }
    if (b->n == b->cap) {
        size_t cap = b->cap == 0 ? 2 * c->batch_size : 2 * b->cap;
        void **items = try_realloc(b->items, cap, sizeof(*items));

        if (items == NULL)
            return error_no_memory(err, cap * sizeof(*items), "a bucket of one length");
        b->items = items;
        b->cap = cap;
    }
    b->items[b->n++] = item;
    c->n++;
    c->n_full += b->n == c->batch_size;
    return STATUS_OK;
}

/* Takes the first n of a bucket. An empty bucket stays: its length will recur. */
static void take_first(struct length_cache *c, struct length_bucket *b, size_t n, void **out)
{
    memcpy(out, b->items, n * sizeof(*out));
    memmove(b->items, b->items + n, (b->n - n) * sizeof(*out));
    c->n_full -= b->n >= c->batch_size && b->n - n < c->batch_size;
    c->n -= n;
    b->n -= n;
}

size_t length_cache_take(struct length_cache *c, uint64_t which, void **out)
{
    size_t left;

    assert(c->n_full > 0);
    left = (size_t)(which % c->n_full);
    for (size_t i = 0; i < c->n_buckets; i++) {
        if (c->buckets[i].n < c->batch_size || left-- > 0)
            continue;
        take_first(c, &c->buckets[i], c->batch_size, out);
        break;
    }
    return c->batch_size;
}

size_t length_cache_take_fullest(struct length_cache *c, void **out)
{
    struct length_bucket *fullest = NULL;
    size_t n;

    for (size_t i = 0; i < c->n_buckets; i++)
        if (fullest == NULL || c->buckets[i].n > fullest->n)
            fullest = &c->buckets[i];
    if (fullest == NULL || fullest->n == 0)
        return 0;
    n = fullest->n < c->batch_size ? fullest->n : c->batch_size;
    take_first(c, fullest, n, out);
    return n;
}

void length_cache_clear(struct length_cache *c, void (*give_up)(void *item))
{
    for (size_t i = 0; i < c->n_buckets; i++) {
        for (size_t k = 0; k < c->buckets[i].n; k++)
            give_up(c->buckets[i].items[k]);
        free(c->buckets[i].items);
    }
    free(c->buckets);
    *c = (struct length_cache){.batch_size = c->batch_size, .range = c->range};
}
