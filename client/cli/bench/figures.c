#include "client/cli/bench/figures.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/env.h"

void figures_init(struct figures *f, size_t n_turns)
{
    *f = (struct figures){.n_turns = n_turns, .newcomer_ttft_ms = NAN, .server_cpu_s = NAN};
    f->turn_ttft_us = xalloc(n_turns * sizeof(*f->turn_ttft_us));
}

void figures_deinit(struct figures *f)
{
    quantiles_deinit(&f->ttft_us);
    quantiles_deinit(&f->itl_us);
    quantiles_deinit(&f->tpot_us);
    quantiles_deinit(&f->e2el_us);
    quantiles_deinit(&f->lag_us);
    quantiles_deinit(&f->rates_milli);
    quantiles_deinit(&f->newcomer_itl_us);
    timeline_deinit(&f->timeline);
    for (size_t i = 0; i < f->n_turns; i++)
        quantiles_deinit(&f->turn_ttft_us[i]);
    free(f->turn_ttft_us);
}

/* The slice of the timeline in which a turn ended. */
static struct moment *moment_now(struct figures *f)
{
    return timeline_at(&f->timeline, f->end_us - f->start_us);
}

static bool keeps_to(double us, double bound_ms)
{
    return bound_ms <= 0 || us <= bound_ms * 1e3;
}

/* The times of a reply that has text. */
static void add_times(struct figures *f, const struct target_session *s, struct moment *slice)
{
    uint64_t from_us = s->due_us == 0 ? s->sent_us : s->due_us;
    uint64_t ttft_us = s->first_us - from_us;
    uint64_t e2el_us = s->last_us - (s->due_us == 0 ? s->begun_us : s->due_us);
    double tpot_us = 0;

    quantiles_add(&f->ttft_us, ttft_us);
    quantiles_add(&f->turn_ttft_us[s->turn - 1], ttft_us);
    quantiles_add(&f->e2el_us, e2el_us);
    quantiles_add(&slice->ttft_us, ttft_us);
    quantiles_add(&slice->e2el_us, e2el_us);
    if (s->completion_tokens > 1) {
        tpot_us = (double)(s->last_us - s->first_us) / (double)(s->completion_tokens - 1);
        quantiles_add(&f->tpot_us, (uint64_t)llround(tpot_us));
    }
    f->n_good += keeps_to((double)ttft_us, f->goal.ttft_ms) && keeps_to(tpot_us, f->goal.tpot_ms) &&
                 keeps_to((double)e2el_us, f->goal.e2el_ms);
}

void figures_add_turn(struct figures *f, const struct target_session *s)
{
    struct moment *slice = moment_now(f);

    f->n_completed++;
    f->n_input += s->prompt_tokens;
    f->n_cached += s->cached_tokens;
    f->n_output += s->completion_tokens;
    slice->n_completed++;
    slice->n_output += s->completion_tokens;
    if (s->turn == 1 && (f->n_prompt_max == 0 || s->prompt_tokens < f->n_prompt_min))
        f->n_prompt_min = s->prompt_tokens;
    if (s->turn == 1 && s->prompt_tokens > f->n_prompt_max)
        f->n_prompt_max = s->prompt_tokens;
    if (s->due_us != 0)
        quantiles_add(&f->lag_us, s->begun_us - s->due_us);
    if (s->first_us != 0)
        add_times(f, s, slice);
}

void figures_add_failed(struct figures *f, uint64_t n, const struct error *why)
{
    f->n_failed += n;
    f->n_by_status[why->status] += n;
    moment_now(f)->n_failed += n;
    if (f->first_error.status == STATUS_OK)
        f->first_error = *why;
}

void figures_merge(struct figures *into, const struct figures *from)
{
    timeline_merge(&into->timeline, into->end_us - into->start_us, &from->timeline);
    into->end_us += from->end_us - from->start_us;
    into->n_completed += from->n_completed;
    into->n_failed += from->n_failed;
    into->n_cancelled += from->n_cancelled;
    into->n_good += from->n_good;
    for (size_t i = 0; i < FIGURES_N_STATUSES; i++)
        into->n_by_status[i] += from->n_by_status[i];
    into->n_input += from->n_input;
    into->n_cached += from->n_cached;
    into->n_output += from->n_output;
    if (into->n_prompt_max == 0 ||
        (from->n_prompt_max > 0 && from->n_prompt_min < into->n_prompt_min))
        into->n_prompt_min = from->n_prompt_min;
    if (from->n_prompt_max > into->n_prompt_max)
        into->n_prompt_max = from->n_prompt_max;
    if (from->n_peak > into->n_peak)
        into->n_peak = from->n_peak;
    quantiles_merge(&into->ttft_us, &from->ttft_us);
    quantiles_merge(&into->itl_us, &from->itl_us);
    quantiles_merge(&into->tpot_us, &from->tpot_us);
    quantiles_merge(&into->e2el_us, &from->e2el_us);
    quantiles_merge(&into->lag_us, &from->lag_us);
    quantiles_merge(&into->rates_milli, &from->rates_milli);
    for (size_t i = 0; i < into->n_turns && i < from->n_turns; i++)
        quantiles_merge(&into->turn_ttft_us[i], &from->turn_ttft_us[i]);
    into->client_cpu_s += from->client_cpu_s;
    into->server_cpu_s += from->server_cpu_s;
    if (into->first_error.status == STATUS_OK)
        into->first_error = from->first_error;
}

double figures_duration_s(const struct figures *f)
{
    return (double)(f->end_us - f->start_us) / 1e6;
}

double figures_rate(const struct figures *f, uint64_t n)
{
    return f->end_us > f->start_us ? (double)n / figures_duration_s(f) : 0.0;
}

double figures_output_rate(const struct figures *f)
{
    return figures_rate(f, f->n_output);
}

double figures_fairness(const struct figures *f)
{
    return quantiles_percentile(&f->rates_milli, 0.0) / quantiles_percentile(&f->rates_milli, 50.0);
}
