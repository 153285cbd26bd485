#include "client/cli/bench/figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

void samples_add(struct samples *s, double value)
{
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 256 : 2 * s->cap;
        s->values = xrealloc(s->values, s->cap * sizeof *s->values);
    }
    s->values[s->n++] = (float)value;
}

void samples_deinit(struct samples *s)
{
    free(s->values);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

double samples_percentile(struct samples *s, double percent)
{
    double rank = percent / 100.0 * (double)(s->n - 1);
    size_t below = (size_t)rank;

    if (s->n == 0)
        return NAN;
    qsort(s->values, s->n, sizeof *s->values, by_value);
    if (below + 1 >= s->n)
        return (double)s->values[s->n - 1];
    return (double)s->values[below] +
           (rank - (double)below) * (double)(s->values[below + 1] - s->values[below]);
}

void figures_init(struct figures *f, size_t n_turns)
{
    *f = (struct figures){.n_turns = n_turns, .newcomer_ttft_ms = NAN};
    f->turn_ttft_ms = xalloc(n_turns * sizeof *f->turn_ttft_ms);
}

void figures_deinit(struct figures *f)
{
    samples_deinit(&f->ttft_ms);
    samples_deinit(&f->itl_ms);
    samples_deinit(&f->tpot_ms);
    samples_deinit(&f->e2el_ms);
    samples_deinit(&f->rates);
    samples_deinit(&f->newcomer_itl_ms);
    for (size_t i = 0; i < f->n_turns; i++)
        samples_deinit(&f->turn_ttft_ms[i]);
    free(f->turn_ttft_ms);
}

static double ms_between(uint64_t from_us, uint64_t to_us)
{
    return (double)(to_us - from_us) / 1e3;
}

void figures_add_turn(struct figures *f, const struct target_session *s)
{
    f->n_completed++;
    f->n_input += s->prompt_tokens;
    f->n_cached += s->cached_tokens;
    f->n_output += s->completion_tokens;
    if (s->turn == 1 && (f->n_prompt_max == 0 || s->prompt_tokens < f->n_prompt_min))
        f->n_prompt_min = s->prompt_tokens;
    if (s->turn == 1 && s->prompt_tokens > f->n_prompt_max)
        f->n_prompt_max = s->prompt_tokens;
    if (s->first_us == 0)
        return; /* a reply without text has no times */
    samples_add(&f->ttft_ms, ms_between(s->sent_us, s->first_us));
    samples_add(&f->turn_ttft_ms[s->turn - 1], ms_between(s->sent_us, s->first_us));
    samples_add(&f->e2el_ms, ms_between(s->begun_us, s->last_us));
    if (s->completion_tokens > 1)
        samples_add(&f->tpot_ms,
                    ms_between(s->first_us, s->last_us) / (double)(s->completion_tokens - 1));
}

void figures_add_failed(struct figures *f, uint64_t n, const struct error *why)
{
    f->n_failed += n;
    if (f->first_error.status == STATUS_OK)
        f->first_error = *why;
}

double figures_duration_s(const struct figures *f)
{
    return (double)(f->end_us - f->start_us) / 1e6;
}

static double rate_of(const struct figures *f, uint64_t n)
{
    return f->end_us > f->start_us ? (double)n / figures_duration_s(f) : 0.0;
}

double figures_output_rate(const struct figures *f)
{
    return rate_of(f, f->n_output);
}

double figures_fairness(struct figures *f)
{
    return samples_percentile(&f->rates, 0.0) / samples_percentile(&f->rates, 50.0);
}

static void set_real(json_t *into, const char *name, double value)
{
    (void)json_object_set_new(into, name, isfinite(value) ? json_real(value) : json_null());
}

static void set_whole(json_t *into, const char *name, uint64_t value)
{
    (void)json_object_set_new(into, name, json_integer((json_int_t)value));
}

static void set_percentiles(json_t *into, const char *name, struct samples *s)
{
    static const int percents[] = {50, 90, 99};
    char key[32];

    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        (void)snprintf(key, sizeof key, "%s_p%d", name, percents[i]);
        set_real(into, key, samples_percentile(s, percents[i]));
    }
}

void figures_json(struct figures *f, json_t *into)
{
    json_t *by_turn = json_array();

    set_whole(into, "completed", f->n_completed);
    set_whole(into, "failed", f->n_failed);
    set_real(into, "duration_s", figures_duration_s(f));
    set_real(into, "request_s", rate_of(f, f->n_completed));
    set_real(into, "input_tok_s", rate_of(f, f->n_input));
    set_real(into, "output_tok_s", figures_output_rate(f));
    set_whole(into, "prompt_tokens", f->n_input);
    set_whole(into, "cached_tokens", f->n_cached);
    set_whole(into, "completion_tokens", f->n_output);
    set_whole(into, "prompt_tokens_min", f->n_prompt_min);
    set_whole(into, "prompt_tokens_max", f->n_prompt_max);
    set_percentiles(into, "ttft_ms", &f->ttft_ms);
    set_percentiles(into, "itl_ms", &f->itl_ms);
    set_percentiles(into, "tpot_ms", &f->tpot_ms);
    set_percentiles(into, "e2el_ms", &f->e2el_ms);
    for (size_t i = 0; i < f->n_turns; i++) {
        double p50 = samples_percentile(&f->turn_ttft_ms[i], 50);

        (void)json_array_append_new(by_turn, isfinite(p50) ? json_real(p50) : json_null());
    }
    (void)json_object_set_new(into, "ttft_ms_p50_by_turn", by_turn);
    set_real(into, "fairness", figures_fairness(f));
    if (isfinite(f->newcomer_ttft_ms)) {
        json_t *newcomer = json_object();

        set_real(newcomer, "ttft_ms", f->newcomer_ttft_ms);
        set_percentiles(newcomer, "itl_ms", &f->newcomer_itl_ms);
        (void)json_object_set_new(into, "newcomer", newcomer);
    }
    set_real(into, "client_cpu_s", f->client_cpu_s);
    if (f->first_error.status != STATUS_OK)
        (void)json_object_set_new(into, "first_error", json_string(f->first_error.text));
}

static void print_percentiles(const char *name, struct samples *s)
{
    if (s->n > 0)
        printf("%-6s %10.1f %10.1f %10.1f\n", name, samples_percentile(s, 50),
               samples_percentile(s, 90), samples_percentile(s, 99));
}

void figures_print(struct figures *f)
{
    printf("%" PRIu64 " completed, %" PRIu64 " failed in %.2f s\n", f->n_completed, f->n_failed,
           figures_duration_s(f));
    printf("output %.1f tokens/s, input %.1f tokens/s, %.2f requests/s\n", figures_output_rate(f),
           rate_of(f, f->n_input), rate_of(f, f->n_completed));
    printf("prompts of %" PRIu32 " to %" PRIu32 " tokens; %" PRIu64 " of %" PRIu64
           " tokens were cached\n\n",
           f->n_prompt_min, f->n_prompt_max, f->n_cached, f->n_input);
    printf("%-6s %10s %10s %10s\n", "ms", "p50", "p90", "p99");
    print_percentiles("TTFT", &f->ttft_ms);
    print_percentiles("ITL", &f->itl_ms);
    print_percentiles("TPOT", &f->tpot_ms);
    print_percentiles("E2EL", &f->e2el_ms);
    if (isfinite(f->newcomer_ttft_ms))
        printf("\nthe newcomer's TTFT %.1f ms; meanwhile the others' ITL %.1f p50, %.1f p99\n",
               f->newcomer_ttft_ms, samples_percentile(&f->newcomer_itl_ms, 50),
               samples_percentile(&f->newcomer_itl_ms, 99));
    if (f->rates.n > 1)
        printf("\nslowest conversation: %.2f of the median's tokens/s\n", figures_fairness(f));
    printf("this client took %.2f s of CPU time, %.1f%% of one processor\n", f->client_cpu_s,
           100.0 * f->client_cpu_s / fmax(figures_duration_s(f), 1e-9));
}
