/* parley bench ADDRESS: puts a load on a server and reports the measurements. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/bench/calibrate.h"
#include "client/cli/bench/load.h"
#include "client/cli/options/options.h"
#include "client/cli/output/console.h"
#include "client/cli/output/interrupt.h"
#include "client/cli/output/out.h"

enum { MAX_CONCURRENCY = 100000, SHARED_PREFIX = 1 << 0, CONCURRENCY = 1 << 1, REQUESTS = 1 << 2 };

struct load_bench {
    const char *address, *prompt_file;
    struct target_config config;
    struct load_plan plan;
    uint64_t seed;
    uint32_t n_warmup, shared_prefix;
    double max_ttft_ms, max_itl_ms, max_e2el_ms, min_output_rate, min_fairness; /* 0: none */
    bool is_json;
    unsigned set;
};

#define AT(member) offsetof(struct load_bench, member)

static const struct option_row bench_rows[] = {
    {"model", "NAME", "which model (the server's default)", OPTION_TEXT, AT(config.model), 0},
    {"concurrency", "N", "conversations at once (1; with --request-rate: any)", OPTION_U32,
     AT(plan.concurrency), CONCURRENCY},
    {"requests", "N", "conversations in all (the concurrency)", OPTION_U32,
     AT(plan.n_conversations), REQUESTS},
    {"turns", "N", "of each conversation (1)", OPTION_U32, AT(plan.n_turns), 0},
    {"input-tokens", "N", "of a prompt, as the server counts (64)", OPTION_U32,
     AT(plan.input_tokens), 0},
    {"output-tokens", "N", "of a reply, at most (64)", OPTION_U32, AT(plan.output_tokens), 0},
    {"ignore-eos", NULL, "a reply goes on where the model would end", OPTION_FLAG,
     AT(config.ignore_eos), 0},
    {"temperature", "T", "0 takes the likeliest token (0)", OPTION_FLOAT, AT(config.temperature),
     0},
    {"shared-prefix", "N", "tokens that all prompts begin with (none)", OPTION_U32,
     AT(shared_prefix), SHARED_PREFIX},
    {"prompt-file", "PATH", "a prompt a line, instead of random words", OPTION_TEXT,
     AT(prompt_file), 0},
    {"chat", NULL, "http://: chat completions instead of completions", OPTION_FLAG,
     AT(config.is_chat), 0},
    {"request-rate", "X", "conversations begun a second, a Poisson process (closed loop)",
     OPTION_DOUBLE, AT(plan.rate), 0},
    {"think", "SECONDS", "between a reply and the next turn (0)", OPTION_DOUBLE, AT(plan.think_s),
     0},
    {"duration", "SECONDS", "begin no conversation after so long, instead of --requests",
     OPTION_DOUBLE, AT(plan.duration_s), 0},
    {"background", "N", "more conversations, which speak all the while and do not count",
     OPTION_U32, AT(plan.n_background), 0},
    {"newcomer-tokens", "N", "one such prompt, once all conversations speak", OPTION_U32,
     AT(plan.newcomer_tokens), 0},
    {"warmup", "N", "conversations before the clock starts (0)", OPTION_U32, AT(n_warmup), 0},
    {"seed", "N", "of the words and of the arrivals (1)", OPTION_U64, AT(seed), 0},
    {"max-ttft-p99-ms", "X", "exit 3 when it is above", OPTION_DOUBLE, AT(max_ttft_ms), 0},
    {"max-itl-p99-ms", "X", "likewise", OPTION_DOUBLE, AT(max_itl_ms), 0},
    {"max-e2el-p99-ms", "X", "likewise", OPTION_DOUBLE, AT(max_e2el_ms), 0},
    {"min-output-tok-s", "X", "exit 3 when it is below", OPTION_DOUBLE, AT(min_output_rate), 0},
    {"min-fairness", "X", "likewise: slowest conversation's rate over the median's", OPTION_DOUBLE,
     AT(min_fairness), 0},
    {"wait", "SECONDS", "how long to wait for the server to be ready (5)", OPTION_DOUBLE,
     AT(config.wait_s), 0},
    {"json", NULL, "print one JSON object", OPTION_FLAG, AT(is_json), 0},
    {0},
};

/* Sets the defaults that depend on other options, and rejects options that exclude each other. */
static enum exit_code settle(struct load_bench *b, const struct verb *verb)
{
    struct load_plan *plan = &b->plan;

    if (plan->duration_s < 0 || plan->think_s < 0 || plan->rate < 0)
        return options_misuse(verb, "a time or a rate is below 0");
    if (plan->duration_s > 0 && (b->set & REQUESTS) != 0)
        return options_misuse(verb, "--duration stands instead of --requests");
    if ((b->set & REQUESTS) == 0)
        plan->n_conversations = plan->duration_s > 0 ? UINT32_MAX >> 3 : plan->concurrency;
    if (plan->rate > 0 && (b->set & CONCURRENCY) == 0)
        plan->concurrency =
            plan->n_conversations < MAX_CONCURRENCY ? plan->n_conversations : MAX_CONCURRENCY;
    if (plan->concurrency == 0 || plan->concurrency > MAX_CONCURRENCY ||
        plan->n_background > MAX_CONCURRENCY)
        return options_misuse(verb, "from 1 to %d conversations may be at once",
                              (int)MAX_CONCURRENCY);
    if (plan->n_conversations == 0 || plan->n_turns == 0 || plan->input_tokens == 0 ||
        plan->output_tokens == 0)
        return options_misuse(verb, "requests, turns and tokens are at least 1");
    if ((b->set & SHARED_PREFIX) != 0 && b->prompt_file != NULL)
        return options_misuse(verb, "--shared-prefix is for random words, not for --prompt-file");
    return EXIT_DONE;
}

static json_t *report_json(const struct load_bench *b, struct figures *f)
{
    const struct load_plan *plan = &b->plan;
    json_t *report =
        json_pack("{ss,sI,sI,sI,sI,sI,sI}", "address", b->address, "concurrency",
                  (json_int_t)plan->concurrency, "requests",
                  (json_int_t)(plan->duration_s > 0 ? 0 : plan->n_conversations), "turns",
                  (json_int_t)plan->n_turns, "input_tokens", (json_int_t)plan->input_tokens,
                  "output_tokens", (json_int_t)plan->output_tokens, "seed", (json_int_t)b->seed);

    figures_json(f, report);
    return report;
}

/* Whether the requested bounds hold; prints those that do not. */
static bool holds(const char *what, double is, double bound, bool is_ceiling)
{
    bool is_good = bound <= 0 || (is_ceiling ? is <= bound : is >= bound); /* NaN is not good */

    if (!is_good)
        console_error("%s is %.3g, wanted %s %.3g", what, is, is_ceiling ? "at most" : "at least",
                      bound);
    return is_good;
}

static enum exit_code load_bench_judge(const struct load_bench *b, struct figures *f)
{
    bool all_hold =
        holds("TTFT p99 in ms", samples_percentile(&f->ttft_ms, 99), b->max_ttft_ms, true);

    all_hold &= holds("ITL p99 in ms", samples_percentile(&f->itl_ms, 99), b->max_itl_ms, true);
    all_hold &= holds("E2EL p99 in ms", samples_percentile(&f->e2el_ms, 99), b->max_e2el_ms, true);
    all_hold &= holds("output in tokens/s", figures_output_rate(f), b->min_output_rate, false);
    all_hold &= holds("fairness", figures_fairness(f), b->min_fairness, false);
    return all_hold ? EXIT_DONE : EXIT_BOUND;
}

static enum status load_bench_prepare(struct load_bench *b, struct prompts *p, struct target *t,
                                      struct error *err)
{
    enum status rc;

    if (b->prompt_file != NULL)
        return prompts_read(p, b->prompt_file, err);
    if ((b->set & SHARED_PREFIX) != 0) {
        p->shares_system = true;
        p->n_system = b->shared_prefix - (b->shared_prefix > 0); /* and the first word */
    }
    console_progress("asking how the server counts tokens");
    rc = calibrate(p, t, b->plan.n_turns > 1, err);
    console_clear();
    if (rc != STATUS_OK)
        return rc;
    if (b->plan.input_tokens < p->overhead[0] || b->plan.input_tokens < p->overhead[1])
        return error_set(err, STATUS_RANGE,
                         "a prompt has %u tokens beside its words here: --input-tokens is at least "
                         "that",
                         p->overhead[0] > p->overhead[1] ? p->overhead[0] : p->overhead[1]);
    return STATUS_OK;
}

/* Runs warm-up conversations, which are not measured. */
static enum status warm_up(const struct load_bench *b, struct target *t, const struct prompts *p,
                           struct error *err)
{
    struct load_plan plan = b->plan;
    struct figures ignored;
    enum status rc;

    if (b->n_warmup == 0)
        return STATUS_OK;
    plan.n_conversations = b->n_warmup;
    plan.rate = plan.duration_s = 0;
    plan.n_background = plan.newcomer_tokens = 0;
    figures_init(&ignored, plan.n_turns);
    rc = load_run(&ignored, t, p, &plan, err);
    if (rc == STATUS_OK && ignored.n_completed == 0) {
        *err = ignored.first_error;
        rc = error_prefix(err, "the warm-up failed");
    }
    figures_deinit(&ignored);
    return rc;
}

static enum exit_code load_bench_run(struct load_bench *b, struct target *t, struct prompts *p)
{
    struct load_plan plan = b->plan;
    struct error err = {0};
    struct figures f;
    enum exit_code code = EXIT_FAILED;
    enum status rc;

    figures_init(&f, plan.n_turns);
    if (load_bench_prepare(b, p, t, &err) != STATUS_OK || warm_up(b, t, p, &err) != STATUS_OK)
        goto out;
    plan.first = b->n_warmup;
    rc = load_run(&f, t, p, &plan, &err);
    if (b->is_json)                         /* the figures are filled in also on failure */
        (void)out_json(report_json(b, &f)); /* out_end reports a failure */
    else
        figures_print(&f);
    if (rc == STATUS_OK && f.first_error.status != STATUS_OK) {
        err = f.first_error;
        rc = error_prefix(&err, "%" PRIu64 " failed, the first with", f.n_failed);
    }
    code = rc == STATUS_OK ? load_bench_judge(b, &f) : EXIT_FAILED;
out:
    if (err.status != STATUS_OK)
        console_error("%s [%s]", err.text, status_name(err.status));
    figures_deinit(&f);
    return code;
}

enum exit_code bench_load_run(const struct verb *verb, int argc, char **argv)
{
    struct load_bench b = {
        .config = {.wait_s = 5},
        .plan = {.concurrency = 1, .n_turns = 1, .input_tokens = 64, .output_tokens = 64},
        .seed = 1};
    const struct option_group groups[] = {{bench_rows, &b, &b.set}};
    const struct target_type *type;
    const char *address;
    struct prompts prompts;
    struct target *t;
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 1, 1, &first, &code))
        return code;
    b.address = argv[first];
    type = target_type_of(b.address, &address);
    if (type == NULL)
        return options_misuse(verb, "'%s' is no parley://HOST:PORT or http://HOST:PORT", b.address);
    code = settle(&b, verb);
    if (code != EXIT_DONE)
        return code;
    interrupt_catch();
    t = type->open(address, &b.config);
    if (t == NULL)
        return EXIT_FAILED;
    prompts_init(&prompts, b.seed);
    code = load_bench_run(&b, t, &prompts);
    prompts_deinit(&prompts);
    type->close(t);
    return code;
}
