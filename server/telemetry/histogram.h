/* A histogram: counts of values by fixed bounds, as Prometheus reads them. Zeroed memory is an
 * empty histogram. Loop. */
#ifndef SERVER_TELEMETRY_HISTOGRAM_H
#define SERVER_TELEMETRY_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { HISTOGRAM_MAX_BOUNDS = 20 };

/* The bounds of the buckets, and the unit that readers see. */
struct histogram_scale {
    size_t n_bounds;
    uint64_t bounds[HISTOGRAM_MAX_BOUNDS]; /* [n_bounds], rising; a bucket includes its bound */
    double unit; /* counted units in a unit that readers see: 1e6 for microseconds as seconds */
};

extern const struct histogram_scale histogram_times;  /* microseconds, read as seconds */
extern const struct histogram_scale histogram_rows;   /* 1 … 4,096 */
extern const struct histogram_scale histogram_tokens; /* 1 … 65,536 */

struct histogram {
    /* How many values each bucket has by itself. The last bucket is that above all bounds. */
    uint64_t counts[HISTOGRAM_MAX_BOUNDS + 1];
    uint64_t n, sum;
};

/* Adds the value n times. */
void histogram_add(struct histogram *h, const struct histogram_scale *scale, uint64_t value,
                   uint64_t n);

#endif
