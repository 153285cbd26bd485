/* parley bench ADDRESS: puts a load on a server and reports the measurements. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

#include "base/number.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "cli/output/out.h"
#include "client/cli/bench/shape.h"
#include "client/cli/bench/sweep.h"
#include "client/cli/verbs.h"

enum {
    MAX_CONCURRENCY = 100000,
    MAX_ROUNDS = 1000,
    KNEE_STEP_S = 10, /* how long each rate is measured in the search for a knee */
    REQUESTS = 1 << 1,
    RATE_TO = 1 << 2,
    ROUNDS = 1 << 3,
    DURATION = 1 << 4,
    TRACE = 1 << 5,
    TURNS = 1 << 6,
    SHARED = 1 << 7,
    CONSTRAINED = 1 << 8,
    STABLE = 1 << 9,
    MAX_WINDOWS = 1 << 10,
    SEED = 1 << 11,
    MAX_SCHEMA_BYTES = 1 << 20,
};

#define AT(member) offsetof(struct sweep, member)

static const struct option_row bench_rows[] = {
    {"model", "NAME", "the model to use (the server's default)", OPTION_TEXT, AT(config.model), 0},
    {"concurrency", "N[,N…]",
     "conversations at the same time; one load for each number (1; with --rate: unlimited)",
     OPTION_TEXT, AT(concurrency), 0},
    {"requests", "N", "number of conversations (the concurrency)", OPTION_U32,
     AT(plan.n_conversations), REQUESTS},
    {"turns", "N", "turns of each conversation (1)", OPTION_U32, AT(plan.n_turns), TURNS},
    {"input-tokens", "N|DRAW",
     "tokens of a prompt, as the server counts: N, LEAST:MOST, normal:MEAN,DEV, "
     "lognormal:MEDIAN,DEV or exponential:MEAN (64)",
     OPTION_TEXT, AT(input_tokens), 0},
    {"output-tokens", "N|DRAW", "the most tokens of a reply, in the same forms (64)", OPTION_TEXT,
     AT(output_tokens), 0},
    {"trace", "FILE", "replay the conversations of this file: lengths, texts, times", OPTION_TEXT,
     AT(trace_file), TRACE},
    {"shape", "agent[:X]",
     "conversations of a coding agent: 43 turns, 142,000 tokens, or X times as many", OPTION_TEXT,
     AT(shape), 0},
    {"ignore-eos", NULL, "do not end replies at the model's end token", OPTION_FLAG,
     AT(config.ignore_eos), 0},
    {"temperature", "T", "sampling temperature; 0: always the likeliest token (0)",
     OPTION_FLOAT_FROM_0, AT(config.temperature), 0},
    {"shared-prefix", "N", "number of tokens that all conversations begin with (none)", OPTION_U32,
     AT(shared_prefix), SWEEP_SHARED_PREFIX},
    {"shared", "SHARE", "share of the conversations that begin with the shared prefix (1)",
     OPTION_DOUBLE, AT(shared), SHARED},
    {"prompt-file", "PATH", "prompts, one per line, instead of random words", OPTION_TEXT,
     AT(prompt_file), 0},
    {"chat", NULL, "http://: use chat completions instead of completions", OPTION_FLAG,
     AT(config.is_chat), 0},
    {"responses", NULL, "http://: use responses instead of completions", OPTION_FLAG,
     AT(config.is_responses), 0},
    {"multiplexed", NULL, "parley://: send all turns on one stream instead of one call each",
     OPTION_FLAG, AT(config.is_multiplexed), 0},
    {"data", "JSON|@FILE", "grpc://: the request that each turn sends ({})", OPTION_TEXT,
     AT(config.data), 0},
    {"rate", "X", "open loop: conversations begun per second, as a Poisson process (closed loop)",
     OPTION_DOUBLE_FROM_0, AT(plan.arrivals.rate), 0},
    {"request-rate", "X", "the same as --rate", OPTION_DOUBLE_FROM_0, AT(plan.arrivals.rate), 0},
    {"rate-to", "X", "change the rate linearly to X by the end of --duration", OPTION_DOUBLE_FROM_0,
     AT(plan.arrivals.last_rate), RATE_TO},
    {"arrivals", "KIND", "poisson, or constant: equal intervals (poisson)", OPTION_TEXT,
     AT(arrivals), 0},
    {"burst", "N", "conversations that begin together; the rate stays the same (1)", OPTION_U32,
     AT(plan.arrivals.burst), 0},
    {"think", "SECONDS", "pause between a reply and the next turn (0)", OPTION_DOUBLE_FROM_0,
     AT(plan.think_s), 0},
    {"forks", "SHARE",
     "parley://: share of later turns that continue on a fork of their conversation (0)",
     OPTION_DOUBLE, AT(plan.forks), 0},
    {"cancels", "SHARE", "share of turns that are cancelled at their first chunk (0)",
     OPTION_DOUBLE, AT(plan.cancels), 0},
    {"schema", "FILE", "a JSON schema that replies must match", OPTION_TEXT, AT(schema_file), 0},
    {"constrained", "SHARE", "share of turns whose replies must match the schema (1)",
     OPTION_DOUBLE, AT(plan.constrained), CONSTRAINED},
    {"timeout", "SECONDS", "a turn that takes longer fails with DEADLINE_EXCEEDED (none)",
     OPTION_DOUBLE_FROM_0, AT(plan.timeout_s), 0},
    {"stable", "PERCENT",
     "repeat each load until three in a row agree within PERCENT; report those three",
     OPTION_DOUBLE, AT(stable), STABLE},
    {"max-windows", "N", "with --stable: the most repetitions of a load (10)", OPTION_U32,
     AT(max_windows), MAX_WINDOWS},
    {"duration", "SECONDS", "instead of --requests: begin no conversation after this time",
     OPTION_DOUBLE_FROM_0, AT(plan.duration_s), DURATION},
    {"background", "N",
     "N more conversations that generate during the whole load and are not measured", OPTION_U32,
     AT(plan.n_background), 0},
    {"newcomer-tokens", "N",
     "send one more prompt of N tokens when all conversations are generating", OPTION_U32,
     AT(plan.newcomer_tokens), 0},
    {"warmup", "N", "conversations before the measurement (0)", OPTION_U32, AT(n_warmup), 0},
    {"seed", "N", "seed of the words and of the arrivals (a fresh one, which is printed)",
     OPTION_U64, AT(seed), SEED},
    {"max-ttft-p99-ms", "X", "exit with 3 if the 99th percentile of TTFT is above X", OPTION_DOUBLE,
     AT(max_ttft_ms), 0},
    {"max-itl-p99-ms", "X", "the same for ITL", OPTION_DOUBLE, AT(max_itl_ms), 0},
    {"max-e2el-p99-ms", "X", "the same for E2EL", OPTION_DOUBLE, AT(max_e2el_ms), 0},
    {"min-output-tok-s", "X", "exit with 3 if output tokens per second are below X", OPTION_DOUBLE,
     AT(min_output_rate), 0},
    {"min-fairness", "X",
     "exit with 3 if the slowest conversation's rate, divided by the median, is below X",
     OPTION_DOUBLE, AT(min_fairness), 0},
    {"wait", "SECONDS", "how long to wait for the server to be ready (5)", OPTION_DOUBLE_FROM_0,
     AT(config.connection.wait_s), 0},
    {"key-file", "FILE", "a file whose first line is the key to call with (PARLEY_API_KEY)",
     OPTION_TEXT, AT(config.connection.key_file), 0},
    {"tls", NULL, "parley://: use TLS; implied by --ca and --cert", OPTION_FLAG,
     AT(config.connection.is_tls), 0},
    {"ca", "FILE",
     "PEM file with the authorities that sign the server's certificate (the system's)", OPTION_TEXT,
     AT(config.connection.ca), 0},
    {"cert", "FILE", "PEM file with the client certificate, if the server requires one",
     OPTION_TEXT, AT(config.connection.cert), 0},
    {"tls-key", "FILE", "PEM file with the client certificate's private key", OPTION_TEXT,
     AT(config.connection.tls_key), 0},
    {"goodput", "GOAL",
     "a good turn's limit: ttft:MS, tpot:MS or e2el:MS; may be given several times", OPTION_TEXTS,
     AT(goals), 0},
    {"require", "BOUND",
     "a bound such as 'p99_ttft_ms<200': exit with 3 if it does not hold; may be given several "
     "times",
     OPTION_TEXTS, AT(bounds), 0},
    {"find-knee", "BOUND", "find the highest rate that keeps the bound", OPTION_TEXT,
     AT(knee_bound), 0},
    {"against", "ADDRESS", "a second server: loads alternate, and the ratio is printed",
     OPTION_TEXT, AT(against), 0},
    {"rounds", "N", "with --against: loads of each server (3)", OPTION_U32, AT(n_rounds), ROUNDS},
    {"json", NULL, "print one JSON object per load", OPTION_FLAG, AT(is_json), 0},
    {"csv", NULL, "print comma-separated values, one line per load", OPTION_FLAG, AT(is_csv), 0},
    {"html", "FILE", "write a page with tables and charts", OPTION_TEXT, AT(html), 0},
    {0},
};

static enum exit_code read_levels(struct sweep *b, const struct verb *verb)
{
    const char *at = b->concurrency == NULL ? "1" : b->concurrency;

    do {
        uint64_t n;
        const size_t len = number_take(&n, at, SIZE_MAX, UINT64_MAX);

        if (len == 0 || (at[len] != '\0' && at[len] != ','))
            return options_misuse(verb,
                                  "--concurrency is '%s', it must be whole numbers such as 1,8,64",
                                  b->concurrency);
        if (n == 0 || n > MAX_CONCURRENCY)
            return options_misuse(verb, "--concurrency must be from 1 to %d conversations at once",
                                  (int)MAX_CONCURRENCY);
        if (b->n_levels == SWEEP_MAX_LEVELS)
            return options_misuse(verb, "--concurrency may have at most %d numbers",
                                  (int)SWEEP_MAX_LEVELS);
        b->levels[b->n_levels++] = (struct load_plan){.concurrency = (uint32_t)n};
        at = at[len] == ',' ? at + len + 1 : NULL;
    } while (at != NULL);
    return EXIT_DONE;
}

/* A level's plan: what all levels have, its concurrency, and the defaults that depend on it. */
static void settle_level(const struct sweep *b, struct load_plan *level)
{
    uint32_t concurrency = level->concurrency;

    *level = b->plan;
    level->concurrency = concurrency;
    if ((b->set & REQUESTS) == 0)
        level->n_conversations = level->duration_s > 0 ? UINT32_MAX >> 3 : concurrency;
    if (arrivals_are_given(&level->arrivals) && b->concurrency == NULL)
        level->concurrency =
            level->n_conversations < MAX_CONCURRENCY ? level->n_conversations : MAX_CONCURRENCY;
}

static enum exit_code settle_arrivals(struct sweep *b, const struct verb *verb)
{
    struct arrivals_plan *a = &b->plan.arrivals;

    a->is_constant = b->arrivals != NULL && strcmp(b->arrivals, "constant") == 0;
    if (b->arrivals != NULL && !a->is_constant && strcmp(b->arrivals, "poisson") != 0)
        return options_misuse(verb, "--arrivals is '%s', it must be poisson or constant",
                              b->arrivals);
    if ((b->set & RATE_TO) != 0 && (a->rate <= 0 || a->last_rate <= 0 || b->plan.duration_s <= 0))
        return options_misuse(verb, "--rate-to needs --rate and --duration, all above 0");
    if (a->burst == 0)
        return options_misuse(verb, "--burst must be at least 1");
    a->ramp_s = (b->set & RATE_TO) != 0 ? b->plan.duration_s : 0;
    return EXIT_DONE;
}

/* "ttft:200" */
static bool read_goal(struct goodput_goal *out, const char *text)
{
    const struct {
        const char *name;
        double *ms;
    } goals[] = {{"ttft:", &out->ttft_ms}, {"tpot:", &out->tpot_ms}, {"e2el:", &out->e2el_ms}};

    for (size_t i = 0; i < sizeof(goals) / sizeof(goals[0]); i++)
        if (strncmp(text, goals[i].name, strlen(goals[i].name)) == 0)
            return number_read_real(goals[i].ms, text + strlen(goals[i].name)) && *goals[i].ms > 0;
    return false;
}

static enum exit_code settle_bounds(struct sweep *b, const struct verb *verb)
{
    struct error err;

    for (size_t i = 0; i < b->goals.n; i++)
        if (!read_goal(&b->goal, b->goals.texts[i]))
            return options_misuse(verb, "--goodput is '%s', it must be ttft:MS, tpot:MS or e2el:MS",
                                  b->goals.texts[i]);
    for (size_t i = 0; i < b->bounds.n; i++)
        if (requirement_parse(&b->requirements[i], b->bounds.texts[i], &err) != STATUS_OK)
            return options_misuse(verb, "--require: %s", err.text);
    return EXIT_DONE;
}

static enum exit_code settle_lengths(struct sweep *b, const struct verb *verb)
{
    struct error err;

    if (lengths_parse(&b->plan.input_tokens, b->input_tokens, &err) != STATUS_OK ||
        lengths_parse(&b->plan.output_tokens, b->output_tokens, &err) != STATUS_OK)
        return options_misuse(verb, "%s", err.text);
    return EXIT_DONE;
}

/* Takes the shape as a trace of one conversation, which all repeat. */
static enum exit_code settle_shape(struct sweep *b, const struct verb *verb)
{
    struct error err;

    if (b->shape == NULL)
        return EXIT_DONE;
    if (b->trace_file != NULL || b->prompt_file != NULL ||
        (b->set & (SWEEP_SHARED_PREFIX | TURNS)) != 0)
        return options_misuse(verb, "--shape has the lengths itself: it excludes --trace, "
                                    "--prompt-file, --shared-prefix and --turns");
    if (shape_make(&b->trace, b->shape, &err) != STATUS_OK)
        return options_misuse(verb, "--shape: %s", err.text);
    b->plan.trace = &b->trace;
    b->plan.n_turns = b->trace.max_turns;
    return EXIT_DONE;
}

/* Takes the trace, its times too unless a rate is given. */
static enum exit_code settle_trace(struct sweep *b, const struct verb *verb)
{
    struct load_plan *plan = &b->plan;
    struct error err;

    if (b->trace_file == NULL)
        return EXIT_DONE;
    if (b->prompt_file != NULL || (b->set & (SWEEP_SHARED_PREFIX | TURNS)) != 0)
        return options_misuse(verb, "--trace has the prompts itself: it excludes --prompt-file, "
                                    "--shared-prefix and --turns");
    if (trace_read(&b->trace, b->trace_file, &err) != STATUS_OK)
        return options_misuse(verb, "--trace: %s", err.text);
    plan->trace = &b->trace;
    plan->n_turns = b->trace.max_turns;
    if ((b->set & REQUESTS) == 0 && plan->duration_s <= 0) {
        b->set |= REQUESTS;
        plan->n_conversations = b->trace.n;
    }
    if (plan->arrivals.rate <= 0 && b->trace.at_s != NULL) {
        plan->arrivals.times_s = b->trace.at_s;
        plan->arrivals.n_times = b->trace.n;
    }
    return EXIT_DONE;
}

/* The search for a knee has defaults of its own: an open loop, of a while at each rate. */
static enum exit_code settle_knee(struct sweep *b, const struct verb *verb)
{
    struct error err;

    if (b->knee_bound == NULL)
        return EXIT_DONE;
    if (requirement_parse(&b->knee, b->knee_bound, &err) != STATUS_OK)
        return options_misuse(verb, "--find-knee: %s", err.text);
    if (b->against != NULL || b->concurrency != NULL || (b->set & (REQUESTS | RATE_TO)) != 0)
        return options_misuse(verb, "--find-knee sets the rate itself: it excludes --against, "
                                    "--concurrency, --requests and --rate-to");
    if (b->plan.arrivals.rate <= 0)
        b->plan.arrivals.rate = 1;
    if ((b->set & DURATION) == 0)
        b->plan.duration_s = KNEE_STEP_S;
    return EXIT_DONE;
}

static bool is_share(double x)
{
    return x >= 0 && x <= 1;
}

/* Whether both servers' kinds can do it. */
static bool can_all(const struct sweep *b, bool (*can)(const struct target_type *type))
{
    const char *rest;

    return can(target_type_of(b->address, &rest)) &&
           (b->against == NULL || can(target_type_of(b->against, &rest)));
}

static bool can_fork(const struct target_type *type)
{
    return type->can_fork;
}

static bool can_constrain(const struct target_type *type)
{
    return type->can_constrain;
}

static bool can_multiplex(const struct target_type *type)
{
    return type == &parley_target;
}

/* The schema's text, checked to be JSON: as it is, since the order of its members matters. */
static enum status read_reply_schema(struct sweep *b, struct error *err)
{
    FILE *file = fopen(b->schema_file, "re");
    enum status rc = STATUS_OK;
    json_error_t why;
    char part[4096];
    json_t *json;
    size_t n;

    if (file == NULL)
        return error_set(err, STATUS_NOT_FOUND, "cannot read %s: %s", b->schema_file,
                         strerror(errno));
    while (rc == STATUS_OK && (n = fread(part, 1, sizeof(part), file)) > 0)
        rc = buf_append(&b->schema, part, n);
    if (rc == STATUS_OK && ferror(file) != 0)
        rc = error_set(err, STATUS_UNKNOWN, "cannot read %s: %s", b->schema_file, strerror(errno));
    else if (rc != STATUS_OK)
        (void)error_set(err, rc, "%s is longer than %d bytes", b->schema_file,
                        (int)MAX_SCHEMA_BYTES);
    (void)fclose(file); /* nothing was written */
    if (rc != STATUS_OK)
        return rc;
    json = b->schema.len == 0 ? NULL : json_loads(b->schema.data, JSON_DECODE_ANY, &why);
    if (json == NULL)
        return error_set(err, STATUS_INVALID, "%s is not JSON", b->schema_file);
    json_decref(json);
    return STATUS_OK;
}

static enum exit_code settle_shares(struct sweep *b, const struct verb *verb)
{
    struct load_plan *plan = &b->plan;
    struct error err;

    if (!is_share(plan->forks) || !is_share(plan->cancels) || !is_share(plan->constrained) ||
        !is_share(b->shared))
        return options_misuse(
            verb,
            "--forks, --cancels, --constrained and the share of --shared must be from 0 to 1");
    if (plan->forks > 0 && !can_all(b, can_fork))
        return options_misuse(verb, "--forks works only with parley://");
    if ((b->set & SHARED) != 0 && (b->set & SWEEP_SHARED_PREFIX) == 0)
        return options_misuse(verb, "--shared needs --shared-prefix");
    if ((b->set & CONSTRAINED) != 0 && b->schema_file == NULL)
        return options_misuse(verb, "--constrained needs --schema");
    if (b->schema_file == NULL)
        return EXIT_DONE;
    if (!can_all(b, can_constrain))
        return options_misuse(verb, "--schema works only with parley://, http:// and https://");
    if (read_reply_schema(b, &err) != STATUS_OK)
        return options_misuse(verb, "--schema: %s", err.text);
    plan->json_schema = b->schema.data;
    if ((b->set & CONSTRAINED) == 0)
        plan->constrained = 1;
    return EXIT_DONE;
}

static enum exit_code settle_windows(const struct sweep *b, const struct verb *verb)
{
    if ((b->set & MAX_WINDOWS) != 0 && (b->set & STABLE) == 0)
        return options_misuse(verb, "--max-windows needs --stable");
    if ((b->set & STABLE) == 0)
        return EXIT_DONE;
    if (b->stable <= 0 || b->max_windows < STABLE_WINDOWS)
        return options_misuse(verb, "--stable must be above 0 and --max-windows at least %d",
                              (int)STABLE_WINDOWS);
    if (b->knee_bound != NULL || b->against != NULL || b->plan.newcomer_tokens > 0)
        return options_misuse(verb, "--stable excludes --find-knee, --against and "
                                    "--newcomer-tokens");
    return EXIT_DONE;
}

/* Sets the defaults that depend on other options, and rejects options that exclude each other. */
static enum exit_code settle(struct sweep *b, const struct verb *verb)
{
    struct load_plan *plan = &b->plan;
    enum exit_code code;

    if (plan->duration_s > 0 && (b->set & REQUESTS) != 0)
        return options_misuse(verb, "--duration replaces --requests: give one of them");
    if (plan->n_background > MAX_CONCURRENCY)
        return options_misuse(verb, "--background must be at most %d", (int)MAX_CONCURRENCY);
    if (((b->set & REQUESTS) != 0 && plan->n_conversations == 0) || plan->n_turns == 0)
        return options_misuse(verb, "--requests and --turns must be at least 1");
    if ((b->set & SWEEP_SHARED_PREFIX) != 0 && b->prompt_file != NULL)
        return options_misuse(
            verb, "--shared-prefix works only with random words, not with --prompt-file");
    if (b->is_json && b->is_csv)
        return options_misuse(verb, "--json and --csv exclude each other");
    if (b->config.is_chat && b->config.is_responses)
        return options_misuse(verb, "--chat and --responses exclude each other");
    if (b->config.is_multiplexed && !can_all(b, can_multiplex))
        return options_misuse(verb, "--multiplexed works only with parley://");
    if ((b->set & ROUNDS) != 0 && b->against == NULL)
        return options_misuse(verb, "--rounds needs --against");
    if (b->n_rounds == 0 || b->n_rounds > MAX_ROUNDS)
        return options_misuse(verb, "--rounds must be from 1 to %d", (int)MAX_ROUNDS);
    if ((code = settle_lengths(b, verb)) != EXIT_DONE ||
        (code = settle_shares(b, verb)) != EXIT_DONE ||
        (code = settle_windows(b, verb)) != EXIT_DONE ||
        (code = settle_knee(b, verb)) != EXIT_DONE || (code = settle_trace(b, verb)) != EXIT_DONE ||
        (code = settle_shape(b, verb)) != EXIT_DONE ||
        (code = settle_arrivals(b, verb)) != EXIT_DONE ||
        (code = settle_bounds(b, verb)) != EXIT_DONE || (code = read_levels(b, verb)) != EXIT_DONE)
        return code;
    for (size_t i = 0; i < b->n_levels; i++)
        settle_level(b, &b->levels[i]);
    return EXIT_DONE;
}

/* One that no run before has had, since a server may still know the prompts of that run. It is
 * short enough to be typed. */
static uint64_t fresh_seed(void)
{
    uint32_t seed = 0;

    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        seed = (uint32_t)time(NULL);
    return seed;
}

static enum exit_code check_target_address(const struct verb *verb, const char *address)
{
    const char *rest;

    return address == NULL || target_type_of(address, &rest) != NULL
               ? EXIT_DONE
               : options_misuse(verb,
                                "'%s' is not a server, it must be parley://, act://, kserve://, "
                                "grpc://, http:// or https://HOST:PORT",
                                address);
}

/* A connection for each conversation at once, where the protocol needs one: as many descriptors as
 * the system lets us have. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        /* If this fails, the load reports what it could not open. */
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

enum exit_code bench_load_run(const struct verb *verb, int argc, char **argv)
{
    struct sweep b = {.config = {.connection = {.wait_s = 5}},
                      .plan = {.n_turns = 1, .arrivals = {.burst = 1}},
                      .input_tokens = "64",
                      .output_tokens = "64",
                      .n_rounds = 3,
                      .shared = 1,
                      .max_windows = 10};
    const struct option_group groups[] = {{bench_rows, &b, &b.set}};
    char command[1024];
    enum exit_code code;
    int first;

    buf_init(&b.schema, MAX_SCHEMA_BYTES);
    /* Before the options are read, which reorders argv. */
    options_write_command(command, sizeof(command), argc, argv);
    if (!options_read(verb, groups, 1, argc, argv, 1, 1, &first, &code))
        return code;
    b.address = argv[first];
    if ((code = check_target_address(verb, b.address)) != EXIT_DONE ||
        (code = check_target_address(verb, b.against)) != EXIT_DONE ||
        (code = settle(&b, verb)) != EXIT_DONE)
        goto free_trace;
    if (!out_file_can(b.html)) {
        code = EXIT_FAILED;
        goto free_trace;
    }
    if ((b.set & SEED) == 0)
        b.seed = fresh_seed();
    raise_descriptors();
    interrupt_catch();
    code = sweep_run(&b, command);
free_trace:
    trace_deinit(&b.trace);
    buf_deinit(&b.schema);
    return code;
}
