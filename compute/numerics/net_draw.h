/* The random numbers of a row of a small network; on the host and in a device's kernels. */
#ifndef COMPUTE_NUMERICS_NET_DRAW_H
#define COMPUTE_NUMERICS_NET_DRAW_H

#include <stdbool.h>
#include <stdint.h>

/* The counter of a row's random numbers (base/counter_rng.h): the same counter draws the same
 * again.
 */
struct net_draw {
    uint64_t seed;
    uint32_t step, row;
    bool drops; /* false: dropout leaves this row as it is */
};

#endif
