#include "client/cli/bench/quantiles.h"

#include <math.h>
#include <stdlib.h>

#include "base/counter_rng.h"
#include "tests/unit/base/suite.h"

/* Small numbers are exact: percentiles lie between the two nearest ranks, as numpy's do; of nothing
 * there are none. */
START_TEST(small)
{
    struct quantiles h = {0};

    ck_assert(isnan(quantiles_percentile(&h, 50)));
    ck_assert(isnan(quantiles_mean(&h)));
    for (uint64_t i = 10; i >= 1; i--)
        quantiles_add(&h, i);
    ck_assert_double_eq_tol(quantiles_percentile(&h, 0), 1, 1e-9);
    ck_assert_double_eq_tol(quantiles_percentile(&h, 50), 5.5, 1e-9);
    ck_assert_double_eq_tol(quantiles_percentile(&h, 99), 9.91, 1e-9);
    ck_assert_double_eq_tol(quantiles_percentile(&h, 100), 10, 1e-9);
    ck_assert_double_eq_tol(quantiles_mean(&h), 5.5, 1e-9);
    ck_assert_double_eq_tol(quantiles_deviation(&h), sqrt(8.25), 1e-9);
    quantiles_deinit(&h);
}
END_TEST

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

enum { N = 20000 };

/* Over nine powers of ten every percentile is within 0.4 % of the sorted numbers'; a histogram made
 * of two says the same as one of all. */
START_TEST(error_bound)
{
    struct quantiles whole = {0}, parts[2] = {{0}};
    uint64_t *values = calloc(N, sizeof(*values));

    ck_assert_ptr_nonnull(values);
    for (uint32_t i = 0; i < N; i++) {
        values[i] = (uint64_t)pow(10, 9 * (double)counter_rng_uniform(1, 0, i, 0));
        quantiles_add(&whole, values[i]);
        quantiles_add(&parts[i % 2], values[i]);
    }
    quantiles_merge(&parts[0], &parts[1]);
    qsort(values, N, sizeof(*values), by_value);
    for (double percent = 0; percent <= 100; percent += 0.1) {
        double rank = percent / 100 * (N - 1), is = quantiles_percentile(&whole, percent);
        double low = (double)values[(size_t)rank], high = (double)values[(size_t)ceil(rank)];

        ck_assert_double_ge(is, low * (1 - 0.004));
        ck_assert_double_le(is, high * (1 + 0.004));
        ck_assert_double_eq(is, quantiles_percentile(&parts[0], percent));
    }
    ck_assert_uint_eq(whole.min, values[0]);
    ck_assert_uint_eq(whole.max, values[N - 1]);
    free(values);
    quantiles_deinit(&whole);
    quantiles_deinit(&parts[0]);
    quantiles_deinit(&parts[1]);
}
END_TEST

/* The largest number has a bucket too. */
START_TEST(largest)
{
    struct quantiles h = {0};

    quantiles_add(&h, UINT64_MAX);
    quantiles_add(&h, 0);
    quantiles_add(&h, UINT64_MAX / 2);
    ck_assert_double_eq_tol(quantiles_percentile(&h, 50) / ((double)UINT64_MAX / 2), 1, 0.004);
    quantiles_deinit(&h);
}
END_TEST

SUITE_MAIN("client/cli/bench/quantiles", small, error_bound, largest)
