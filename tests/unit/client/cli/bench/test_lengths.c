#include "client/cli/bench/lengths.h"

#include <math.h>
#include <string.h>

#include "tests/unit/base/suite.h"

enum { N = 20000 };

/* Mean and deviation of many draws. */
START_TEST(distributions)
{
    static const struct {
        const char *text;
        double mean, deviation;
    } cases[] = {
        {"64", 64, 0},
        {"10:19", 14.5, 2.872},
        {"normal:200,20", 200, 20},
        {"lognormal:100,0.5", 113.31, 60.39}, /* 100 exp(0.125); times sqrt(exp(0.25) - 1) */
        {"exponential:50", 50.0, 50.0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double sum = 0, squares = 0, mean;
        struct token_lengths l;
        struct error err;

        ck_assert_int_eq(lengths_parse(&l, cases[i].text, &err), STATUS_OK);
        for (uint32_t c = 0; c < N; c++) {
            double n = lengths_draw(&l, 3, c, 1, 0);

            ck_assert_double_ge(n, 1);
            ck_assert_double_eq(n, lengths_draw(&l, 3, c, 1, 0));
            sum += n;
            squares += n * n;
        }
        mean = sum / N;
        ck_assert_double_eq_tol(mean, cases[i].mean, 0.02 * cases[i].mean);
        ck_assert_double_eq_tol(sqrt(fmax(squares / N - mean * mean, 0)), cases[i].deviation,
                                0.04 * cases[i].deviation + 1e-6);
    }
}
END_TEST

START_TEST(mistakes)
{
    static const char *const cases[] = {
        "",        "0",          "x",         "-5",   "64x", "10:5", "10:",          "normal:5",
        "normal:", "normal:1,x", "gamma:1,2", "1e30", "nan", "0:5",  "lognormal:0,1"};
    struct token_lengths l;
    struct error err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(lengths_parse(&l, cases[i], &err) == STATUS_INVALID, "%s", cases[i]);
}
END_TEST

SUITE_MAIN("client/cli/bench/lengths", distributions, mistakes)
