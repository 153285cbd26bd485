/* How near a backend has to come to the known answers. ref computes what they were computed with,
 * in f32; a path of quantised activations is to be no worse than llama.cpp is on such a file. */
#ifndef CLIENT_CLI_GOLDEN_BOUNDS_H
#define CLIENT_CLI_GOLDEN_BOUNDS_H

#include <stdbool.h>

#include "compute/golden.h"

struct golden_bounds {
    const char *backend; /* NULL: all others */
    enum kv_type kv_type;
    double margin;
    double min_top1, max_ppl_off, max_diff, mean_diff;
};

const struct golden_bounds *golden_bounds_of(const char *backend);
bool golden_passages_hold(const struct golden_passages *p, const struct golden_bounds *b);

#endif
