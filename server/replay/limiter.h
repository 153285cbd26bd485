/* A limiter keeps a table's samples in proportion to its inserts: it says which of both must wait.
 * Let d be n_inserted * samples_per_insert - n_sampled. A sample of n items is allowed if the table
 * has at least min_size items and d - n >= min_diff. An insert is allowed if the table has less
 * than min_size items or d + samples_per_insert <= max_diff. */
#ifndef SERVER_REPLAY_LIMITER_H
#define SERVER_REPLAY_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct limiter_config {
    uint64_t min_size;         /* at least 1 */
    double samples_per_insert; /* 0: d is not looked at */
    double min_diff, max_diff;
};

struct limiter {
    struct limiter_config config;
    uint64_t n_inserted, n_sampled; /* items, since the table was made or cleared */
};

/* INVALID names the field that is not a valid number, or with which a table of max_items could come
 * to a state in which neither an insert nor a sample of one item is allowed. */
enum status limiter_check(const struct limiter_config *c, uint64_t max_items,
                          struct error *err) MUST_CHECK;
/* INVALID, of the field batch_size, if a sample of n items could wait for ever. */
enum status limiter_check_batch(const struct limiter_config *c, uint64_t n,
                                struct error *err) MUST_CHECK;

/* Return whether an insert, or a sample of n items, is allowed in a table of n_items. The table
 * adds to n_inserted and n_sampled itself. */
bool limiter_allows_insert(const struct limiter *l, uint64_t n_items);
bool limiter_allows_sample(const struct limiter *l, uint64_t n_items, uint64_t n);

#endif
