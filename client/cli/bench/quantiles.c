#include "client/cli/bench/quantiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Each power of two above EXACT is cut into HALF buckets. */
enum { HALF_BITS = 7, HALF = 1 << HALF_BITS, EXACT = 2 * HALF };

static int shift_of(uint64_t value)
{
    return value < EXACT ? 0 : 63 - __builtin_clzll(value) - HALF_BITS;
}

static size_t quantiles_bucket(uint64_t value)
{
    int shift = shift_of(value);

    return ((size_t)shift << HALF_BITS) + (size_t)(value >> shift);
}

static double bucket_middle(size_t bucket)
{
    size_t shift = bucket < EXACT ? 0 : (bucket >> HALF_BITS) - 1;
    double low = (double)(bucket - (shift << HALF_BITS)), width = exp2((double)shift);

    return shift == 0 ? low : (low + 0.5) * width;
}

void quantiles_deinit(struct quantiles *h)
{
    free(h->counts);
}

static void reserve(struct quantiles *h, size_t n_buckets)
{
    if (n_buckets <= h->n_buckets)
        return;
    n_buckets = (n_buckets + EXACT - 1) / EXACT * EXACT;
    h->counts = xrealloc(h->counts, n_buckets * sizeof(*h->counts));
    memset(h->counts + h->n_buckets, 0, (n_buckets - h->n_buckets) * sizeof(*h->counts));
    h->n_buckets = n_buckets;
}

static void quantiles_widen(struct quantiles *h, uint64_t min, uint64_t max)
{
    if (h->n == 0 || min < h->min)
        h->min = min;
    if (h->n == 0 || max > h->max)
        h->max = max;
}

void quantiles_add(struct quantiles *h, uint64_t value)
{
    size_t bucket = quantiles_bucket(value);

    reserve(h, bucket + 1);
    quantiles_widen(h, value, value);
    h->counts[bucket]++;
    h->n++;
    h->sum += (double)value;
    h->sum_squares += (double)value * (double)value;
}

void quantiles_merge(struct quantiles *into, const struct quantiles *from)
{
    if (from->n == 0)
        return;
    reserve(into, from->n_buckets);
    quantiles_widen(into, from->min, from->max);
    for (size_t i = 0; i < from->n_buckets; i++)
        into->counts[i] += from->counts[i];
    into->n += from->n;
    into->sum += from->sum;
    into->sum_squares += from->sum_squares;
}

/* The number of a rank, 0 the smallest. */
static double value_at(const struct quantiles *h, uint64_t rank)
{
    uint64_t n_before = 0;
    size_t i = 0;

    if (rank == 0)
        return (double)h->min;
    if (rank + 1 >= h->n)
        return (double)h->max;
    while ((n_before += h->counts[i]) <= rank)
        i++;
    return fmin(fmax(bucket_middle(i), (double)h->min), (double)h->max);
}

double quantiles_percentile(const struct quantiles *h, double percent)
{
    double rank, low;

    if (h->n == 0)
        return NAN;
    rank = percent / 100.0 * (double)(h->n - 1);
    low = value_at(h, (uint64_t)rank);
    return low + (rank - floor(rank)) * (value_at(h, (uint64_t)rank + 1) - low);
}

double quantiles_mean(const struct quantiles *h)
{
    return h->n == 0 ? NAN : h->sum / (double)h->n;
}

double quantiles_deviation(const struct quantiles *h)
{
    double mean = quantiles_mean(h);

    return h->n == 0 ? NAN : sqrt(fmax(h->sum_squares / (double)h->n - mean * mean, 0.0));
}
