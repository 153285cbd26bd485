/* A sweep: the loads of one command, one after another; at several concurrencies, at a second
 * server in turn, or at rising rates until a bound breaks. */
#ifndef CLIENT_CLI_BENCH_SWEEP_H
#define CLIENT_CLI_BENCH_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/options/options.h"
#include "client/cli/bench/load.h"
#include "client/cli/bench/report.h"
#include "client/cli/bench/require.h"

enum {
    SWEEP_MAX_LEVELS = 32,
    SWEEP_MAX_STEPS = 64,         /* loads in search of a knee */
    SWEEP_SHARED_PREFIX = 1 << 0, /* in set: --shared-prefix was given */
};

struct sweep {
    const char *address, *against, *prompt_file, *concurrency, *arrivals, *html;
    const char *input_tokens, *output_tokens, *trace_file, *shape;
    struct target_config config;
    struct load_plan plan; /* of each level, but for the concurrency and what depends on it */
    struct load_plan levels[SWEEP_MAX_LEVELS];
    size_t n_levels;
    uint64_t seed;
    uint32_t n_warmup, shared_prefix, n_rounds, max_windows;
    double shared;           /* share of the conversations with the shared prefix */
    double stable;           /* percent; 0: one window */
    const char *schema_file; /* of the replies; NULL: none */
    struct buf schema;       /* its text */
    double max_ttft_ms, max_itl_ms, max_e2el_ms, min_output_rate, min_fairness; /* 0: none */
    struct trace trace; /* of trace_file, or shape */
    struct option_texts goals, bounds;
    struct goodput_goal goal;
    struct requirement requirements[OPTION_TEXTS_MAX];
    bool is_json, is_csv;
    bool is_stopped; /* by a Ctrl-C */
    unsigned set;
    const char *knee_bound; /* NULL: no knee is sought */
    struct requirement knee;
    struct load_plan steps[SWEEP_MAX_STEPS]; /* the plans of the loads in search of it */
    struct bench_run *runs;                  /* [n_runs] */
    size_t n_runs;
    struct buf verdict; /* what the page says of the runs together */
};

/* Runs it and reports, as the options say. command: the command line, for the page. */
enum exit_code sweep_run(struct sweep *b, const char *command);

#endif
