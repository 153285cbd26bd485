/* Functions of real numbers: the nearest doubles, from a table computed with 100 digits; limits and
 * poles; and that both modes of denormals give the same bits. */
#include "base/real.h"

#include <check.h>
#include <math.h>
#include <string.h>

#include "base/denormals.h"
#include "tests/unit/base/suite.h"

static const struct {
    double (*function)(double x);
    double x, known;
} vectors[] = {
#include "tests/unit/base/real_vectors.inc"
};

static void check_vectors(void)
{
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        double got = vectors[i].function(vectors[i].x);

        ck_assert_msg(got == vectors[i].known, "row %zu: of %a %a, not %a", i, vectors[i].x, got,
                      vectors[i].known);
    }
}

START_TEST(test_are_nearest)
{
    const uint64_t before = float_mode();

    check_vectors();
    denormals_are_zero();
    check_vectors();
    float_mode_set(before);
}
END_TEST

START_TEST(test_limits)
{
    ck_assert(real_exp(0.0) == 1.0 && real_exp(-INFINITY) == 0.0 && real_exp(-745.0) == 0.0);
    ck_assert(real_exp(710.0) == INFINITY && real_exp(INFINITY) == INFINITY);
    ck_assert(real_log(1.0) == 0.0 && real_log(0.0) == -INFINITY && real_log(-0.0) == -INFINITY);
    ck_assert(real_log(INFINITY) == INFINITY && isnan(real_log(-1.0)));
    ck_assert(real_sin(0.0) == 0.0 && signbit(real_sin(-0.0)) != 0 && real_cos(0.0) == 1.0);
    ck_assert(isnan(real_sin(INFINITY)) && isnan(real_cos(-INFINITY)));
    ck_assert(real_sin(0x1p60) == 0.0 && real_cos(0x1p60) == 1.0);
    ck_assert(isnan(real_exp((double)NAN)) && isnan(real_log((double)NAN)));
    ck_assert(isnan(real_sin((double)NAN)) && isnan(real_cos((double)NAN)));
}
END_TEST

/* Whole powers of small numbers are exact; the rest is the C library's table of special cases. */
START_TEST(test_powers)
{
    static const double special[] = {0.0, -0.0, 1.0, -1.0,     2.0,       -2.0,       3.0,
                                     0.5, -0.5, 1.5, INFINITY, -INFINITY, (double)NAN};
    enum { N = sizeof(special) / sizeof(special[0]) };
    double power = 1.0;

    for (int n = 0; n <= 22; n++, power *= 10.0)
        ck_assert(real_pow(10.0, n) == power);
    for (size_t i = 0; i < (size_t)N * N; i++) {
        double a = special[i / N], b = special[i % N];
        double got = real_pow(a, b), known = pow(a, b);

        ck_assert_msg((isnan(got) && isnan(known)) || memcmp(&got, &known, sizeof(got)) == 0,
                      "%g^%g: %g, not %g", a, b, got, known);
    }
    ck_assert(real_pow(2.0, 2000.0) == INFINITY && real_pow(2.0, -2000.0) == 0.0);
    ck_assert(real_pow(10000.0, -0.5) == 0.01);
    ck_assert(real_pow(-1.0, 0x1p997) == 1.0 && real_pow(-1.0, -0x1.fffffffffffffp1023) == 1.0);
    ck_assert(real_pow(-1.0, 0x1.fffffffffffffp52) == -1.0 && isnan(real_pow(-1.0, 0.5)));
    ck_assert(real_pow(1.0 - 0x1p-53, 0x1p997) == 0.0 && real_pow(1.0 + 0x1p-52, -0x1p997) == 0.0);
}
END_TEST

/* Also where the exact result is close to the middle of two floats, so that the C library's last
 * place could decide. */
START_TEST(test_floats_are_those_of_the_doubles)
{
    for (int i = 0; i < 20000; i++) {
        const double middle = 0.5 + (double)(2 * i + 1) * 0x1p-25, factor = 1.0 + 0.01 * i;
        const double of_exp = log(middle), of_cos = acos(middle), of_sin = asin(middle);

        ck_assert(real_exp_float(of_exp) == (float)real_exp(of_exp));
        ck_assert(real_cos_float(1.0, of_cos) == (float)real_cos(of_cos));
        ck_assert(real_sin_float(1.0, of_sin) == (float)real_sin(of_sin));
        ck_assert(real_cos_float(factor, i) == (float)(factor * real_cos(i)));
        ck_assert(real_sin_float(factor, i) == (float)(factor * real_sin(i)));
    }
    ck_assert(real_exp_float(-INFINITY) == 0.0f && real_exp_float(1000.0) == INFINITY);
    ck_assert(isnan(real_exp_float((double)NAN)) && isnan(real_cos_float(1.0, INFINITY)));
}
END_TEST

START_TEST(test_normal)
{
    for (int i = -90; i <= 90; i++) {
        const double x = 0.1 * i;

        ck_assert_double_eq_tol(real_normal_below(x), 0.5 * erfc(-x / sqrt(2.0)), 0x1p-50);
    }
    ck_assert(real_normal_below(0.0) == 0.5 && real_normal_below(INFINITY) == 1.0);
    ck_assert(real_normal_below(-INFINITY) == 0.0 && isnan(real_normal_below((double)NAN)));
}
END_TEST

SUITE_MAIN("base/real", test_are_nearest, test_limits, test_powers,
           test_floats_are_those_of_the_doubles, test_normal)
