/* Makes batches of similar length out of a stream. Items wait in buckets by length until one bucket
 * has a full batch. Two items of one bucket, so of one batch, differ by at most 2 (range - 1)
 * words. What is left at the end of the data comes in shorter batches. Every item comes out exactly
 * once. One thread. */
#ifndef WORLDS_TEACHERS_LENGTH_CACHE_H
#define WORLDS_TEACHERS_LENGTH_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct length_bucket {
    uint32_t length; /* length of the item that opened the bucket */
    void **items;    /* [n], the oldest first; they come out in this order */
    size_t n, cap;
};

/* The caller zeroes it and sets batch_size and range, at least 1; length_cache_clear frees it. */
struct length_cache {
    size_t batch_size;
    uint32_t range;
    struct length_bucket *buckets; /* [n_buckets], by length */
    size_t n_buckets, cap_buckets;
    size_t n;      /* items in all buckets */
    size_t n_full; /* buckets with at least batch_size items */
};

/* Puts an item into the bucket of the nearest length that is less than range away (of two that are
 * equally near, into the longer one), or into a new bucket. The cache owns the item on success.
 * EXHAUSTED without memory. */
enum status length_cache_put(struct length_cache *c, uint32_t length, void *item,
                             struct error *err) MUST_CHECK;
/* Takes the oldest batch_size items of one full bucket, of number which % n_full by length. out has
 * room for batch_size items. Returns batch_size. n_full must be above 0 (asserted). */
size_t length_cache_take(struct length_cache *c, uint64_t which, void **out);
/* Takes the oldest items, at most batch_size, of the bucket that has most (of several the
 * shortest). Returns how many, 0 if there are none. For the end of the data, or of the memory for
 * it. */
size_t length_cache_take_fullest(struct length_cache *c, void **out);
/* Calls give_up for each item that is left, in any order. The cache is then empty and holds no
 * memory. */
void length_cache_clear(struct length_cache *c, void (*give_up)(void *item));

#endif
