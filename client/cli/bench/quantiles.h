/* Counts of whole numbers in buckets whose width grows with the number: numbers below 256 are
 * counted exactly, larger ones in buckets of at most 1/128 of their value, so that the middle of a
 * bucket is within 0.4 % of every number in it. Memory depends on the largest number alone, not on
 * how many are counted. After HdrHistogram (hdrhistogram.org). */
#ifndef CLIENT_CLI_BENCH_QUANTILES_H
#define CLIENT_CLI_BENCH_QUANTILES_H

#include <stddef.h>
#include <stdint.h>

struct quantiles {
    uint64_t *counts; /* [n_buckets]; grows to the bucket of the largest number */
    size_t n_buckets;
    uint64_t n, min, max;    /* exact */
    double sum, sum_squares; /* exact, but for rounding */
};

/* Zeroed, it is empty. */
void quantiles_deinit(struct quantiles *h);
void quantiles_add(struct quantiles *h, uint64_t value);
void quantiles_merge(struct quantiles *into, const struct quantiles *from);

/* Interpolated between the two nearest ranks, as numpy.percentile does. percent: 0 … 100; both ends
 * are exact. NaN where nothing was counted, as for the next two. */
double quantiles_percentile(const struct quantiles *h, double percent);
double quantiles_mean(const struct quantiles *h);
double quantiles_deviation(const struct quantiles *h); /* of the population */

#endif
