#include "client/cli/bench/report.h"

#include <math.h>

#include "tests/unit/base/suite.h"

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
    const struct load_plan plan = {.n_turns = 2};
    struct bench_run run = {.address = "parley://a", .plan = &plan};
    struct figures *f = &run.figures;
    json_t *report;

    figures_init(f, 2);
    f->goal = (struct goodput_goal){.ttft_ms = 5};
    f->start_us = 0;
    f->end_us = 100000;
    figures_add_turn(f, &first);
    figures_add_turn(f, &second);
    figures_add_failed(f, 2, &why);
    figures_add_failed(f, 1, &later);
    quantiles_add(&f->rates_milli, 10000);
    quantiles_add(&f->rates_milli, 20000);
    quantiles_add(&f->rates_milli, 30000);
    report = bench_run_json(&run);
    ck_assert_double_eq(real(report, "completed"), 2);
    ck_assert_double_eq(real(report, "failed"), 3);
    ck_assert_str_eq(json_string_value(json_object_get(report, "first_error")), "gone");
    ck_assert_double_eq_tol(real(report, "output_tok_s"), 50, 1e-6);
    ck_assert_double_eq_tol(real(report, "input_tok_s"), 500, 1e-6);
    ck_assert_double_eq(real(report, "cached_tokens"), 4);
    ck_assert_double_eq(real(report, "prompt_tokens_max"), 20); /* of first turns */
    ck_assert_double_eq_tol(real(report, "ttft_ms_p50"), 6, 0.004 * 22);
    ck_assert_double_eq_tol(real(report, "tpot_ms_p50"), 10, 1e-6);
    ck_assert_double_eq_tol(real(report, "e2el_ms_p50"), 22, 0.004 * 22);
    ck_assert(isnan(real(report, "itl_ms_p50")));
    ck_assert_double_eq_tol(real(report, "fairness"), 0.5, 0.004);
    ck_assert_double_eq_tol(
        json_number_value(json_array_get(json_object_get(report, "ttft_ms_p50_by_turn"), 1)), 2,
        1e-6);
    ck_assert_double_eq_tol(real(report, "request_goodput"), 10, 1e-6); /* one of both */
    ck_assert_double_eq(real(json_object_get(report, "errors"), "UNAVAILABLE"), 2);
    ck_assert_double_eq(real(json_object_get(report, "errors"), "UNKNOWN"), 1);
    ck_assert_double_eq_tol(real(report, "mean_ttft_ms"), 6, 1e-6);
    ck_assert_double_eq_tol(real(report, "std_ttft_ms"), 4, 1e-6);
    ck_assert_ptr_null(json_object_get(report, "newcomer"));
    json_decref(report);
    figures_deinit(&run.figures);
}
END_TEST

/* A load of which nothing completed has counts, and no figure. */
START_TEST(nothing)
{
    const struct load_plan plan = {.n_turns = 1};
    struct bench_run run = {.address = "parley://a", .plan = &plan};
    json_t *report;

    figures_init(&run.figures, 1);
    report = bench_run_json(&run);
    ck_assert_double_eq(real(report, "completed"), 0);
    ck_assert_double_eq(real(report, "output_tok_s"), 0);
    ck_assert(isnan(real(report, "ttft_ms_p99")));
    ck_assert(isnan(real(report, "fairness")));
    json_decref(report);
    figures_deinit(&run.figures);
}
END_TEST

/* A turn of a schedule counts from the time at which it was to begin, not from when it was sent. */
START_TEST(scheduled)
{
    const struct target_session late = {.turn = 1,
                                        .due_us = 1000,
                                        .begun_us = 101000,
                                        .sent_us = 102000,
                                        .first_us = 103000,
                                        .last_us = 104000,
                                        .completion_tokens = 2};
    struct figures f;

    figures_init(&f, 1);
    f.end_us = 104000;
    figures_add_turn(&f, &late);
    ck_assert_double_eq_tol(quantiles_percentile(&f.ttft_us, 50), 102000, 1e-6);
    ck_assert_double_eq_tol(quantiles_percentile(&f.e2el_us, 50), 103000, 1e-6);
    ck_assert_double_eq_tol(quantiles_percentile(&f.lag_us, 50), 100000, 1e-6);
    figures_deinit(&f);
}
END_TEST

/* Two loads as one: counts and durations add up, latencies are of the turns of both. */
START_TEST(merged)
{
    const struct target_session turn = {.turn = 1,
                                        .begun_us = 1000,
                                        .sent_us = 1000,
                                        .first_us = 2000,
                                        .last_us = 3000,
                                        .prompt_tokens = 7,
                                        .completion_tokens = 2};
    const struct error why = {.status = STATUS_ABORTED, .text = "gone"};
    struct target_session slow = turn;
    struct figures a, b;

    slow.first_us = 5000;
    slow.last_us = 9000;
    slow.prompt_tokens = 9;
    figures_init(&a, 1);
    figures_init(&b, 2);
    a.end_us = 10000;
    b.start_us = 50000;
    b.end_us = 80000;
    figures_add_turn(&a, &turn);
    figures_add_turn(&b, &slow);
    figures_add_turn(&b, &slow);
    figures_add_failed(&b, 3, &why);
    b.n_cancelled = 4;
    b.n_peak = 2;
    b.client_cpu_s = 0.5;
    figures_merge(&a, &b);
    ck_assert_double_eq_tol(figures_duration_s(&a), 0.04, 1e-9);
    ck_assert_uint_eq(a.n_completed, 3);
    ck_assert_uint_eq(a.n_failed, 3);
    ck_assert_uint_eq(a.n_by_status[STATUS_ABORTED], 3);
    ck_assert_uint_eq(a.n_cancelled, 4);
    ck_assert_uint_eq(a.n_input, 25);
    ck_assert_uint_eq(a.n_output, 6);
    ck_assert_uint_eq(a.n_prompt_min, 7);
    ck_assert_uint_eq(a.n_prompt_max, 9);
    ck_assert_uint_eq(a.n_peak, 2);
    ck_assert_uint_eq(a.ttft_us.n, 3);
    ck_assert_uint_eq(a.turn_ttft_us[0].max, 4000);
    ck_assert_uint_eq(a.e2el_us.max, 8000);
    ck_assert_double_eq_tol(a.client_cpu_s, 0.5, 1e-9);
    ck_assert_str_eq(a.first_error.text, "gone");
    figures_deinit(&a);
    figures_deinit(&b);
}
END_TEST

SUITE_MAIN("client/cli/bench/figures", turns, nothing, scheduled, merged)
