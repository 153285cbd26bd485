/* Writes a page of HTML about one or more runs: a table, and charts over time, of the distribution
 * and over concurrency. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/output/plot.h"
#include "cli/output/svg.h"
#include "client/cli/bench/metric.h"
#include "client/cli/bench/report.h"

enum { N_PERCENTS = 101 };

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n<title>parley bench</title>\n"
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 "
    "1rem;color:#222;background:#fff}h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2rem "
    "0 .5rem}p.about{color:#666;margin:.2rem 0}code{background:#f3f3f3;padding:.1rem "
    ".3rem;border-radius:3px;overflow-wrap:anywhere}.wide{overflow-x:auto}table{border-collapse:"
    "collapse;font-variant-numeric:tabular-nums}th,td{padding:.3rem .5rem;text-align:right;"
    "border-bottom:1px solid #e3e3e3;white-space:nowrap}th{font-weight:600;color:#555}"
    "th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;"
    "min-width:9rem}svg{max-width:100%;height:auto}"
    ".bad{color:#b00020}@media(prefers-color-scheme:dark){:root{color-scheme:dark}body{color:#ddd;"
    "background:#16181c}p.about,th{color:#a4a8ae}code{background:#24272d}th,td{border-color:#"
    "383c42}"
    ".bad{color:#ff7b89}svg rect{fill:#16181c}svg text{fill:#ddd}svg line[stroke=\"#ddd\"]{stroke:"
    "#383c42}svg [stroke=\"#0072b2\"]{stroke:#4ea8de}svg [fill=\"#0072b2\"]{fill:#4ea8de}}"
    "</style></head><body>\n";

static void write_about(FILE *out, const char *command)
{
    struct utsname host = {0};
    char when[64] = "";
    time_t now = time(NULL);
    struct tm utc;

    (void)uname(&host); /* cannot fail with a valid pointer */
    if (gmtime_r(&now, &utc) != NULL)
        (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M UTC", &utc);
    (void)fprintf(out, "<h1>parley bench</h1>\n<p class=\"about\">%s · %s %s, %ld processors</p>\n",
                  when, host.sysname, host.machine, sysconf(_SC_NPROCESSORS_ONLN));
    (void)fputs("<p class=\"about\"><code>", out);
    svg_text(out, command);
    (void)fputs("</code></p>\n", out);
}

enum { MAX_COLUMNS = 6 };

/* Narrow enough for a window of 1,100 pixels. */
static const struct page_table {
    const char *title;
    bool has_counts; /* of turns */
    struct {
        const char *title, *metric; /* NULL ends the list */
        bool is_of_tokens;          /* left out if replies have no tokens */
    } columns[MAX_COLUMNS + 1];
} page_tables[] = {
    {"Throughput",
     true,
     {{"requests/s", "request_throughput", false},
      {"output tok/s", "output_throughput", true},
      {"goodput/s", "request_goodput", false},
      {"client CPU s", "client_cpu_s", false},
      {"server CPU s", "server_cpu_s", false}}},
    {"Latency in milliseconds",
     false,
     {{"TTFT p50", "p50_ttft_ms", false},
      {"TTFT p99", "p99_ttft_ms", false},
      {"ITL p50", "p50_itl_ms", false},
      {"ITL p99", "p99_itl_ms", false},
      {"E2EL p50", "p50_e2el_ms", false},
      {"E2EL p99", "p99_e2el_ms", false}}},
};

static void write_row(FILE *out, const struct page_table *t, const struct bench_run *r)
{
    const struct figures *f = &r->figures;

    (void)fputs("<tr><td>", out);
    svg_text(out, r->address);
    (void)fprintf(out, "</td><td>%u</td>", r->plan->concurrency);
    if (t->has_counts)
        (void)fprintf(out, "<td>%llu</td><td%s>%llu</td>", (unsigned long long)f->n_completed,
                      f->n_failed > 0 ? " class=\"bad\"" : "", (unsigned long long)f->n_failed);
    for (size_t i = 0; t->columns[i].title != NULL; i++) {
        double value;

        if (metric_read(&value, f, t->columns[i].metric) && isfinite(value) &&
            !(t->columns[i].is_of_tokens && f->n_output == 0))
            (void)fprintf(out, "<td>%.*f</td>", value >= 100 ? 0 : value >= 10 ? 1 : 2, value);
        else
            (void)fputs("<td>–</td>", out);
    }
    (void)fputs("</tr>\n", out);
}

static void write_table(FILE *out, const struct page_table *t, const struct bench_run *runs,
                        size_t n_runs)
{
    (void)fprintf(out,
                  "<h2>%s</h2>\n<div class=\"wide\"><table><tr><th>server</th>"
                  "<th>concurrency</th>%s",
                  t->title, t->has_counts ? "<th>completed</th><th>failed</th>" : "");
    for (size_t i = 0; t->columns[i].title != NULL; i++)
        (void)fprintf(out, "<th>%s</th>", t->columns[i].title);
    (void)fputs("</tr>\n", out);
    for (size_t i = 0; i < n_runs; i++)
        write_row(out, t, &runs[i]);
    (void)fputs("</table></div>\n", out);
}

/* Latency over time: the median and the 99th percentile of the turns that ended in each slice. */
static void write_over_time(FILE *out, const struct timeline *t)
{
    double x[TIMELINE_MAX], p50[TIMELINE_MAX], p99[TIMELINE_MAX], e2el[TIMELINE_MAX];
    const struct plot_series series[] = {{"TTFT p50", p50}, {"TTFT p99", p99}, {"E2EL p50", e2el}};
    const struct plot plot = {.title = "Latency over time",
                              .x_label = "seconds from the start",
                              .y_label = "ms",
                              .x = x,
                              .n_points = t->n,
                              .series = series,
                              .n_series = 3};

    for (size_t i = 0; i < t->n; i++) {
        x[i] = timeline_seconds(t, i);
        p50[i] = quantiles_percentile(&t->moments[i].ttft_us, 50) / 1e3;
        p99[i] = quantiles_percentile(&t->moments[i].ttft_us, 99) / 1e3;
        e2el[i] = quantiles_percentile(&t->moments[i].e2el_us, 50) / 1e3;
    }
    plot_draw(&plot, out);
}

/* The share of turns that were at most so slow. The slowest hundredth is cut off: it would press
 * the rest together. */
static void write_distribution(FILE *out, const struct figures *f)
{
    double x[N_PERCENTS], ttft[N_PERCENTS], e2el[N_PERCENTS];
    const struct plot_series series[] = {{"TTFT", ttft}, {"E2EL", e2el}};
    const struct plot plot = {.title = "Latency by percentile",
                              .x_label = "percent of turns that were at most so slow",
                              .y_label = "ms",
                              .x = x,
                              .n_points = N_PERCENTS - 1,
                              .series = series,
                              .n_series = 2};

    for (int i = 0; i < N_PERCENTS; i++) {
        x[i] = i;
        ttft[i] = quantiles_percentile(&f->ttft_us, i) / 1e3;
        e2el[i] = quantiles_percentile(&f->e2el_us, i) / 1e3;
    }
    plot_draw(&plot, out);
}

/* Throughput over concurrency, of the runs at one address. */
static void write_over_concurrency(FILE *out, const struct bench_run *runs, size_t n_runs)
{
    double *x = xalloc(3 * n_runs * sizeof(*x)), *rate = x + n_runs, *p99 = rate + n_runs;
    const struct plot_series throughput = {"requests/s", rate}, latency = {"TTFT p99", p99};
    struct plot plot = {.title = "Throughput over concurrency",
                        .x_label = "conversations at once",
                        .y_label = "requests/s",
                        .x = x,
                        .series = &throughput,
                        .n_series = 1,
                        .is_log2 = true};

    for (size_t i = 0; i < n_runs; i++) {
        const struct figures *f = &runs[i].figures;

        if (strcmp(runs[i].address, runs[0].address) != 0 ||
            (plot.n_points > 0 && runs[i].plan->concurrency <= x[plot.n_points - 1]))
            continue;
        x[plot.n_points] = runs[i].plan->concurrency;
        rate[plot.n_points] = figures_rate(f, f->n_completed);
        p99[plot.n_points++] = quantiles_percentile(&f->ttft_us, 99) / 1e3;
    }
    if (plot.n_points > 1) {
        plot_draw(&plot, out);
        plot.title = "Latency over concurrency";
        plot.y_label = "ms";
        plot.series = &latency;
        plot_draw(&plot, out);
    }
    free(x);
}

static void write_run(FILE *out, const struct bench_run *r)
{
    (void)fputs("<h2>", out);
    svg_text(out, r->address);
    (void)fprintf(out, ", concurrency %u</h2>\n", r->plan->concurrency);
    if (r->figures.first_error.status != STATUS_OK) {
        (void)fputs("<p class=\"bad\">The first failure: ", out);
        svg_text(out, r->figures.first_error.text);
        (void)fputs("</p>\n", out);
    }
    if (r->figures.ttft_us.n == 0)
        return; /* nothing to draw */
    write_over_time(out, &r->figures.timeline);
    write_distribution(out, &r->figures);
}

enum status bench_runs_html(const struct bench_run *runs, size_t n_runs, const char *command,
                            const char *verdict, const char *path, struct error *err)
{
    FILE *out = fopen(path, "we");
    bool is_bad;

    if (out == NULL)
        return error_set(err, STATUS_UNKNOWN, "cannot write '%s': %s", path, strerror(errno));
    (void)fputs(head, out);
    write_about(out, command);
    (void)fprintf(out, "<p>Seed %llu.</p>\n", n_runs == 0 ? 0 : (unsigned long long)runs[0].seed);
    if (*verdict != '\0') {
        (void)fputs("<pre>", out);
        svg_text(out, verdict);
        (void)fputs("</pre>\n", out);
    }
    for (size_t i = 0; i < sizeof(page_tables) / sizeof(page_tables[0]); i++)
        write_table(out, &page_tables[i], runs, n_runs);
    write_over_concurrency(out, runs, n_runs);
    for (size_t i = 0; i < n_runs; i++)
        write_run(out, &runs[i]);
    (void)fputs("</body></html>\n", out);
    is_bad = ferror(out) != 0;
    if (fclose(out) != 0 || is_bad)
        return error_set(err, STATUS_UNKNOWN, "cannot write '%s': %s", path, strerror(errno));
    return STATUS_OK;
}
