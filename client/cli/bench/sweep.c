/* Runs a load at each level, against one server or two that are compared, or searches for the
 * greatest rate that holds the bounds. The results go to stdout, and on request to a page of HTML.
 * */
#include "client/cli/bench/sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "client/cli/bench/calibrate.h"

enum {
    MAX_LAG_MS = 10,        /* at the 99th percentile, before a warning */
    REASON_MAX_CHARS = 120, /* of the first failure's reason */
    VERDICT_MAX_BYTES = 1 << 16,
};

/* A knee is known when the rate that breaks the bound is at most so much above the one that keeps
 * it; below the least rate none is sought. */
static const double KNEE_RATIO = 1.05, LEAST_RATE = 0.01;

/* Of one processor, before a warning. */
static const double MAX_CLIENT_SHARE = 0.9;

/* Of the prompts' tokens, before a warning. */
static const double MAX_CACHED_SHARE = 0.02;

/* Whether the requested bounds hold; prints those that do not. */
static bool holds(const char *what, double is, double bound, bool is_ceiling)
{
    bool is_good = bound <= 0 || (is_ceiling ? is <= bound : is >= bound); /* NaN is not good */

    if (!is_good)
        console_error("%s is %.3g, wanted %s %.3g", what, is, is_ceiling ? "at most" : "at least",
                      bound);
    return is_good;
}

static bool requirements_hold(const struct sweep *b, const struct figures *f)
{
    bool all_hold = true;

    for (size_t i = 0; i < b->bounds.n; i++) {
        double is;

        if (!requirement_holds(&b->requirements[i], f, &is)) {
            console_error("%s does not hold: it is %.4g", b->bounds.texts[i], is);
            all_hold = false;
        }
    }
    return all_hold;
}

static bool sweep_holds(const struct sweep *b, const struct figures *f)
{
    bool all_hold =
        holds("TTFT p99 in ms", quantiles_percentile(&f->ttft_us, 99) / 1e3, b->max_ttft_ms, true);

    all_hold &=
        holds("ITL p99 in ms", quantiles_percentile(&f->itl_us, 99) / 1e3, b->max_itl_ms, true);
    all_hold &=
        holds("E2EL p99 in ms", quantiles_percentile(&f->e2el_us, 99) / 1e3, b->max_e2el_ms, true);
    all_hold &= holds("output in tokens/s", figures_output_rate(f), b->min_output_rate, false);
    all_hold &= holds("fairness", figures_fairness(f), b->min_fairness, false);
    return requirements_hold(b, f) && all_hold;
}

/* Prompts that the server knows already are not computed: TTFT is that of shorter ones. Where
 * prompts are to have the same beginning, that is what is measured. */
static void warn_of_cache(const struct sweep *b, const struct bench_run *r)
{
    const double share = bench_run_cached_share(r);

    if (!(share > MAX_CACHED_SHARE) || r->plan->n_turns > 1 || r->plan->trace != NULL ||
        (b->set & SWEEP_SHARED_PREFIX) != 0)
        return;
    console_line("%.0f%% of the prompts' tokens were cached: what all prompts begin with, or a run "
                 "before with these prompts; TTFT is that of prompts that much shorter",
                 100 * share);
}

/* A client that cannot keep its own schedule measures itself. */
static void warn_of_client(struct bench_run *r)
{
    const struct figures *f = &r->figures;
    double lag_ms = quantiles_percentile(&f->lag_us, 99) / 1e3;
    double share = f->client_cpu_s / fmax(figures_duration_s(f), 1e-9);

    r->is_late = lag_ms > MAX_LAG_MS; /* not for NaN */
    if (r->is_late)
        console_line("the client sent late: p99 %.1f ms after the schedule; use a lower --rate, a "
                     "higher --concurrency or a second client",
                     lag_ms);
    if (share > MAX_CLIENT_SHARE)
        console_line("this client used %.0f%% of a processor: it may limit these figures",
                     100 * share);
}

static enum status sweep_prepare(struct sweep *b, struct prompts *p, struct target *t,
                                 struct error *err)
{
    enum status rc;

    if (b->prompt_file != NULL)
        return prompts_read(p, b->prompt_file, err);
    if ((b->set & SWEEP_SHARED_PREFIX) != 0) {
        p->shares_system = true;
        p->shared = b->shared;
        p->n_system = b->shared_prefix - (b->shared_prefix > 0); /* and the first word */
    }
    if (t->type->counts_no_tokens)
        return STATUS_OK;
    console_progress("asking how the server counts tokens");
    rc = calibrate(p, t, b->plan.n_turns > 1, b->plan.timeout_s, err);
    console_clear();
    if (rc != STATUS_OK)
        return rc;
    if (b->plan.input_tokens.kind == LENGTHS_FIXED && b->plan.trace == NULL &&
        (b->plan.input_tokens.a < p->overhead[0] || b->plan.input_tokens.a < p->overhead[1]))
        return error_set(
            err, STATUS_RANGE,
            "a prompt has %u tokens besides its words: --input-tokens must be at least that",
            p->overhead[0] > p->overhead[1] ? p->overhead[0] : p->overhead[1]);
    return STATUS_OK;
}

/* Runs warm-up conversations, which are not measured. */
static enum status warm_up(const struct sweep *b, struct target *t, const struct prompts *p,
                           struct error *err)
{
    struct load_plan plan = b->levels[0];
    struct figures ignored;
    enum status rc;

    if (b->n_warmup == 0)
        return STATUS_OK;
    plan.n_conversations = b->n_warmup;
    plan.arrivals.rate = plan.duration_s = 0;
    plan.arrivals.times_s = NULL;
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

/* --- the loads --- */

/* A server of the bench, its prompts calibrated. */
struct bench_server {
    const char *address;
    struct target *target;
    struct prompts prompts;
    uint32_t n_begun; /* conversations: each load draws other words */
};

/* Opens and warms it up. False, with an error printed, and *ret_code as target_type.open has it. */
static bool server_open(struct bench_server *s, struct sweep *b, const char *address,
                        enum exit_code *ret_code)
{
    const struct target_type *type;
    struct error err = {0};
    const char *rest;

    type = target_type_of(address, &rest); /* not NULL: the address was checked */
    *s =
        (struct bench_server){.address = address, .target = type->open(rest, &b->config, ret_code)};
    if (s->target == NULL)
        return false;
    prompts_init(&s->prompts, b->seed);
    if (sweep_prepare(b, &s->prompts, s->target, &err) == STATUS_OK &&
        warm_up(b, s->target, &s->prompts, &err) == STATUS_OK) {
        s->n_begun = b->n_warmup;
        return true;
    }
    console_error("%s [%s]", err.text, status_name(err.status));
    prompts_deinit(&s->prompts);
    type->close(s->target);
    return false;
}

static void server_close(struct bench_server *s)
{
    prompts_deinit(&s->prompts);
    s->target->type->close(s->target);
}

static void show(const struct sweep *b, const struct bench_run *r)
{
    if (b->is_json)
        (void)out_json(bench_run_json(r)); /* out_end reports a failure */
    else if (!b->is_csv)
        bench_run_print(r);
}

/* What distinguishes this load from the one before it. */
static void announce_load(const struct sweep *b, const struct load_plan *plan)
{
    if (b->is_json || b->is_csv)
        return;
    if (b->n_runs > 1)
        printf("\n");
    if (b->against != NULL)
        printf("--- round %zu of %" PRIu32 " at %u at once: %s ---\n",
               (b->n_runs - 1) / 2 % b->n_rounds + 1, b->n_rounds, plan->concurrency,
               b->runs[b->n_runs - 1].address);
    else if (b->knee_bound != NULL)
        printf("--- %.4g conversations/s ---\n", plan->arrivals.rate);
    else if (b->n_levels > 1)
        printf("--- %u at once ---\n", plan->concurrency);
}

/* Throughput of a run: tokens a second, or turns where replies have no tokens. */
static double throughput(const struct figures *f)
{
    return f->n_output > 0 ? figures_output_rate(f) : figures_rate(f, f->n_completed);
}

/* One load. out is filled in also on failure. */
static enum status run_window(struct sweep *b, struct bench_server *s,
                              const struct load_plan *level, struct figures *out, struct error *err)
{
    struct load_plan plan = *level;
    enum status rc;

    figures_init(out, plan.n_turns);
    out->goal = b->goal;
    plan.first = s->n_begun;
    plan.server = strstr(s->address, "://") + 3;
    rc = load_run(out, s->target, &s->prompts, &plan, err);
    b->is_stopped = rc == STATUS_CANCELLED;
    s->n_begun += (uint32_t)(out->n_completed + out->n_failed + out->n_cancelled);
    return rc;
}

/* Whether each of these is within so many percent of their mean. */
static bool agree(const double values[STABLE_WINDOWS], double percent)
{
    double mean = 0;

    for (size_t i = 0; i < STABLE_WINDOWS; i++)
        mean += values[i] / STABLE_WINDOWS;
    for (size_t i = 0; i < STABLE_WINDOWS; i++)
        if (!(fabs(values[i] - mean) <= mean * percent / 100)) /* nor NaN */
            return false;
    return true;
}

static bool are_stable(const struct figures windows[STABLE_WINDOWS], double percent)
{
    double rates[STABLE_WINDOWS], latencies_us[STABLE_WINDOWS];

    for (size_t i = 0; i < STABLE_WINDOWS; i++) {
        rates[i] = throughput(&windows[i]);
        latencies_us[i] = quantiles_mean(&windows[i].e2el_us);
    }
    return agree(rates, percent) && agree(latencies_us, percent);
}

/* Loads until the last ones agree, or so many; their figures together. As perf_analyzer's windows.
 */
static enum status run_windows(struct sweep *b, struct bench_server *s,
                               const struct load_plan *level, struct bench_run *r,
                               struct error *err)
{
    struct figures last[STABLE_WINDOWS];
    enum status rc;
    size_t n = 0;

    do { /* there is at least one repetition */
        if (n == STABLE_WINDOWS) {
            figures_deinit(&last[0]);
            memmove(last, last + 1, (STABLE_WINDOWS - 1) * sizeof(last[0]));
            n--;
        }
        rc = run_window(b, s, level, &last[n++], err);
        r->n_windows++;
        r->is_stable = rc == STATUS_OK && n == STABLE_WINDOWS && are_stable(last, b->stable);
    } while (rc == STATUS_OK && !r->is_stable && r->n_windows < b->max_windows);
    r->figures = last[0];
    for (size_t i = 1; i < n; i++) {
        figures_merge(&r->figures, &last[i]);
        figures_deinit(&last[i]);
    }
    return rc;
}

/* One load, or some until they are stable; its figures are the bench's last run, filled in also on
 * failure. */
static enum status run_load(struct sweep *b, struct bench_server *s, const struct load_plan *level,
                            struct error *err)
{
    struct bench_run *r = &b->runs[b->n_runs++];
    enum status rc;

    *r = (struct bench_run){.address = s->address, .plan = level, .seed = b->seed};
    announce_load(b, level);
    rc = b->stable > 0 ? run_windows(b, s, level, r, err)
                       : run_window(b, s, level, &r->figures, err);
    show(b, r);
    if (r->n_windows > 0 && !r->is_stable && rc == STATUS_OK)
        console_line("not stable within %g%% after %" PRIu32 " windows", b->stable, r->n_windows);
    warn_of_cache(b, r);
    warn_of_client(r);
    return rc;
}

/* Whether a bound of the user's says how many turns may fail. */
static bool bounds_failures(const struct sweep *b)
{
    for (size_t i = 0; i < b->bounds.n; i++)
        if (strcmp(b->requirements[i].name, "failed") == 0 ||
            strcmp(b->requirements[i].name, "error_share") == 0)
            return true;
    return false;
}

/* A reason may be a whole page of HTML; how many failed with which status stands above it. */
static void cut_reason(struct error *err)
{
    size_t n = strlen(err->text);

    if (n <= REASON_MAX_CHARS)
        return;
    for (n = REASON_MAX_CHARS; n > 0 && ((unsigned char)err->text[n] & 0xc0) == 0x80; n--)
        continue; /* within a character */
    (void)snprintf(err->text + n, sizeof(err->text) - n, "…");
}

/* One load, which is to keep to the bounds. */
static enum exit_code run_level(struct sweep *b, struct bench_server *s,
                                const struct load_plan *level)
{
    struct error err = {0};
    enum status rc = run_load(b, s, level, &err);
    const struct figures *f = &b->runs[b->n_runs - 1].figures;

    if (rc == STATUS_OK && f->first_error.status != STATUS_OK) {
        err = f->first_error;
        cut_reason(&err);
        (void)error_prefix(&err, "%" PRIu64 " failed, the first with", f->n_failed);
    }
    if (err.status != STATUS_OK)
        console_error("%s [%s]", err.text, status_name(err.status));
    if (rc != STATUS_OK || (err.status != STATUS_OK && !bounds_failures(b)))
        return EXIT_FAILED;
    return sweep_holds(b, f) ? EXIT_DONE : EXIT_BOUND;
}

/* The worse of two: a failed load, then a bound. */
static enum exit_code worse(enum exit_code a, enum exit_code b)
{
    return a == EXIT_FAILED || b == EXIT_DONE ? a : b;
}

static int ascending_ratio(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* null where a server completed nothing. */
static json_t *ratio_json(double ratio)
{
    return isfinite(ratio) ? json_real(ratio) : json_null();
}

static const char *say_ratio(char *out, size_t size, const struct sweep *b,
                             const struct load_plan *level, double median, double least,
                             double most)
{
    (void)snprintf(out, size,
                   "%s has %.3f × the throughput of %s at %u at once (%.3f to %.3f in %" PRIu32
                   " rounds)",
                   b->address, median, b->against, level->concurrency, least, most, b->n_rounds);
    return out;
}

/* The ratio of both servers in each round of a level, which the last runs are. */
static void compare(struct sweep *b, const struct load_plan *level)
{
    char line[1024];
    double *ratios = xalloc(b->n_rounds * sizeof(*ratios)), median, least, most;
    const struct bench_run *runs = b->runs + b->n_runs - 2 * (size_t)b->n_rounds;
    const size_t n = b->n_rounds;

    for (size_t i = 0; i < n; i++)
        ratios[i] = throughput(&runs[2 * i].figures) / throughput(&runs[2 * i + 1].figures);
    qsort(ratios, n, sizeof(*ratios), ascending_ratio);
    median = (ratios[(n - 1) / 2] + ratios[n / 2]) / 2;
    least = ratios[0];
    most = ratios[n - 1];
    free(ratios);
    if (b->is_json)
        (void)out_json(json_pack("{ss,ss,sI,sI,so,so,so}", "address", b->address, "against",
                                 b->against, "concurrency", (json_int_t)level->concurrency,
                                 "rounds", (json_int_t)n, "ratio", ratio_json(median), "ratio_min",
                                 ratio_json(least), "ratio_max", ratio_json(most)));
    else if (!b->is_csv)
        printf("\n%s\n", say_ratio(line, sizeof(line), b, level, median, least, most));
    if (buf_printf(&b->verdict, "%s\n",
                   say_ratio(line, sizeof(line), b, level, median, least, most)) != STATUS_OK)
        console_line("the page lacks a ratio: no memory");
}

/* Loads of one level at both servers, in turn. */
static enum exit_code run_rounds(struct sweep *b, struct bench_server servers[2],
                                 const struct load_plan *level)
{
    const size_t n_servers = b->against == NULL ? 1 : 2;
    const size_t n_rounds = b->against == NULL ? 1 : b->n_rounds;
    enum exit_code code = EXIT_DONE;

    for (size_t i = 0; i < n_rounds * n_servers && !b->is_stopped; i++)
        code = worse(run_level(b, &servers[i % n_servers], level), code);
    if (b->against != NULL && !b->is_stopped)
        compare(b, level);
    return code;
}

static enum exit_code run_levels(struct sweep *b, struct bench_server servers[2])
{
    enum exit_code code = EXIT_DONE;

    for (size_t i = 0; i < b->n_levels && !b->is_stopped; i++)
        code = worse(run_rounds(b, servers, &b->levels[i]), code);
    if (b->is_csv)
        bench_runs_csv(b->runs, b->n_runs);
    return code;
}

/* The knee lies between the rate that keeps the bound and the one that breaks it. */
struct knee_search {
    double holds, breaks; /* 0: none is known */
    bool is_clients; /* at the rate that breaks it the client was late: the server may be able */
};

/* The next rate: twice or half of the last one until both ends are known, then their geometric
 * mean. 0: they are near enough. */
static double next_rate(const struct knee_search *k)
{
    if (k->breaks <= 0)
        return 2 * k->holds;
    if (k->holds <= 0)
        return k->breaks > LEAST_RATE ? k->breaks / 2 : 0;
    return k->breaks / k->holds <= KNEE_RATIO ? 0 : sqrt(k->holds * k->breaks);
}

static void report_knee(const struct sweep *b, const struct knee_search *k)
{
    if (b->is_json)
        (void)out_json(json_pack("{ss,ss,so,so,sb}", "address", b->address, "bound", b->knee_bound,
                                 "knee_rate", k->holds > 0 ? json_real(k->holds) : json_null(),
                                 "broken_rate", k->breaks > 0 ? json_real(k->breaks) : json_null(),
                                 "is_client_late", (int)k->is_clients));
    else if (!b->is_csv && k->holds > 0)
        printf("\n%s holds up to %.4g conversations/s%s\n", b->knee_bound, k->holds,
               k->breaks <= 0  ? ", the highest that was tried"
               : k->is_clients ? "; above, this client is late, and says nothing of the server"
                               : "");
    if (k->holds <= 0)
        console_error("%s holds at no rate down to %.2g/s%s", b->knee_bound, k->breaks,
                      k->is_clients ? "; this client was late, which says nothing of the server"
                                    : "");
}

/* Whether the rate keeps the bound. A rate that breaks it is tried once more: a pause of the
 * machine is no knee. */
static enum status probe(struct sweep *b, struct bench_server *s, double rate, bool *ret_holds,
                         struct error *err)
{
    enum status rc = STATUS_OK;

    *ret_holds = false;
    for (int i = 0; i < 2 && rc == STATUS_OK && !*ret_holds && b->n_runs < SWEEP_MAX_STEPS; i++) {
        struct load_plan *step = &b->steps[b->n_runs];
        const struct figures *f = &b->runs[b->n_runs].figures;
        double ignored;

        *step = b->levels[0];
        step->arrivals.rate = rate;
        rc = run_load(b, s, step, err);
        *ret_holds =
            rc == STATUS_OK && f->n_failed == 0 && requirement_holds(&b->knee, f, &ignored);
    }
    return rc;
}

static enum exit_code find_knee(struct sweep *b, struct bench_server *s)
{
    struct knee_search k = {0};
    double rate = b->levels[0].arrivals.rate;

    while (rate > 0 && b->n_runs < SWEEP_MAX_STEPS) {
        struct error err = {0};
        bool is_kept;

        if (probe(b, s, rate, &is_kept, &err) != STATUS_OK) {
            if (b->is_csv)
                bench_runs_csv(b->runs, b->n_runs);
            console_error("%s [%s]", err.text, status_name(err.status));
            return EXIT_FAILED;
        }
        if (is_kept) {
            k.holds = rate;
        } else {
            k.breaks = rate;
            k.is_clients = b->runs[b->n_runs - 1].is_late;
        }
        rate = next_rate(&k);
    }
    if (b->is_csv)
        bench_runs_csv(b->runs, b->n_runs);
    report_knee(b, &k);
    return k.holds > 0 ? EXIT_DONE : EXIT_BOUND;
}

/* The page, where one is wanted. */
static enum exit_code write_page(const struct sweep *b, const char *command)
{
    struct error err;

    if (b->html == NULL ||
        bench_runs_html(b->runs, b->n_runs, command, b->verdict.len == 0 ? "" : b->verdict.data,
                        b->html, &err) == STATUS_OK)
        return EXIT_DONE;
    console_error("%s", err.text);
    return EXIT_FAILED;
}

enum exit_code sweep_run(struct sweep *b, const char *command)
{
    enum exit_code code = EXIT_FAILED;
    struct bench_server servers[2];

    size_t max_runs = 2 * b->n_levels * b->n_rounds;

    if (b->knee_bound != NULL)
        max_runs = SWEEP_MAX_STEPS;
    b->runs = xalloc(max_runs * sizeof(*b->runs));
    buf_init(&b->verdict, VERDICT_MAX_BYTES);
    if (!server_open(&servers[0], b, b->address, &code))
        goto free_runs;
    if (b->against == NULL || server_open(&servers[1], b, b->against, &code)) {
        code = b->knee_bound == NULL ? run_levels(b, servers) : find_knee(b, &servers[0]);
        code = worse(write_page(b, command), code);
        if (b->against != NULL)
            server_close(&servers[1]);
    }
    server_close(&servers[0]);
free_runs:
    for (size_t i = 0; i < b->n_runs; i++)
        figures_deinit(&b->runs[i].figures);
    buf_deinit(&b->verdict);
    free(b->runs);
    return code;
}
