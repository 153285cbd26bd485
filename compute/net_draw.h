/* The chance of a row of a small network; on the host and in a device's kernels. */
#ifndef COMPUTE_NET_DRAW_H
#define COMPUTE_NET_DRAW_H

#include <stdbool.h>
#include <stdint.h>

/* What a row's chance is drawn by (base/chance.h): whoever knows it draws the same again. */
struct net_draw {
    uint64_t seed;
    uint32_t step, row;
    bool drops; /* false: dropout leaves this row as it is */
};

#endif
