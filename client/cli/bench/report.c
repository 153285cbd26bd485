/* Writes the figures of a run as JSON and as text for a person, and those of several runs as CSV.
 * */
#include "client/cli/bench/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "client/cli/bench/metric.h"

static void set_real(json_t *into, const char *name, double value)
{
    (void)json_object_set_new(into, name, isfinite(value) ? json_real(value) : json_null());
}

static void set_whole(json_t *into, const char *name, uint64_t value)
{
    (void)json_object_set_new(into, name, json_integer((json_int_t)value));
}

/* Under our names, "ttft_ms_p50", and under those of vLLM, "p50_ttft_ms". */
static void set_latency(json_t *into, const char *name, const struct quantiles *h)
{
    static const int percents[] = {50, 90, 95, 99};
    char key[32];

    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
        double ms = quantiles_percentile(h, percents[i]) / 1e3;

        (void)snprintf(key, sizeof(key), "%s_p%d", name, percents[i]);
        set_real(into, key, ms);
        (void)snprintf(key, sizeof(key), "p%d_%s", percents[i], name);
        set_real(into, key, ms);
    }
    (void)snprintf(key, sizeof(key), "mean_%s", name);
    set_real(into, key, quantiles_mean(h) / 1e3);
    (void)snprintf(key, sizeof(key), "median_%s", name);
    set_real(into, key, quantiles_percentile(h, 50) / 1e3);
    (void)snprintf(key, sizeof(key), "std_%s", name);
    set_real(into, key, quantiles_deviation(h) / 1e3);
}

static json_t *errors_json(const struct figures *f)
{
    json_t *errors = json_object();

    for (size_t s = 0; s < FIGURES_N_STATUSES; s++)
        if (f->n_by_status[s] > 0)
            set_whole(errors, status_name((enum status)s), f->n_by_status[s]);
    return errors;
}

/* Our own names for what vLLM calls otherwise, and what it does not have. */
static void set_own(json_t *into, const struct figures *f)
{
    json_t *by_turn = json_array();

    set_real(into, "duration_s", figures_duration_s(f));
    set_real(into, "request_s", figures_rate(f, f->n_completed));
    set_real(into, "input_tok_s", figures_rate(f, f->n_input));
    set_real(into, "output_tok_s", figures_output_rate(f));
    set_whole(into, "prompt_tokens", f->n_input);
    set_whole(into, "cached_tokens", f->n_cached);
    set_whole(into, "completion_tokens", f->n_output);
    set_whole(into, "prompt_tokens_min", f->n_prompt_min);
    set_whole(into, "prompt_tokens_max", f->n_prompt_max);
    for (size_t i = 0; i < f->n_turns; i++) {
        double p50 = quantiles_percentile(&f->turn_ttft_us[i], 50) / 1e3;

        (void)json_array_append_new(by_turn, isfinite(p50) ? json_real(p50) : json_null());
    }
    (void)json_object_set_new(into, "ttft_ms_p50_by_turn", by_turn);
    if (isfinite(f->newcomer_ttft_ms)) {
        json_t *newcomer = json_object();

        set_real(newcomer, "ttft_ms", f->newcomer_ttft_ms);
        set_latency(newcomer, "itl_ms", &f->newcomer_itl_us);
        (void)json_object_set_new(into, "newcomer", newcomer);
    }
}

/* A number, or the kind of a distribution with its numbers. */
static json_t *lengths_json(const struct token_lengths *l)
{
    static const char *const kinds[] = {"", "uniform", "normal", "lognormal", "exponential"};

    if (l->kind == LENGTHS_FIXED)
        return json_integer((json_int_t)l->a);
    return json_pack("[sff]", kinds[l->kind], l->a, l->b);
}

double bench_run_achieved_rate(const struct bench_run *r)
{
    const struct figures *f = &r->figures;
    double seconds;

    if (!arrivals_are_given(&r->plan->arrivals))
        return NAN;
    /* Of the planned time at least: no conversation may have been due at its end. */
    seconds = fmax(fmax(figures_duration_s(f), r->plan->duration_s), 1e-9);
    return (double)f->n_completed / (double)r->plan->n_turns / seconds;
}

double bench_run_cached_share(const struct bench_run *r)
{
    return r->figures.n_input == 0 ? NAN : (double)r->figures.n_cached / (double)r->figures.n_input;
}

json_t *bench_run_json(const struct bench_run *r)
{
    const struct load_plan *plan = r->plan;
    const struct figures *f = &r->figures;
    json_t *report = json_pack("{ss,sI,sI,sI,sI}", "address", r->address, "concurrency",
                               (json_int_t)plan->concurrency, "requests",
                               (json_int_t)(plan->duration_s > 0 ? 0 : plan->n_conversations),
                               "turns", (json_int_t)plan->n_turns, "seed", (json_int_t)r->seed);

    (void)json_object_set_new(report, "input_tokens", lengths_json(&plan->input_tokens));
    (void)json_object_set_new(report, "output_tokens", lengths_json(&plan->output_tokens));
    set_whole(report, "num_prompts", f->n_completed + f->n_failed + f->n_cancelled);
    set_whole(report, "max_concurrency", plan->concurrency);
    set_real(report, "request_rate", plan->arrivals.rate > 0 ? plan->arrivals.rate : NAN);
    set_real(report, "achieved_rate", bench_run_achieved_rate(r));
    for (const struct bench_metric *m = metrics; m->name != NULL; m++)
        set_real(report, m->name, m->of(f));
    set_whole(report, "completed", f->n_completed); /* as whole numbers */
    set_whole(report, "failed", f->n_failed);
    set_whole(report, "cancelled", f->n_cancelled);
    if (r->n_windows > 0) {
        set_whole(report, "windows", r->n_windows);
        (void)json_object_set_new(report, "is_stable", json_boolean(r->is_stable));
    }
    for (const struct bench_latency *l = latencies; l->name != NULL; l++)
        set_latency(report, l->name, latency_of(l, f));
    set_own(report, f);
    (void)json_object_set_new(report, "errors", errors_json(f));
    if (f->first_error.status != STATUS_OK)
        (void)json_object_set_new(report, "first_error", json_string(f->first_error.text));
    return report;
}

static void print_latency(const char *name, const struct quantiles *h)
{
    if (h->n > 0)
        printf("%-6s %10.1f %10.1f %10.1f %10.1f\n", name, quantiles_mean(h) / 1e3,
               quantiles_percentile(h, 50) / 1e3, quantiles_percentile(h, 90) / 1e3,
               quantiles_percentile(h, 99) / 1e3);
}

static void print_failures(const struct figures *f)
{
    for (size_t s = 0; s < FIGURES_N_STATUSES; s++)
        if (f->n_by_status[s] > 0)
            printf("%" PRIu64 " failed with %s\n", f->n_by_status[s], status_name((enum status)s));
}

/* Of the first turn, the middle one and the last of at least three: how a conversation's length is
 * felt. */
static void print_by_turn(const struct figures *f)
{
    const size_t turns[] = {0, f->n_turns / 2, f->n_turns - 1};

    if (f->n_turns < 3 || f->turn_ttft_us[f->n_turns - 1].n == 0)
        return;
    printf("\nTTFT p50 in ms:");
    for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]); i++)
        printf("%s turn %zu %.1f", i == 0 ? "" : ",", turns[i] + 1,
               quantiles_percentile(&f->turn_ttft_us[turns[i]], 50) / 1e3);
    printf("\n");
}

static void print_cpu(const struct figures *f)
{
    double duration_s = fmax(figures_duration_s(f), 1e-9);

    printf("this client took %.2f s of CPU time, %.1f%% of one processor\n", f->client_cpu_s,
           100.0 * f->client_cpu_s / duration_s);
    if (!isnan(f->server_cpu_s))
        printf("the server took %.2f s, %.1f%% of one processor\n", f->server_cpu_s,
               100.0 * f->server_cpu_s / duration_s);
}

void bench_run_print(const struct bench_run *r)
{
    const struct figures *f = &r->figures;

    if (r->n_windows > 0)
        printf("%s after %" PRIu32 " windows; the figures are of the last %d\n",
               r->is_stable ? "stable" : "not stable", r->n_windows,
               r->n_windows < STABLE_WINDOWS ? (int)r->n_windows : (int)STABLE_WINDOWS);
    printf("%" PRIu64 " completed, %" PRIu64 " failed in %.2f s\n", f->n_completed, f->n_failed,
           figures_duration_s(f));
    print_failures(f);
    if (f->n_cancelled > 0)
        printf("%" PRIu64 " cancelled, as --cancels says\n", f->n_cancelled);
    if (f->n_output > 0) /* else replies have no tokens, or the server does not count them */
        printf("output %.1f tokens/s, ", figures_output_rate(f));
    if (f->n_input > 0)
        printf("input %.1f tokens/s, ", figures_rate(f, f->n_input));
    printf("%.2f requests/s\n", figures_rate(f, f->n_completed));
    if (r->plan->arrivals.rate > 0)
        printf("asked for %.4g conversations/s, %.4g/s were served\n", r->plan->arrivals.rate,
               bench_run_achieved_rate(r));
    if (f->goal.ttft_ms > 0 || f->goal.tpot_ms > 0 || f->goal.e2el_ms > 0)
        printf("goodput %.2f requests/s: %" PRIu64 " kept to the goal\n",
               figures_rate(f, f->n_good), f->n_good);
    if (f->n_input > 0)
        printf("prompts of %" PRIu32 " to %" PRIu32 " tokens; %" PRIu64 " of %" PRIu64
               " tokens were cached\n",
               f->n_prompt_min, f->n_prompt_max, f->n_cached, f->n_input);
    printf("\n");
    printf("%-6s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99");
    print_latency("TTFT", &f->ttft_us);
    print_latency("ITL", &f->itl_us);
    print_latency("TPOT", &f->tpot_us);
    print_latency("E2EL", &f->e2el_us);
    print_latency("lag", &f->lag_us);
    print_by_turn(f);
    if (isfinite(f->newcomer_ttft_ms))
        printf("\nthe newcomer's TTFT %.1f ms; meanwhile the others' ITL %.1f p50, %.1f p99\n",
               f->newcomer_ttft_ms, quantiles_percentile(&f->newcomer_itl_us, 50) / 1e3,
               quantiles_percentile(&f->newcomer_itl_us, 99) / 1e3);
    if (f->rates_milli.n > 1 && isfinite(figures_fairness(f)))
        printf("\nslowest conversation: %.2f of the median's tokens/s\n", figures_fairness(f));
    print_cpu(f);
    printf("seed %" PRIu64 ": --seed %" PRIu64 " repeats these prompts\n", r->seed, r->seed);
}

/* The columns of perf_analyzer's file that a client can know; times in µs, as there. */
static void print_csv_names(void)
{
    printf("Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency,"
           "Avg latency,address");
    for (const struct bench_metric *m = metrics; m->name != NULL; m++)
        printf(",%s", m->name);
    for (const struct bench_latency *l = latencies; l->name != NULL; l++)
        printf(",mean_%s,median_%s,p90_%s,p99_%s", l->name, l->name, l->name, l->name);
    printf("\n");
}

/* After a comma; nothing where it was not measured. */
static void print_cell(double value)
{
    if (isfinite(value))
        printf(",%.6g", value);
    else
        printf(",");
}

void bench_runs_csv(const struct bench_run *runs, size_t n_runs)
{
    print_csv_names();
    for (size_t i = 0; i < n_runs; i++) {
        const struct figures *f = &runs[i].figures;

        printf("%" PRIu32, runs[i].plan->concurrency);
        print_cell(figures_rate(f, f->n_completed));
        print_cell(quantiles_percentile(&f->e2el_us, 50));
        print_cell(quantiles_percentile(&f->e2el_us, 90));
        print_cell(quantiles_percentile(&f->e2el_us, 95));
        print_cell(quantiles_percentile(&f->e2el_us, 99));
        print_cell(quantiles_mean(&f->e2el_us));
        printf(",%s", runs[i].address);
        for (const struct bench_metric *m = metrics; m->name != NULL; m++)
            print_cell(m->of(f));
        for (const struct bench_latency *l = latencies; l->name != NULL; l++) {
            const struct quantiles *h = latency_of(l, f);

            print_cell(quantiles_mean(h) / 1e3);
            print_cell(quantiles_percentile(h, 50) / 1e3);
            print_cell(quantiles_percentile(h, 90) / 1e3);
            print_cell(quantiles_percentile(h, 99) / 1e3);
        }
        printf("\n");
    }
}
