#include "client/cli/bench/figures.h"

#include <math.h>

#include "tests/unit/base/suite.h"

/* Percentiles lie between the two nearest ranks, as numpy's do; of nothing there are none. */
START_TEST(percentiles)
{
    struct samples s = {0};

    ck_assert(isnan(samples_percentile(&s, 50)));
    for (int i = 10; i >= 1; i--)
        samples_add(&s, i);
    ck_assert_double_eq_tol(samples_percentile(&s, 0), 1, 1e-6);
    ck_assert_double_eq_tol(samples_percentile(&s, 50), 5.5, 1e-6);
    ck_assert_double_eq_tol(samples_percentile(&s, 99), 9.91, 1e-5);
    ck_assert_double_eq_tol(samples_percentile(&s, 100), 10, 1e-6);
    samples_deinit(&s);
}
END_TEST

static double real(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    ck_assert_msg(value != NULL, "%s is missing", name);
    return json_is_null(value) ? NAN : json_number_value(value);
}

/* A turn's times are those between its moments; tokens are the server's; rates are over the time
 * from the first turn's begin to the last one's end. */
START_TEST(turns)
{
    const struct target_session first = {.turn = 1,
                                         .begun_us = 1000,
                                         .sent_us = 3000,
                                         .first_us = 13000,
                                         .last_us = 43000,
                                         .prompt_tokens = 20,
                                         .cached_tokens = 4,
                                         .completion_tokens = 4};
    const struct target_session second = {.turn = 2,
                                          .begun_us = 50000,
                                          .sent_us = 50000,
                                          .first_us = 52000,
                                          .last_us = 52000,
                                          .prompt_tokens = 30,
                                          .completion_tokens = 1};
    const struct error why = {.status = STATUS_UNAVAILABLE, .text = "gone"};
    const struct error later = {.status = STATUS_UNKNOWN, .text = "later"};
    json_t *report = json_object();
    struct figures f;

    figures_init(&f, 2);
    f.start_us = 0;
    f.end_us = 100000;
    figures_add_turn(&f, &first);
    figures_add_turn(&f, &second);
    figures_add_failed(&f, 2, &why);
    figures_add_failed(&f, 1, &later);
    samples_add(&f.rates, 10);
    samples_add(&f.rates, 20);
    samples_add(&f.rates, 30);
    figures_json(&f, report);
    ck_assert_double_eq(real(report, "completed"), 2);
    ck_assert_double_eq(real(report, "failed"), 3);
    ck_assert_str_eq(json_string_value(json_object_get(report, "first_error")), "gone");
    ck_assert_double_eq_tol(real(report, "output_tok_s"), 50, 1e-6);
    ck_assert_double_eq_tol(real(report, "input_tok_s"), 500, 1e-6);
    ck_assert_double_eq(real(report, "cached_tokens"), 4);
    ck_assert_double_eq(real(report, "prompt_tokens_max"), 20); /* of first turns */
    ck_assert_double_eq_tol(real(report, "ttft_ms_p50"), 6, 1e-6);
    ck_assert_double_eq_tol(real(report, "tpot_ms_p50"), 10, 1e-6);
    ck_assert_double_eq_tol(real(report, "e2el_ms_p50"), 22, 1e-6);
    ck_assert(isnan(real(report, "itl_ms_p50")));
    ck_assert_double_eq_tol(real(report, "fairness"), 0.5, 1e-6);
    ck_assert_double_eq_tol(
        json_number_value(json_array_get(json_object_get(report, "ttft_ms_p50_by_turn"), 1)), 2,
        1e-6);
    ck_assert_ptr_null(json_object_get(report, "newcomer"));
    json_decref(report);
    figures_deinit(&f);
}
END_TEST

/* A load of which nothing completed has counts, and no figure. */
START_TEST(nothing)
{
    json_t *report = json_object();
    struct figures f;

    figures_init(&f, 1);
    figures_json(&f, report);
    ck_assert_double_eq(real(report, "completed"), 0);
    ck_assert_double_eq(real(report, "output_tok_s"), 0);
    ck_assert(isnan(real(report, "ttft_ms_p99")));
    ck_assert(isnan(real(report, "fairness")));
    json_decref(report);
    figures_deinit(&f);
}
END_TEST

SUITE_MAIN("client/cli/bench/figures", percentiles, turns, nothing)
