#include "client/cli/bench/require.h"

#include <string.h>

#include "tests/unit/base/suite.h"

START_TEST(bounds)
{
    static const struct {
        const char *text;
        bool holds;
    } cases[] = {
        {"p50_ttft_ms<2", true},     {"p50_ttft_ms<1", false},
        {"p50_ttft_ms<=1", true},    {"median_ttft_ms > 0.5", true},
        {"completed>=3", true},      {"completed>3", false},
        {"p99.9_ttft_ms<1.5", true}, {"mean_itl_ms<9", false}, /* was not measured */
        {"failed<1", true},          {"max_ttft_ms<=1", true},
        {"std_ttft_ms<0.1", true},   {" p50_ttft_ms < 2 ", true},
    };
    struct requirement r;
    struct figures f;
    struct error err;
    double is;

    figures_init(&f, 1);
    for (int i = 0; i < 3; i++)
        quantiles_add(&f.ttft_us, 1000);
    f.n_completed = 3;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(requirement_parse(&r, cases[i].text, &err), STATUS_OK);
        ck_assert_msg(requirement_holds(&r, &f, &is) == cases[i].holds, "%s", cases[i].text);
    }
    figures_deinit(&f);
}
END_TEST

START_TEST(mistakes)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"", "not a condition"},
                 {"p99_ttft_ms", "not a condition"},
                 {"<5", "not a condition"},
                 {"p99_ttft_ms<", "does not end in a number"},
                 {"p99_ttft_ms<five", "does not end in a number"},
                 {"p99_ttft<5", "'p99_ttft'"},
                 {"p101_ttft_ms<5", "'p101_ttft_ms'"},
                 {"often_ttft_ms<5", "'often_ttft_ms'"}};
    struct requirement r;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err;

        ck_assert_int_eq(requirement_parse(&r, cases[i].text, &err), STATUS_INVALID);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "%s: %s", cases[i].text, err.text);
    }
}
END_TEST

SUITE_MAIN("client/cli/bench/require", bounds, mistakes)
