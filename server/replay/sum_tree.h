/* A sum tree holds n weights by index. It sets a weight, and finds the index at which the running
 * sum of the weights passes a number, in time log n. A node is always the sum of its two children,
 * so errors of rounding do not grow with updates. */
#ifndef SERVER_REPLAY_SUM_TREE_H
#define SERVER_REPLAY_SUM_TREE_H

#include <stddef.h>

#include "base/status.h"

/* A zeroed tree has no leaves. */
struct sum_tree {
    double *nodes;   /* [2 * n_leaves] the root is at 1, the children of i are at 2i and 2i + 1 */
    size_t n_leaves; /* a power of two, or 0 */
};

void sum_tree_deinit(struct sum_tree *t);
/* Makes room for n weights. New weights are 0. EXHAUSTED leaves the tree as it is. */
enum status sum_tree_reserve(struct sum_tree *t, size_t n, struct error *err) MUST_CHECK;
/* Sets a weight, which is finite and not below 0. */
void sum_tree_set(struct sum_tree *t, size_t i, double weight);
double sum_tree_get(const struct sum_tree *t, size_t i);
double sum_tree_total(const struct sum_tree *t);
/* Returns the first index whose weight is above 0 and up to which the weights add up to sum or
 * more. If all weights together are less than sum, returns the last index whose weight is above 0.
 * The total must be above 0. */
size_t sum_tree_find(const struct sum_tree *t, double sum);

#endif
