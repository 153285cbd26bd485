/* The figures of a load by name: those of `vllm bench serve`, and ours. A latency has a statistic
 * before it: p50_ttft_ms, p99.9_itl_ms, mean_tpot_ms, median_e2el_ms, std_ttft_ms, max_lag_ms. */
#ifndef CLIENT_CLI_BENCH_METRIC_H
#define CLIENT_CLI_BENCH_METRIC_H

#include <stdbool.h>
#include <stddef.h>

#include "client/cli/bench/figures.h"

struct bench_metric {
    const char *name;
    double (*of)(const struct figures *f); /* NaN: not measured */
};

/* Those that are one number; a NULL name ends them. */
extern const struct bench_metric metrics[];

/* The latencies, by their names without a statistic: "ttft_ms", … */
struct bench_latency {
    const char *name;
    size_t offset; /* of the histogram of µs in struct figures */
};

extern const struct bench_latency latencies[]; /* a NULL name ends them */

const struct quantiles *latency_of(const struct bench_latency *l, const struct figures *f);

/* The figure of this name. False: there is no such name. */
bool metric_read(double *out, const struct figures *f, const char *name);

#endif
