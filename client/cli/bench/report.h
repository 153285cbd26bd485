/* The report of one or several loads: as text, JSON, CSV or a page of HTML. */
#ifndef CLIENT_CLI_BENCH_REPORT_H
#define CLIENT_CLI_BENCH_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "client/cli/bench/figures.h"
#include "client/cli/bench/load.h"

enum { STABLE_WINDOWS = 3 }; /* so many in a row must agree, and are reported */

/* One load and its figures. */
struct bench_run {
    const char *address;
    const struct load_plan *plan;
    uint64_t seed;
    bool is_late; /* the client could not keep the schedule */
    struct figures figures;
    uint32_t n_windows; /* loads until the figures were stable; 0: it was not asked for */
    bool is_stable;
};

/* Conversations that were served a second; NaN in a closed loop, which asks for no rate. */
double bench_run_achieved_rate(const struct bench_run *r);
/* The share of the prompts' tokens that the server had cached; NaN where it does not say. */
double bench_run_cached_share(const struct bench_run *r);

/* One object, with the names of `vllm bench serve` among others. */
json_t *bench_run_json(const struct bench_run *r);
void bench_run_print(const struct bench_run *r);
/* A line of names (perf_analyzer's first, in its units, then those of bench_run_json), and a line a
 * run, on stdout. */
void bench_runs_csv(const struct bench_run *runs, size_t n_runs);
/* One page without references to others: what was run, a table of the runs, and charts of latency
 * over time, of its distribution, and of throughput over concurrency. command: the command line;
 * verdict: lines on what the runs together say, "" where there are none. */
enum status bench_runs_html(const struct bench_run *runs, size_t n_runs, const char *command,
                            const char *verdict, const char *path, struct error *err) MUST_CHECK;

#endif
