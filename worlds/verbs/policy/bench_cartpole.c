/* parley bench cartpole: the table of the batch RPC tutorial (PyTorch's "Implementing Batch RPC
 * Processing Using Asynchronous Executions"): how long ten episodes of CartPole take for 1 … 10
 * environment workers that get every action from one agent, with and without batching. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/policy/policy.h"
#include "base/alloc.h"
#include "base/number.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "cli/output/plot.h"
#include "cli/output/table.h"
#include "worlds/verbs/policy/rollout.h"
#include "worlds/verbs/verbs.h"

enum { MAX_WORLDS = 64, MAX_MODES = 3, MAX_RPCS = 2, MAX_REPS = 99, LOCKSTEP_TIMEOUT_MS = 10000 };

struct cartpole_options {
    const char *world, *mode, *rpc, *loss, *plot;
    uint32_t n_episodes, n_steps, hidden, deep, n_reps;
    float gamma, learning_rate;
    uint64_t seed;
    bool is_json, is_csv;
};

static const struct option_row cartpole_rows[] = {
    {"world", "LIST", "numbers of processes, including the agent's: 2:11 or 2,5,11 (2:11)",
     OPTION_TEXT, offsetof(struct cartpole_options, world), 0},
    {"mode", "LIST", "any of batch, nobatch, auto (batch,nobatch,auto)", OPTION_TEXT,
     offsetof(struct cartpole_options, mode), 0},
    {"rpc", "LIST", "any of unary, stream (unary,stream)", OPTION_TEXT,
     offsetof(struct cartpole_options, rpc), 0},
    {"episodes", "N", "number of episodes (10)", OPTION_U32,
     offsetof(struct cartpole_options, n_episodes), 0},
    {"steps", "N", "steps of an episode (500)", OPTION_U32,
     offsetof(struct cartpole_options, n_steps), 0},
    {"gamma", "X", "discount factor (1)", OPTION_FLOAT_FROM_0,
     offsetof(struct cartpole_options, gamma), 0},
    {"seed", "N", "seed of the policy and the environments (543)", OPTION_U64,
     offsetof(struct cartpole_options, seed), 0},
    {"hidden", "N", "units of the policy's only hidden layer (128)", OPTION_U32,
     offsetof(struct cartpole_options, hidden), 0},
    {"deep", "N", "a larger policy instead: two hidden layers of N units", OPTION_U32,
     offsetof(struct cartpole_options, deep), 0},
    {"learning-rate", "X", "learning rate of Adam (0.01)", OPTION_FLOAT_FROM_0,
     offsetof(struct cartpole_options, learning_rate), 0},
    {"loss", "NAME",
     "fixed, or tutorial: the tutorial's loss, which is wrong for several observers (fixed)",
     OPTION_TEXT, offsetof(struct cartpole_options, loss), 0},
    {"reps", "N", "runs of each, interleaved; medians are printed (3)", OPTION_U32,
     offsetof(struct cartpole_options, n_reps), 0},
    {"json", NULL, "print one JSON object per line", OPTION_FLAG,
     offsetof(struct cartpole_options, is_json), 0},
    {"csv", NULL, "print comma-separated values", OPTION_FLAG,
     offsetof(struct cartpole_options, is_csv), 0},
    {"plot", "FILE", "write the tutorial's figure as SVG", OPTION_TEXT,
     offsetof(struct cartpole_options, plot), 0},
    {0},
};

static const char *const mode_names[] = {"batch", "nobatch", "auto", NULL};
static const char *const rpc_names[] = {"unary", "stream", NULL};
static const enum parley_act_mode act_modes[] = {PARLEY_ACT_LOCKSTEP, PARLEY_ACT_NONE,
                                                 PARLEY_ACT_AUTO};
enum { MODE_BATCH, MODE_NOBATCH, MODE_AUTO };

/* A row of the table, and the runs it summarises. */
struct bench_row {
    size_t world, mode, rpc;
    struct rollout *runs; /* [n_reps] */
};

struct cartpole_bench {
    struct cartpole_options options;
    size_t worlds[MAX_WORLDS], n_worlds;
    size_t modes[MAX_MODES], n_modes;
    size_t rpcs[MAX_RPCS], n_rpcs;
    struct bench_row *rows; /* [n_worlds][n_modes][n_rpcs] */
    size_t n_rows;
    char policy[64]; /* a file of this run */
};

/* Parses "a,b" into indices of names. False for an unknown name, or too many. */
static bool read_names(const char *text, const char *const *names, size_t *out, size_t max,
                       size_t *ret_n)
{
    size_t n = 0;

    while (*text != '\0') {
        size_t len = strcspn(text, ","), i = 0;

        while (names[i] != NULL && !(strlen(names[i]) == len && strncmp(names[i], text, len) == 0))
            i++;
        if (names[i] == NULL || n == max)
            return false;
        out[n++] = i;
        text += len + (text[len] == ',');
    }
    *ret_n = n;
    return n > 0;
}

/* "2:11" or "2,5,11". */
static bool read_worlds(struct cartpole_bench *c)
{
    const char *at = c->options.world;

    while (*at != '\0') {
        uint64_t from, to;
        size_t n = number_take(&from, at, SIZE_MAX, ROLLOUT_MAX_WORKERS + 1);

        if (n == 0)
            return false;
        to = from;
        at += n;
        if (*at == ':') {
            n = number_take(&to, ++at, SIZE_MAX, ROLLOUT_MAX_WORKERS + 1);
            if (n == 0)
                return false;
            at += n;
        }
        if (from < 2 || to < from || (*at != '\0' && *at != ',') ||
            c->n_worlds + (to - from) >= MAX_WORLDS)
            return false;
        for (uint64_t w = from; w <= to; w++)
            c->worlds[c->n_worlds++] = w;
        at += *at == ',';
    }
    return c->n_worlds > 0;
}

static enum exit_code read_options(struct cartpole_bench *c, const struct verb *verb, int argc,
                                   char **argv, bool *ret_run)
{
    struct cartpole_options *o = &c->options;
    const struct option_group groups[] = {{cartpole_rows, o, NULL}};
    enum exit_code code = EXIT_DONE;
    int first;

    *ret_run = false;
    if (!options_read(verb, groups, 1, argc, argv, 0, 0, &first, &code))
        return code;
    if (!read_worlds(c))
        return options_misuse(verb, "--world is '%s', it must be like 2:11 or 2,5,11, from 2 to %d",
                              o->world, ROLLOUT_MAX_WORKERS + 1);
    if (!read_names(o->mode, mode_names, c->modes, MAX_MODES, &c->n_modes))
        return options_misuse(verb, "--mode is '%s', it must be a list of batch, nobatch and auto",
                              o->mode);
    if (!read_names(o->rpc, rpc_names, c->rpcs, MAX_RPCS, &c->n_rpcs))
        return options_misuse(verb, "--rpc is '%s', it must be a list of unary and stream", o->rpc);
    if (strcmp(o->loss, "fixed") != 0 && strcmp(o->loss, "tutorial") != 0)
        return options_misuse(verb, "--loss is '%s', it must be fixed or tutorial", o->loss);
    if (o->n_episodes == 0 || o->n_steps == 0 || o->hidden == 0)
        return options_misuse(verb, "--episodes, --steps and --hidden must be above 0");
    if (o->n_reps == 0 || o->n_reps > MAX_REPS)
        return options_misuse(verb, "--reps is %u, it must be from 1 to %d", o->n_reps, MAX_REPS);
    *ret_run = true;
    return EXIT_DONE;
}

static enum status write_policy(struct cartpole_bench *c, struct error *err)
{
    struct policy_spec spec;
    int fd;

    policy_spec_cartpole(&spec);
    spec.n_hidden = c->options.deep > 0 ? c->options.deep : c->options.hidden;
    spec.n_layers = c->options.deep > 0 ? 2 : 1;
    (void)snprintf(c->policy, sizeof(c->policy), "/tmp/parley-cartpole-XXXXXX.gguf");
    fd = mkstemps(c->policy, (int)strlen(".gguf"));
    if (fd < 0)
        return error_set(err, STATUS_UNKNOWN, "cannot make a file in /tmp");
    (void)close(fd);
    return policy_file_create(c->policy, &spec, c->options.seed, err);
}

static enum status run_once(const struct cartpole_bench *c, struct bench_row *row, size_t rep,
                            struct error *err)
{
    const struct cartpole_options *o = &c->options;
    uint32_t n = (uint32_t)row->world - 1;
    struct rollout_config config = {
        .policy = c->policy,
        .environment = "cartpole",
        .mode = {.mode = act_modes[row->mode], .n = n, .timeout_ms = LOCKSTEP_TIMEOUT_MS},
        .train = {.n_observers = n,
                  .n_episodes = o->n_episodes,
                  .n_steps = o->n_steps,
                  .gamma = o->gamma,
                  .learning_rate = o->learning_rate,
                  .seed = o->seed,
                  .is_tutorial_loss = strcmp(o->loss, "tutorial") == 0},
        .is_stream = strcmp(rpc_names[row->rpc], "stream") == 0,
    };
    uint64_t n_steps = (uint64_t)o->n_episodes * o->n_steps;
    struct rollout *out = &row->runs[rep];
    enum status rc = rollout_run(out, &config, NULL, NULL, err);

    if (rc != STATUS_OK)
        return error_prefix(err, "%zu processes, %s, %s", row->world, mode_names[row->mode],
                            rpc_names[row->rpc]);
    if (out->n_actions != n_steps * n || (row->mode == MODE_BATCH && out->n_forwards != n_steps) ||
        (row->mode == MODE_NOBATCH && out->n_forwards != n_steps * n))
        return error_set(err, STATUS_INTERNAL,
                         "%zu processes, %s, %s: %llu actions in %llu batches were computed, but "
                         "%llu were asked for",
                         row->world, mode_names[row->mode], rpc_names[row->rpc],
                         (unsigned long long)out->n_actions, (unsigned long long)out->n_forwards,
                         (unsigned long long)(n_steps * n));
    return STATUS_OK;
}

/* --- figures --- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of a figure over the runs of a row. */
static double median(const struct cartpole_bench *c, const struct bench_row *row,
                     double (*of)(const struct rollout *))
{
    double values[MAX_REPS];
    size_t n = c->options.n_reps;

    for (size_t i = 0; i < n; i++)
        values[i] = of(&row->runs[i]);
    qsort(values, n, sizeof(values[0]), by_size);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double of_wall(const struct rollout *r)
{
    return r->wall_s;
}
static double of_rollout(const struct rollout *r)
{
    return r->rollout_s;
}
static double of_train(const struct rollout *r)
{
    return r->train_s;
}
static double of_rate(const struct rollout *r)
{
    return (double)r->n_actions / r->rollout_s;
}
static double of_p50(const struct rollout *r)
{
    return latency_percentile(&r->latency, 50);
}
static double of_p99(const struct rollout *r)
{
    return latency_percentile(&r->latency, 99);
}
static double of_batch(const struct rollout *r)
{
    return (double)r->n_actions / (double)r->n_forwards;
}
static double of_agent(const struct rollout *r)
{
    return r->agent_cpu_s;
}
static double of_workers(const struct rollout *r)
{
    return r->workers_cpu_s;
}
static double of_reward(const struct rollout *r)
{
    return r->running_reward;
}

static const struct bench_figure {
    const char *name;  /* key in JSON and CSV */
    const char *title; /* heading in the table; NULL: not shown there */
    double (*of)(const struct rollout *);
    int n_decimals;
} figures[] = {
    {"wall_s", "WALL s", of_wall, 3},         {"rollout_s", "ROLLOUT s", of_rollout, 3},
    {"train_s", "TRAIN s", of_train, 3},      {"rpc_s", NULL, of_rate, 0},
    {"p50_us", "P50 us", of_p50, 0},          {"p99_us", "P99 us", of_p99, 0},
    {"mean_batch", "BATCH", of_batch, 2},     {"cpu_s_agent", "AGENT CPU s", of_agent, 2},
    {"cpu_s_observers", NULL, of_workers, 2}, {"running_reward", "REWARD", of_reward, 1},
};
enum { N_FIGURES = sizeof(figures) / sizeof(figures[0]) };

static const struct bench_row *cartpole_bench_row_of(const struct cartpole_bench *c, size_t world,
                                                     size_t mode, size_t rpc)
{
    for (size_t i = 0; i < c->n_rows; i++)
        if (c->rows[i].world == world && c->rows[i].mode == mode && c->rows[i].rpc == rpc)
            return &c->rows[i];
    return NULL;
}

/* The tutorial's own line: processes, seconds with batching, seconds without. */
static void print_world(const struct cartpole_bench *c, size_t world)
{
    const struct bench_row *batch = cartpole_bench_row_of(c, world, MODE_BATCH, c->rpcs[0]);
    const struct bench_row *nobatch = cartpole_bench_row_of(c, world, MODE_NOBATCH, c->rpcs[0]);

    if (c->options.is_json || c->options.is_csv)
        return;
    console_clear();
    printf("%zu", world);
    if (batch != NULL)
        printf(", %.3f", median(c, batch, of_wall));
    if (nobatch != NULL)
        printf(", %.3f", median(c, nobatch, of_wall));
    printf("\n");
    (void)out_flush(); /* out_end reports a failure */
}

static void cartpole_bench_print_json(const struct cartpole_bench *c, const struct bench_row *row)
{
    json_t *o = json_pack("{s:I,s:s,s:s,s:I}", "world", (json_int_t)row->world, "mode",
                          mode_names[row->mode], "rpc", rpc_names[row->rpc], "deep",
                          (json_int_t)c->options.deep);

    for (size_t i = 0; i < N_FIGURES; i++)
        (void)json_object_set_new(o, figures[i].name, json_real(median(c, row, figures[i].of)));
    (void)out_json(o); /* out_end reports a failure */
}

static void print_csv(const struct cartpole_bench *c)
{
    printf("world,mode,rpc,deep");
    for (size_t i = 0; i < N_FIGURES; i++)
        printf(",%s", figures[i].name);
    for (size_t r = 0; r < c->n_rows; r++) {
        const struct bench_row *row = &c->rows[r];

        printf("\n%zu,%s,%s,%u", row->world, mode_names[row->mode], rpc_names[row->rpc],
               c->options.deep);
        for (size_t i = 0; i < N_FIGURES; i++)
            printf(",%.*f", figures[i].n_decimals, median(c, row, figures[i].of));
    }
    printf("\n");
}

static void print_table(const struct cartpole_bench *c)
{
    const char *header[N_FIGURES + 3] = {"WORLD", "MODE"};
    struct text_table t;
    size_t n = 2;

    for (size_t i = 0; i < N_FIGURES; i++)
        if (figures[i].title != NULL)
            header[n++] = figures[i].title;
    header[n] = "";
    table_init(&t, header);
    for (size_t r = 0; r < c->n_rows; r++) {
        const struct bench_row *row = &c->rows[r];

        table_cell(&t, "%zu", row->world);
        table_cell(&t, "%s %s", mode_names[row->mode], rpc_names[row->rpc]);
        for (size_t i = 0; i < N_FIGURES; i++)
            if (figures[i].title != NULL)
                table_cell(&t, "%.*f", figures[i].n_decimals, median(c, row, figures[i].of));
    }
    printf("\n");
    table_print(&t);
    table_deinit(&t);
}

static enum status cartpole_bench_draw(const struct cartpole_bench *c, struct error *err)
{
    size_t n_series = c->n_modes * c->n_rpcs;
    double x[MAX_WORLDS], y[MAX_MODES * MAX_RPCS][MAX_WORLDS];
    char names[MAX_MODES * MAX_RPCS][32];
    struct plot_series series[MAX_MODES * MAX_RPCS];
    const struct plot plot = {
        .title = "CartPole: batch against no batch",
        .x_label = "observers",
        .y_label = "seconds",
        .x = x,
        .n_points = c->n_worlds,
        .series = series,
        .n_series = n_series,
    };

    for (size_t s = 0; s < n_series; s++) {
        size_t mode = c->modes[s / c->n_rpcs], rpc = c->rpcs[s % c->n_rpcs];

        for (size_t w = 0; w < c->n_worlds; w++) {
            x[w] = (double)c->worlds[w] - 1;
            y[s][w] = median(c, cartpole_bench_row_of(c, c->worlds[w], mode, rpc), of_wall);
        }
        (void)snprintf(names[s], sizeof(names[s]), "%s, %s", mode_names[mode], rpc_names[rpc]);
        series[s] = (struct plot_series){.name = names[s], .y = y[s]};
    }
    return plot_write(&plot, c->options.plot, err);
}

/* --- the run --- */

static void make_rows(struct cartpole_bench *c)
{
    c->rows = xalloc(c->n_worlds * c->n_modes * c->n_rpcs * sizeof(*c->rows));
    for (size_t w = 0; w < c->n_worlds; w++)
        for (size_t m = 0; m < c->n_modes; m++)
            for (size_t r = 0; r < c->n_rpcs; r++)
                c->rows[c->n_rows++] = (struct bench_row){
                    .world = c->worlds[w],
                    .mode = c->modes[m],
                    .rpc = c->rpcs[r],
                    .runs = xalloc(c->options.n_reps * sizeof(struct rollout)),
                };
}

/* Interleaves the rows of one world, so that a busy phase of the machine falls on all of them. */
static enum status cartpole_bench_run_world(struct cartpole_bench *c, size_t w, struct error *err)
{
    size_t n = c->n_modes * c->n_rpcs;
    enum status rc = STATUS_OK;

    for (size_t rep = 0; rep < c->options.n_reps; rep++)
        for (size_t i = 0; i < n && rc == STATUS_OK; i++) {
            struct bench_row *row = &c->rows[w * n + i];

            console_progress("%zu processes, %s, %s, run %zu of %u …", row->world,
                             mode_names[row->mode], rpc_names[row->rpc], rep + 1,
                             c->options.n_reps);
            rc = run_once(c, row, rep, err);
        }
    return rc;
}

enum exit_code bench_cartpole_run(const struct verb *verb, int argc, char **argv)
{
    struct cartpole_bench c = {.options = {.world = "2:11",
                                           .mode = "batch,nobatch,auto",
                                           .rpc = "unary,stream",
                                           .loss = "fixed",
                                           .n_episodes = 10,
                                           .n_steps = 500,
                                           .hidden = 128,
                                           .n_reps = 3,
                                           .gamma = 1,
                                           .learning_rate = 0.01F,
                                           .seed = 543}};
    struct error err;
    bool is_to_run;
    enum exit_code code = read_options(&c, verb, argc, argv, &is_to_run);
    enum status rc;

    if (!is_to_run)
        return code;
    if (!out_file_can(c.options.plot))
        return EXIT_FAILED;
    make_rows(&c);
    rc = write_policy(&c, &err);
    for (size_t w = 0; w < c.n_worlds && rc == STATUS_OK; w++) {
        rc = cartpole_bench_run_world(&c, w, &err);
        if (rc == STATUS_OK)
            print_world(&c, c.worlds[w]);
    }
    console_clear();
    for (size_t i = 0; i < c.n_rows && rc == STATUS_OK && c.options.is_json; i++)
        cartpole_bench_print_json(&c, &c.rows[i]);
    if (rc == STATUS_OK && c.options.is_csv)
        print_csv(&c);
    if (rc == STATUS_OK && !c.options.is_json && !c.options.is_csv)
        print_table(&c);
    if (rc == STATUS_OK && c.options.plot != NULL)
        rc = cartpole_bench_draw(&c, &err);
    if (rc != STATUS_OK)
        console_error("%s", err.text);
    (void)unlink(c.policy); /* the file is missing if it could not be written */
    for (size_t i = 0; i < c.n_rows; i++)
        free(c.rows[i].runs);
    free(c.rows);
    return rc == STATUS_OK ? EXIT_DONE : EXIT_FAILED;
}
