/* Plays the world until a bound is reached; in the meantime it validates, prints progress and
 * writes checkpoints. A training that continues first plays the world up to the checkpoint, with
 * its agent paused. */
#include "worlds/verbs/train_loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "cli/output/out.h"
#include "worlds/metrics/metrics.h"
#include "worlds/teachers/teacher.h"
#include "worlds/world/world.h"

enum { POLL_US = 10000 };

#define LOOP(name, kind, member, value, help, set)                                \
    {                                                                             \
        name, value, help, kind, offsetof(struct train_loop_options, member), set \
    }

const struct option_row train_loop_rows[] = {
    LOOP("num-epochs|eps", OPTION_DOUBLE, n_epochs, "X", "end after this many epochs", 0),
    LOOP("max-train-time|ttim", OPTION_DOUBLE, max_seconds, "SECONDS",
         "end after this much training time", 0),
    LOOP("validation-every-n-secs|vtim", OPTION_DOUBLE, valid_seconds, "SECONDS",
         "training time between validations", 0),
    LOOP("validation-every-n-epochs|veps", OPTION_DOUBLE, valid_epochs, "X",
         "epochs between validations", 0),
    LOOP("validation-max-exs|vme", OPTION_U64, valid_examples, "N",
         "the most examples of a validation (all)", 0),
    LOOP("validation-patience|vp", OPTION_U32, patience, "N",
         "end after this many validations in a row without a new best (10)", 0),
    LOOP("validation-metric|vmt", OPTION_TEXT, metric, "NAME",
         "the metric that selects the best validation, by its name in a report (accuracy)", 0),
    LOOP("validation-metric-mode|vmm", OPTION_TEXT, metric_mode, "MODE",
         "max or min: which value is best (min for loss, ppl and mean_rank, else max)", 0),
    LOOP("validation-cutoff|vcut", OPTION_DOUBLE, cutoff, "X", "end when the metric is this good",
         TRAIN_LOOP_CUTOFF),
    LOOP("log-every-n-secs|ltim", OPTION_U32, log_seconds, "N",
         "seconds between progress lines (10)", 0),
    LOOP("save-every-n-secs|stim", OPTION_DOUBLE, checkpoint_seconds, "SECONDS",
         "training time between checkpoints (FILE.checkpoint); -1: none (60)", 0),
    LOOP("save-after-valid|sval", OPTION_BOOL, checkpoint_after_valid, "BOOL",
         "also write a checkpoint after each validation (false)", 0),
    LOOP("json", OPTION_FLAG, is_json, NULL, "print one JSON object per line", 0),
    {0},
};

void train_loop_options_init(struct train_loop_options *o)
{
    *o = (struct train_loop_options){.n_epochs = -1,
                                     .max_seconds = -1,
                                     .valid_seconds = -1,
                                     .valid_epochs = -1,
                                     .patience = 10,
                                     .metric = "accuracy",
                                     .log_seconds = 10,
                                     .checkpoint_seconds = 60};
}

bool train_loop_validates(const struct train_loop_options *o)
{
    return o->valid_seconds >= 0 || o->valid_epochs >= 0;
}

enum status train_loop_check(const struct train_loop_options *o, bool ends_otherwise,
                             struct error *err)
{
    if (o->metric_mode != NULL && strcmp(o->metric_mode, "max") != 0 &&
        strcmp(o->metric_mode, "min") != 0)
        return error_set(err, STATUS_INVALID,
                         "--validation-metric-mode is '%.40s', it must be max or min",
                         o->metric_mode);
    if (o->valid_epochs == 0)
        return error_set(err, STATUS_INVALID, "--validation-every-n-epochs must be above 0");
    if (train_loop_validates(o) && o->patience == 0)
        return error_set(err, STATUS_INVALID, "--validation-patience must be above 0");
    if (o->n_epochs < 0 && o->max_seconds < 0 && !train_loop_validates(o) && !ends_otherwise)
        return error_set(err, STATUS_INVALID,
                         "the training would never end: give --num-epochs, --max-train-time or "
                         "validations (--validation-every-n-epochs)");
    return STATUS_OK;
}

/* What changes while the loop runs. */
struct train_state {
    const struct train_loop *loop;
    struct train_result *result;
    uint64_t n_before;              /* examples of earlier rounds */
    uint64_t started_us, paused_us; /* paused: the time spent in validations and writing files */
    uint64_t before_us;             /* training time of previous processes */
    uint64_t logged_us, n_logged;   /* of the last line of progress */
    uint64_t saved_us;              /* of the last checkpoint */
    uint64_t polled_us;
    struct train_progress *at; /* the result's; examples and seconds are set where it is used */
    bool is_catching_up, is_over;
};

static uint64_t train_state_us(const struct train_state *s)
{
    return s->before_us + env_now_us(s->loop->env) - s->started_us - s->paused_us;
}

static uint64_t train_state_examples(const struct train_state *s)
{
    struct world_counters c;

    world_counters(s->loop->train, &c);
    return s->n_before + c.n_examples;
}

static double train_state_epochs(const struct train_state *s, uint64_t n_examples)
{
    return s->loop->n_epoch > 0 ? (double)n_examples / (double)s->loop->n_epoch : 0;
}

/* --- progress --------------------------------------------------------------------------------- */

/* The means of what the agent said of its lessons, " loss 0.123 mean_rank 1.2". */
static void train_state_describe(const struct train_state *s, char *out, size_t size)
{
    static const char *const names[] = {"loss", "ppl", "token_acc", "mean_rank"};
    struct report report = {0};
    struct error ignored;
    size_t len = 0;

    out[0] = '\0';
    if (world_report(&report, s->loop->train, &ignored) == STATUS_OK)
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            const struct metric *m = report_get(&report, names[i]);
            int n = m == NULL
                        ? 0
                        : snprintf(out + len, size - len, ", %s %.4g", names[i], metric_value(m));

            if (n > 0 && (size_t)n < size - len)
                len += (size_t)n;
        }
    report_deinit(&report);
    for (size_t i = 0; i < s->loop->n_tasks; i++)
        metrics_reset(teacher_metrics(teacher_of(s->loop->tasks[i])));
}

static void train_state_log(struct train_state *s)
{
    const uint64_t now = train_state_us(s), n = train_state_examples(s);
    char text[160];

    if (s->loop->options->log_seconds == 0 ||
        now - s->logged_us < (uint64_t)s->loop->options->log_seconds * 1000000)
        return;
    train_state_describe(s, text, sizeof(text));
    console_line("train: %.1f s, %llu exs, %.2f epochs, %.1f exs/s%s", (double)now / 1e6,
                 (unsigned long long)n, train_state_epochs(s, n),
                 (double)(n - s->n_logged) / ((double)(now - s->logged_us) / 1e6), text);
    s->logged_us = now;
    s->n_logged = n;
}

/* --- validation ------------------------------------------------------------------------------- */

static bool train_loop_wants_least(const struct train_loop_options *o)
{
    if (o->metric_mode != NULL)
        return strcmp(o->metric_mode, "min") == 0;
    return strcmp(o->metric, "loss") == 0 || strcmp(o->metric, "ppl") == 0 ||
           strcmp(o->metric, "mean_rank") == 0;
}

static enum status train_state_measure(const struct train_state *s, double *out, struct error *err)
{
    const struct train_loop_options *o = s->loop->options;
    struct report report = {0};
    const struct metric *m;
    struct buf json;
    enum status rc;

    world_reset(s->loop->valid);
    rc = world_run(s->loop->valid, err);
    if (rc == STATUS_OK)
        rc = world_report(&report, s->loop->valid, err);
    if (rc != STATUS_OK)
        return rc;
    m = report_get(&report, o->metric);
    buf_init(&json, 16 << 20);
    if (m == NULL)
        rc = error_set(err, STATUS_INVALID, "--validation-metric: the report has no '%.60s'",
                       o->metric);
    else
        *out = metric_value(m);
    if (rc == STATUS_OK && o->is_json && report_json(&report, &json, err) == STATUS_OK)
        (void)out_json(
            json_pack("{s:I,s:o?}", "examples", (json_int_t)train_state_examples(s), "valid",
                      json_loadb(json.data, json.len, 0, NULL))); /* out_end reports a failure */
    buf_deinit(&json);
    report_deinit(&report);
    return rc;
}

/* One validation; the best one so far saves the agent. */
static enum status train_state_validate(struct train_state *s, struct error *err)
{
    const struct train_loop *t = s->loop;
    const struct train_loop_options *o = t->options;
    const bool wants_least = train_loop_wants_least(o);
    const uint64_t begun_us = env_now_us(t->env);
    struct train_progress *r = s->at;
    double value = 0;
    bool is_best;

    if (train_state_measure(s, &value, err) != STATUS_OK)
        return err->status;
    is_best = r->n_validations == 0 || (wants_least ? value < r->best : value > r->best);
    r->n_validations++;
    r->n_worse = is_best ? 0 : r->n_worse + 1;
    if (is_best) {
        r->best = value;
        r->best_examples = train_state_examples(s);
        if (t->save(t->save_arg, t->path, err) != STATUS_OK)
            return err->status;
    }
    console_line("valid: %s %.4g after %.2f epochs%s", o->metric, value,
                 train_state_epochs(s, train_state_examples(s)),
                 is_best ? ", the best so far; saved" : "");
    s->paused_us += env_now_us(t->env) - begun_us;
    r->validated_s = (double)train_state_us(s) / 1e6;
    r->n_validated = train_state_examples(s);
    if (r->n_worse >= o->patience) {
        s->result->why = "patience";
        s->is_over = true;
    } else if ((o->set & TRAIN_LOOP_CUTOFF) != 0 &&
               (wants_least ? value <= o->cutoff : value >= o->cutoff)) {
        s->result->why = "cutoff";
        s->is_over = true;
    }
    return STATUS_OK;
}

static bool train_state_is_valid_due(const struct train_state *s)
{
    const struct train_loop_options *o = s->loop->options;

    if (s->loop->valid == NULL)
        return false;
    return (o->valid_seconds >= 0 &&
            (double)train_state_us(s) / 1e6 - s->at->validated_s >= o->valid_seconds) ||
           (o->valid_epochs >= 0 &&
            train_state_epochs(s, train_state_examples(s) - s->at->n_validated) >= o->valid_epochs);
}

/* --- checkpoints ------------------------------------------------------------------------------ */

static void train_state_update(struct train_state *s)
{
    s->at->n_examples = train_state_examples(s);
    s->at->seconds = (double)train_state_us(s) / 1e6;
}

static bool train_loop_has_checkpoints(const struct train_loop_options *o)
{
    return o->checkpoint_seconds >= 0 || o->checkpoint_after_valid;
}

/* One that cannot be written is said, and the one before stays: the training itself is sound. */
static void train_state_checkpoint(struct train_state *s)
{
    const struct train_checkpoints *c = &s->loop->checkpoints;
    const uint64_t begun_us = env_now_us(s->loop->env);
    struct error err;

    train_state_update(s);
    if (c->write(c->arg, s->at, &err) != STATUS_OK)
        console_error("cannot write a checkpoint: %s", err.text);
    s->paused_us += env_now_us(s->loop->env) - begun_us;
    s->saved_us = train_state_us(s);
}

static void train_state_checkpoint_if_due(struct train_state *s)
{
    const double every = s->loop->options->checkpoint_seconds;

    if (every >= 0 && (double)(train_state_us(s) - s->saved_us) / 1e6 >= every)
        train_state_checkpoint(s);
}

/* After each parley that only catches up. */
static void train_state_catch_up(struct train_state *s)
{
    const struct train_loop *t = s->loop;

    if (train_state_examples(s) < t->checkpoints.from->n_examples)
        return;
    s->is_catching_up = false;
    t->checkpoints.pause(t->checkpoints.arg, false);
    s->paused_us = env_now_us(t->env) - s->started_us; /* the time until now was not training */
    s->logged_us = s->saved_us = s->polled_us = train_state_us(s);
    s->n_logged = train_state_examples(s);
}

/* --- the loop --------------------------------------------------------------------------------- */

/* Asks the kernel now and then, not after each example. */
static bool train_state_is_interrupted(struct train_state *s)
{
    const uint64_t now = train_state_us(s);

    if (now - s->polled_us < POLL_US)
        return false;
    s->polled_us = now;
    return interrupt_take();
}

static enum status train_state_round(struct train_state *s, struct error *err)
{
    const struct train_loop_options *o = s->loop->options;
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && !s->is_over && !world_epoch_done(s->loop->train)) {
        rc = world_parley(s->loop->train, err);
        if (rc != STATUS_OK)
            break;
        if (s->is_catching_up)
            train_state_catch_up(s);
        else
            train_state_log(s);
        if (train_state_is_interrupted(s)) {
            s->result->why = "interrupted";
            s->is_over = true;
        } else if (s->is_catching_up) {
            continue;
        } else if (o->max_seconds >= 0 && (double)train_state_us(s) / 1e6 >= o->max_seconds) {
            s->result->why = "time";
            s->is_over = true;
        } else if (train_state_is_valid_due(s)) {
            rc = train_state_validate(s, err);
            if (rc == STATUS_OK && !s->is_over && o->checkpoint_after_valid)
                train_state_checkpoint(s);
        } else {
            train_state_checkpoint_if_due(s);
        }
    }
    return rc;
}

/* The last validation, the file, and what becomes of the checkpoint: it stays where a training was
 * interrupted, so that the same command goes on with it. */
static enum status train_state_finish(struct train_state *s, struct error *err)
{
    const struct train_loop *t = s->loop;
    const char *why = s->result->why;
    const bool is_interrupted = strcmp(why, "interrupted") == 0;
    enum status rc = STATUS_OK;

    if (s->is_catching_up && !is_interrupted)
        return error_set(err, STATUS_PRECONDITION,
                         "the checkpoint is of %llu examples, but this training ends after %llu",
                         (unsigned long long)t->checkpoints.from->n_examples,
                         (unsigned long long)train_state_examples(s));
    if (s->is_catching_up) { /* the files are already up to date */
        s->at->n_examples = t->checkpoints.from->n_examples;
        return STATUS_OK;
    }
    if (is_interrupted && train_loop_has_checkpoints(t->options))
        train_state_checkpoint(s);
    train_state_update(s);
    if (t->valid != NULL && s->at->n_validated < s->at->n_examples)
        rc = train_state_validate(s, err);
    else if (t->valid == NULL)
        rc = t->save(t->save_arg, t->path, err);
    s->result->why = why;
    if (rc == STATUS_OK && !is_interrupted)
        t->checkpoints.remove(t->checkpoints.arg);
    return rc;
}

enum status train_loop_run(struct train_result *out, const struct train_loop *t, struct error *err)
{
    struct train_result result = {.at = {.best = (double)NAN}, .why = "epochs"};
    struct train_state s = {
        .loop = t, .result = &result, .at = &result.at, .started_us = env_now_us(t->env)};
    enum status rc = STATUS_OK;

    if (t->checkpoints.from != NULL) {
        result.at = *t->checkpoints.from;
        s.before_us = (uint64_t)(result.at.seconds * 1e6);
        s.is_catching_up = true;
        t->checkpoints.pause(t->checkpoints.arg, true);
    }
    interrupt_catch();
    for (uint64_t round = 0; rc == STATUS_OK && !s.is_over && round < t->n_rounds; round++) {
        if (round > 0) {
            s.n_before = train_state_examples(&s);
            world_reset(t->train);
        }
        rc = train_state_round(&s, err);
    }
    world_counters(t->train, &result.counters);
    if (rc == STATUS_OK)
        rc = train_state_finish(&s, err);
    interrupt_release();
    if (rc == STATUS_OK)
        *out = result;
    return rc;
}
