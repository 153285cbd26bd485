/* Weights by index, and the index where their running sum passes a number: both in log n. A parent
 * is always the sum of its two children, so errors of rounding do not grow with updates. */
#ifndef SERVER_REPLAY_SUM_TREE_H
#define SERVER_REPLAY_SUM_TREE_H

#include <stddef.h>

#include "base/status.h"

/* Zeroed: without leaves. */
struct sum_tree {
    double *nodes;   /* [2 * n_leaves] the root at 1, the children of i at 2i and 2i + 1 */
    size_t n_leaves; /* a power of two, or 0 */
};

void sum_tree_deinit(struct sum_tree *t);
/* Room for n weights; new ones are 0. EXHAUSTED: t stays as it is. */
enum status sum_tree_reserve(struct sum_tree *t, size_t n, struct error *err) MUST_CHECK;
void sum_tree_set(struct sum_tree *t, size_t i, double weight); /* finite, not below 0 */
double sum_tree_get(const struct sum_tree *t, size_t i);
double sum_tree_total(const struct sum_tree *t);
/* The first index up to which the weights sum to sum or more, among those above 0; the last of
 * these where all together are less. The total is above 0. */
size_t sum_tree_find(const struct sum_tree *t, double sum);

#endif
