/* How close a backend must come to the known answers. The answers were computed in f32, as ref
 * computes; a backend with quantised activations must be no worse than llama.cpp on such a file. */
#ifndef COMPUTE_VERBS_GOLDEN_BOUNDS_H
#define COMPUTE_VERBS_GOLDEN_BOUNDS_H

#include <stdbool.h>

#include "compute/model/golden.h"

struct golden_bounds {
    const char *backend; /* NULL: all others */
    enum kv_type kv_type;
    double margin;
    double min_top1, max_ppl_off, max_diff, mean_diff;
};

const struct golden_bounds *golden_bounds_of(const char *backend);
bool golden_passages_hold(const struct golden_passages *p, const struct golden_bounds *b);

#endif
