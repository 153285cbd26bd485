#include "server/replay/sum_tree.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { SUM_TREE_MIN_LEAVES = 8 };

void sum_tree_deinit(struct sum_tree *t)
{
    free(t->nodes);
    *t = (struct sum_tree){0};
}

enum status sum_tree_reserve(struct sum_tree *t, size_t n, struct error *err)
{
    size_t n_leaves = t->n_leaves > 0 ? t->n_leaves : SUM_TREE_MIN_LEAVES;
    double *nodes;

    while (n_leaves < n)
        n_leaves *= 2;
    if (n_leaves == t->n_leaves)
        return STATUS_OK;
    nodes = try_alloc(2 * n_leaves, sizeof(nodes[0]));
    if (nodes == NULL)
        return error_no_memory(err, 2 * n_leaves * sizeof(nodes[0]), "priorities");
    if (t->n_leaves > 0)
        memcpy(nodes + n_leaves, t->nodes + t->n_leaves, t->n_leaves * sizeof(nodes[0]));
    for (size_t i = n_leaves - 1; i > 0; i--)
        nodes[i] = nodes[2 * i] + nodes[2 * i + 1];
    free(t->nodes);
    t->nodes = nodes;
    t->n_leaves = n_leaves;
    return STATUS_OK;
}

void sum_tree_set(struct sum_tree *t, size_t i, double weight)
{
    size_t at = t->n_leaves + i;

    assert(i < t->n_leaves && isfinite(weight) && weight >= 0.0);
    t->nodes[at] = weight;
    for (at /= 2; at > 0; at /= 2)
        t->nodes[at] = t->nodes[2 * at] + t->nodes[2 * at + 1];
}

double sum_tree_get(const struct sum_tree *t, size_t i)
{
    assert(i < t->n_leaves);
    return t->nodes[t->n_leaves + i];
}

double sum_tree_total(const struct sum_tree *t)
{
    return t->n_leaves > 0 ? t->nodes[1] : 0.0;
}

size_t sum_tree_find(const struct sum_tree *t, double sum)
{
    size_t at = 1;

    assert(sum_tree_total(t) > 0.0);
    while (at < t->n_leaves) {
        const double left = t->nodes[2 * at], right = t->nodes[2 * at + 1];

        /* What rounding or the caller sends past the end stays in a subtree that has weight. */
        if (right > 0.0 && (sum > left || left <= 0.0)) {
            sum -= left;
            at = 2 * at + 1;
        } else {
            at = 2 * at;
        }
    }
    return at - t->n_leaves;
}
