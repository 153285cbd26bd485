#include "client/cli/bench/arrivals.h"

#include <math.h>

#include "tests/unit/base/suite.h"

/* Equal gaps, and bursts of equal rate. */
START_TEST(constant)
{
    const struct arrivals_plan plan = {.rate = 10, .burst = 1, .is_constant = true};
    const struct arrivals_plan bursts = {.rate = 10, .burst = 5, .is_constant = true};
    struct arrivals a;

    arrivals_init(&a, &plan);
    for (int i = 0; i < 100; i++)
        ck_assert_double_eq_tol(arrivals_take(&a), i / 10.0, 1e-9);
    arrivals_init(&a, &bursts);
    for (int i = 0; i < 100; i++)
        ck_assert_double_eq_tol(arrivals_take(&a), i / 5 * 0.5, 1e-9);
}
END_TEST

/* On a ramp from 10 to 30 a second in 10 s, the count by time t is 10 t + t²; behind it 30 a
 * second. */
START_TEST(ramp)
{
    const struct arrivals_plan plan = {
        .rate = 10, .last_rate = 30, .ramp_s = 10, .burst = 1, .is_constant = true};
    struct arrivals a;

    arrivals_init(&a, &plan);
    for (int i = 0; i < 300; i++) {
        double t = arrivals_take(&a);

        if (i <= 200)
            ck_assert_double_eq_tol(10 * t + t * t, i, 1e-6);
        else
            ck_assert_double_eq_tol(t, 10 + (i - 200) / 30.0, 1e-6);
    }
}
END_TEST

/* A Poisson process: gaps with the mean and the deviation of the exponential distribution; the same
 * seed gives the same times, another stream others. */
START_TEST(poisson)
{
    const struct arrivals_plan plan = {.rate = 100, .burst = 1, .seed = 7};
    const struct arrivals_plan other = {.rate = 100, .burst = 1, .seed = 7, .stream = 1};
    double sum = 0, squares = 0, before = 0;
    struct arrivals a, b, c;
    int n_equal = 0;

    arrivals_init(&a, &plan);
    arrivals_init(&b, &plan);
    arrivals_init(&c, &other);
    for (int i = 0; i <= 20000; i++) {
        double t = arrivals_take(&a);

        ck_assert_double_eq(t, arrivals_take(&b));
        n_equal += t == arrivals_take(&c);
        sum += t - before;
        squares += (t - before) * (t - before);
        before = t;
    }
    ck_assert_int_le(n_equal, 1); /* the first */
    ck_assert_double_eq_tol(sum / 20000, 0.01, 0.0003);
    ck_assert_double_eq_tol(sqrt(squares / 20000 - 0.0001), 0.01, 0.0004);
}
END_TEST

SUITE_MAIN("client/cli/bench/arrivals", constant, ramp, poisson)
