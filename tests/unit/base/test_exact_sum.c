#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter_rng.h"
#include "base/exact_sum.h"
#include "tests/unit/base/suite.h"

static double sum_of(const double *x, size_t n)
{
    struct exact_sum s = {0};

    for (size_t i = 0; i < n; i++)
        exact_sum_add(&s, x[i]);
    return exact_sum_read(&s);
}

/* Sums whose true value is known, rounded once: what Python's math.fsum gives. */
START_TEST(test_known_sums)
{
    static const double tenths[] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    static const double cancel[] = {1e308, 1, -1e308, 1e-300};
    static const double tie[] = {9007199254740992.0, 1, 0};
    static const double above_tie[] = {9007199254740992.0, 1, 1e-300};
    static const double tiny[] = {5e-324, 5e-324, -1.5e-323};
    static const double huge[] = {1.7e308, 1.7e308};
    static const double back[] = {1.7e308, 1.7e308, -1.7e308};
    static const double wholes[] = {3, -5, 16777215, -16777215};

    ck_assert_double_eq(sum_of(NULL, 0), 0);
    ck_assert_double_eq(sum_of(tenths, 10), 1);
    ck_assert_double_eq(sum_of(cancel, 4), 1);
    ck_assert_double_eq(sum_of(tie, 3), 9007199254740992.0);
    ck_assert_double_eq(sum_of(above_tie, 3), 9007199254740994.0);
    ck_assert_double_eq(sum_of(tiny, 3), -5e-324);
    ck_assert(isinf(sum_of(huge, 2)));
    ck_assert_double_eq(sum_of(back, 3), 1.7e308);
    ck_assert_double_eq(sum_of(wholes, 4), -2);
}
END_TEST

START_TEST(test_special)
{
    const double infinite[] = {1, (double)INFINITY, 2};
    const double opposite[] = {(double)INFINITY, -(double)INFINITY};
    const double none[] = {1, (double)NAN};

    ck_assert(isinf(sum_of(infinite, 3)));
    ck_assert(isnan(sum_of(opposite, 2)));
    ck_assert(isnan(sum_of(none, 2)));
}
END_TEST

/* The same bits in any order and however it is split, over the whole range of doubles. */
START_TEST(test_any_order)
{
    enum { N = 3000, PARTS = 7 };
    static double x[N];
    struct exact_sum parts[PARTS] = {0}, merged = {0};
    double forward, backward, split;

    for (uint32_t i = 0; i < N; i++)
        x[i] = ldexp((double)counter_rng_uniform(5, i, 0, 0) - 0.5,
                     (int)(counter_rng_uniform(5, i, 1, 0) * 1800) - 900);
    forward = sum_of(x, N);
    for (size_t i = 0; i < N / 2; i++) {
        double swapped = x[i];

        x[i] = x[N - 1 - i];
        x[N - 1 - i] = swapped;
    }
    backward = sum_of(x, N);
    for (size_t i = 0; i < N; i++)
        exact_sum_add(&parts[i % PARTS], x[i]);
    for (size_t i = 0; i < PARTS; i++)
        exact_sum_merge(&merged, &parts[i]);
    split = exact_sum_read(&merged);
    ck_assert_mem_eq(&forward, &backward, sizeof(forward));
    ck_assert_mem_eq(&forward, &split, sizeof(forward));
}
END_TEST

SUITE_MAIN("base/exact_sum", test_known_sums, test_special, test_any_order)
