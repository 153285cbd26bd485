#include "server/telemetry/histogram.h"

const struct histogram_scale histogram_times = {
    .n_bounds = 19,
    .bounds = {50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000,
               1000000, 2500000, 5000000, 10000000, 30000000, 60000000},
    .unit = 1e6,
};

const struct histogram_scale histogram_rows = {
    .n_bounds = 13,
    .bounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096},
    .unit = 1,
};

const struct histogram_scale histogram_tokens = {
    .n_bounds = 17,
    .bounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536},
    .unit = 1,
};

void histogram_add(struct histogram *h, const struct histogram_scale *scale, uint64_t value,
                   uint64_t n)
{
    size_t i = 0;

    while (i < scale->n_bounds && value > scale->bounds[i])
        i++;
    h->counts[i] += n;
    h->n += n;
    h->sum += value * n;
}
