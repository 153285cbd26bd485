/* Keeps a table's samples in proportion to its inserts: the side that is ahead waits. With
 * d = inserted * samples_per_insert - sampled, a sample of n is allowed while the table has
 * min_size items and d - n >= min_diff, an insert while d + samples_per_insert <= max_diff or the
 * table has less than min_size items. */
#ifndef SERVER_REPLAY_LIMITER_H
#define SERVER_REPLAY_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct limiter_config {
    uint64_t min_size;         /* at least 1 */
    double samples_per_insert; /* 0: samples and inserts are not compared */
    double min_diff, max_diff;
};

struct limiter {
    struct limiter_config config;
    uint64_t n_inserted, n_sampled; /* since the table was made or cleared */
};

/* INVALID names the field: what is no number, or would let a table of max_items come to a state in
 * which neither an insert nor a sample of one is allowed. */
enum status limiter_check(const struct limiter_config *c, uint64_t max_items,
                          struct error *err) MUST_CHECK;
/* INVALID names batch_size: n that can come to wait for ever. */
enum status limiter_check_batch(const struct limiter_config *c, uint64_t n,
                                struct error *err) MUST_CHECK;

bool limiter_allows_insert(const struct limiter *l, uint64_t n_items);
bool limiter_allows_sample(const struct limiter *l, uint64_t n_items, uint64_t n);

#endif
