/* Batches of similar length out of a stream: items wait in buckets by length until a bucket fills a
 * batch. Two rows of a batch from one bucket differ by at most 2 (range - 1) words; at the end,
 * buckets are merged with their neighbours. Every item comes out exactly once. */
#ifndef WORLDS_TEACHERS_LENGTH_CACHE_H
#define WORLDS_TEACHERS_LENGTH_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct length_bucket {
    uint32_t length; /* of the item that opened it */
    void **items;    /* [n], first in first out */
    size_t n, cap;
};

/* Zeroed but for batch_size and range, both at least 1. */
struct length_cache {
    size_t batch_size;
    uint32_t range;
    struct length_bucket *buckets; /* [n_buckets], by length */
    size_t n_buckets, cap_buckets;
    size_t n;      /* items in all buckets */
    size_t n_full; /* buckets that fill a batch */
};

/* The bucket of length, or of the nearest length less than range away (the longer of two), or a new
 * one. */
enum status length_cache_put(struct length_cache *c, uint32_t length, void *item,
                             struct error *err) MUST_CHECK;
/* The first batch_size items of full bucket which % n_full. A full bucket must exist (asserted). */
size_t length_cache_take(struct length_cache *c, uint64_t which, void **out);
/* The shortest batch_size items, or all, whatever their lengths: the end of the data. */
size_t length_cache_consolidate(struct length_cache *c, void **out);
/* Calls give_up for each item that is left, in any order; the cache is empty after and holds no
 * memory. */
void length_cache_clear(struct length_cache *c, void (*give_up)(void *item));

#endif
