#include "client/cli/bench/metric.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/number.h"

static double metric_completed(const struct figures *f)
{
    return (double)f->n_completed;
}

static double metric_failed(const struct figures *f)
{
    return (double)f->n_failed;
}

static double metric_cancelled(const struct figures *f)
{
    return (double)f->n_cancelled;
}

static double metric_duration(const struct figures *f)
{
    return figures_duration_s(f);
}

static double metric_total_input(const struct figures *f)
{
    return (double)f->n_input;
}

static double metric_total_output(const struct figures *f)
{
    return (double)f->n_output;
}

static double metric_request_throughput(const struct figures *f)
{
    return figures_rate(f, f->n_completed);
}

static double metric_request_goodput(const struct figures *f)
{
    return figures_rate(f, f->n_good);
}

static double metric_output_throughput(const struct figures *f)
{
    return figures_output_rate(f);
}

static double metric_input_throughput(const struct figures *f)
{
    return figures_rate(f, f->n_input);
}

static double metric_total_token_throughput(const struct figures *f)
{
    return figures_rate(f, f->n_input + f->n_output);
}

static double metric_peak(const struct figures *f)
{
    return (double)f->n_peak;
}

static double metric_error_share(const struct figures *f)
{
    uint64_t n = f->n_completed + f->n_failed;

    return n == 0 ? NAN : (double)f->n_failed / (double)n;
}

static double metric_client_cpu(const struct figures *f)
{
    return f->client_cpu_s;
}

static double metric_server_cpu(const struct figures *f)
{
    return f->server_cpu_s;
}

const struct bench_metric metrics[] = {
    {"completed", metric_completed},
    {"failed", metric_failed},
    {"cancelled", metric_cancelled},
    {"duration", metric_duration},
    {"total_input_tokens", metric_total_input},
    {"total_output_tokens", metric_total_output},
    {"request_throughput", metric_request_throughput},
    {"request_goodput", metric_request_goodput},
    {"output_throughput", metric_output_throughput},
    {"input_throughput", metric_input_throughput},
    {"total_token_throughput", metric_total_token_throughput},
    {"max_concurrent_requests", metric_peak},
    {"error_share", metric_error_share},
    {"fairness", figures_fairness},
    {"client_cpu_s", metric_client_cpu},
    {"server_cpu_s", metric_server_cpu},
    {0},
};

const struct bench_latency latencies[] = {
    {"ttft_ms", offsetof(struct figures, ttft_us)}, {"tpot_ms", offsetof(struct figures, tpot_us)},
    {"itl_ms", offsetof(struct figures, itl_us)},   {"e2el_ms", offsetof(struct figures, e2el_us)},
    {"lag_ms", offsetof(struct figures, lag_us)},   {0},
};

const struct quantiles *latency_of(const struct bench_latency *l, const struct figures *f)
{
    return (const struct quantiles *)((const char *)f + l->offset);
}

/* "p99.9" and the like. False: it is none. */
static bool read_statistic(double *out, const struct quantiles *h, const char *text, size_t len)
{
    double percent;

    if (len == 4 && strncmp(text, "mean", len) == 0)
        *out = quantiles_mean(h);
    else if (len == 6 && strncmp(text, "median", len) == 0)
        *out = quantiles_percentile(h, 50);
    else if (len == 3 && strncmp(text, "std", len) == 0)
        *out = quantiles_deviation(h);
    else if (len == 3 && (strncmp(text, "min", len) == 0 || strncmp(text, "max", len) == 0))
        *out = quantiles_percentile(h, text[1] == 'i' ? 0 : 100);
    else if (len > 1 && text[0] == 'p' && isdigit((unsigned char)text[1]) &&
             number_take_real(&percent, text + 1) == len - 1 && percent <= 100)
        *out = quantiles_percentile(h, percent);
    else
        return false;
    return true;
}

bool metric_read(double *out, const struct figures *f, const char *name)
{
    const char *behind = strchr(name, '_');

    for (const struct bench_metric *m = metrics; m->name != NULL; m++)
        if (strcmp(m->name, name) == 0) {
            *out = m->of(f);
            return true;
        }
    for (const struct bench_latency *l = latencies; behind != NULL && l->name != NULL; l++)
        if (strcmp(l->name, behind + 1) == 0) {
            if (!read_statistic(out, latency_of(l, f), name, (size_t)(behind - name)))
                return false;
            *out /= 1e3;
            return true;
        }
    return false;
}
