/* parley eval --task: plays the data once, or a world of participants, and prints the metrics.
 * Options also write the report as JSON, and the acts as conversations. */
#include "worlds/verbs/verbs.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "cli/output/progress.h"
#include "worlds/metrics/metrics.h"
#include "worlds/verbs/data.h"
#include "worlds/verbs/human.h"
#include "worlds/verbs/world_file.h"
#include "worlds/verbs/world_log.h"

enum { MAX_REPORT_BYTES = 16 << 20 };

struct eval_task {
    struct data_options data;
    struct participant_options agent;
    const char *report, *world_logs, *world;
    struct world_file *file; /* of --world; NULL: a task and an agent */
    uint32_t log_every_s;
    bool is_json;
};

static const struct option_row eval_task_rows[] = {
    {"report|rf", "FILE", "also write the report as JSON to this file", OPTION_TEXT,
     offsetof(struct eval_task, report), 0},
    {"world-logs|wlog", "FILE", "write what was said, one conversation per line", OPTION_TEXT,
     offsetof(struct eval_task, world_logs), 0},
    {"world", "FILE|attached:NAME",
     "a custom world: a JSON file, or an attached worker, that says who speaks and who hears whom",
     OPTION_TEXT, offsetof(struct eval_task, world), 0},
    {"log-every-n-secs|lfc", "N",
     "seconds between progress lines when stderr is not a terminal (10)", OPTION_U32,
     offsetof(struct eval_task, log_every_s), 0},
    {"json", NULL, "print the report as one JSON object", OPTION_FLAG,
     offsetof(struct eval_task, is_json), 0},
    {0},
};

bool eval_task_is_wanted(int argc, char **argv)
{
    static const char *const names[] = {"-t",
                                        "--task",
                                        "--task=",
                                        "-pyt",
                                        "--pyt",
                                        "--pytorch-teacher-task",
                                        "-pytd",
                                        "--pytd",
                                        "--pytorch-teacher-dataset",
                                        "--pytorch-teacher-task=",
                                        "--pytorch-teacher-dataset="};

    if (world_file_is_wanted(argc, argv))
        return true;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
            size_t len = strlen(names[k]);
            bool has_value = names[k][len - 1] == '='; /* in the same word */

            if (has_value ? strncmp(argv[i], names[k], len) == 0 : strcmp(argv[i], names[k]) == 0)
                return true;
        }
    return false;
}

static enum status eval_task_run_world(struct world *world, const struct eval_task *e,
                                       double *ret_seconds, struct error *err)
{
    struct run_progress progress;
    size_t n_all = world_n_examples(world);
    uint64_t n_wanted = n_all == SIZE_MAX ? UINT64_MAX : n_all;
    enum status rc = STATUS_OK;

    if (e->data.n_examples != 0 && e->data.n_examples < n_wanted)
        n_wanted = e->data.n_examples;
    run_progress_start(&progress, "eval", n_wanted, e->log_every_s, &env_real);
    while (rc == STATUS_OK && !world_epoch_done(world)) {
        struct world_counters counters;

        rc = world_parley(world, err);
        if (rc != STATUS_OK && human_terminal_wish(e->data.terminal) != HUMAN_NONE) {
            rc = STATUS_OK; /* the report is of what was answered */
            break;
        }
        world_counters(world, &counters);
        run_progress_tell(&progress, counters.n_examples);
    }
    run_progress_end(&progress);
    *ret_seconds = run_progress_seconds(&progress);
    return rc;
}

/* How the agent's turns were batched, where they were. */
static void tell_batches(struct world *world)
{
    struct world_counters c;

    world_counters(world, &c);
    if (c.n_batches != 0 && c.n_padded != 0)
        console_line(
            "%llu batches of %.1f rows on average; %llu words, which padded to the longest "
            "of each batch are %llu cells (%.0f %% words)",
            (unsigned long long)c.n_batches, (double)c.n_rows / (double)c.n_batches,
            (unsigned long long)c.n_words, (unsigned long long)c.n_padded,
            100 * (double)c.n_words / (double)c.n_padded);
}

static enum status write_report(const char *path, const struct buf *json, struct error *err)
{
    FILE *out = fopen(path, "we");
    bool is_written;

    if (out == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    is_written = fwrite(json->data, 1, json->len, out) == json->len && fputc('\n', out) != EOF;
    if (fclose(out) != 0 || !is_written)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s", path, strerror(errno));
    return STATUS_OK;
}

static void print_report(const struct report *r)
{
    for (size_t i = 0; i < r->list.n; i++) {
        const struct named_metric *m = &r->list.items[i];

        if (m->metric.is_integer)
            printf("%-20.*s %.0f\n", (int)m->name.len, m->name.text, metric_value(&m->metric));
        else
            printf("%-20.*s %.6g\n", (int)m->name.len, m->name.text, metric_value(&m->metric));
    }
}

static enum status eval_task_tell(const struct eval_task *e, struct world *world, struct error *err)
{
    struct report report = {0};
    struct buf json;
    enum status rc = world_report(&report, world, err);

    buf_init(&json, MAX_REPORT_BYTES);
    if (rc == STATUS_OK)
        rc = report_json(&report, &json, err);
    if (rc == STATUS_OK && e->report != NULL)
        rc = write_report(e->report, &json, err);
    if (rc == STATUS_OK && e->is_json && buf_append(&json, "\n", 1) == STATUS_OK)
        (void)out_text(json.data, json.len); /* out_end reports a failure */
    else if (rc == STATUS_OK)
        print_report(&report);
    buf_deinit(&json);
    report_deinit(&report);
    return rc;
}

static enum status eval(struct data_world *w, const struct eval_task *e, struct error *err)
{
    struct world_log *log = NULL;
    struct error log_err;
    double seconds;
    enum status rc = e->file != NULL
                         ? world_file_cast(e->file, &w->config, &e->data, &e->agent, err)
                         : data_agent_open(w, &e->data, &e->agent, err);

    if (rc == STATUS_OK && w->config.shuffle && e->data.n_examples == 0)
        rc = error_set(err, STATUS_INVALID,
                       "--datatype %s is drawn at random and has no end: limit it with "
                       "--num-examples N, or use train:evalmode, which takes each example once",
                       e->data.datatype);
    if (rc == STATUS_OK && e->world_logs != NULL)
        rc = world_log_open(&log, e->world_logs, err);
    if (log != NULL) {
        w->config.watch = world_log_watch;
        w->config.watch_arg = log;
    }
    w->config.counts_words = e->data.batch_size > 1;
    if (rc == STATUS_OK)
        rc = data_world_open(w, err);
    if (rc == STATUS_OK)
        rc = eval_task_run_world(w->world, e, &seconds, err);
    if (world_log_close(log, &log_err) != STATUS_OK && rc == STATUS_OK) {
        *err = log_err;
        rc = err->status;
    }
    if (rc == STATUS_OK)
        tell_batches(w->world);
    if (rc == STATUS_OK)
        rc = eval_task_tell(e, w->world, err);
    return rc;
}

static enum status eval_task_open(struct data_world *w, struct eval_task *e, struct error *err)
{
    const struct human_options human = {.is_json = e->is_json};
    bool has_human = e->agent.agent != NULL && strcmp(e->agent.agent, "local_human") == 0;

    if (e->world != NULL) {
        if (world_file_open(&e->file, e->world, &e->data, err) != STATUS_OK ||
            world_file_expect(e->file, WORLD_NEEDS_TEACHER, err) != STATUS_OK)
            return err->status;
        if (!data_has_task(&e->data))
            e->data.task = world_file_task(e->file);
        if (!data_has_task(&e->data))
            return error_set(err, STATUS_INVALID,
                             "world %.120s names no teacher: give one with --task", e->world);
    }
    has_human |= e->file != NULL && world_file_has_human(e->file);
    if (has_human && human_terminal_open(&e->data.terminal, &human, err) != STATUS_OK)
        return err->status;
    return data_tasks_open(w, &e->data, err);
}

enum exit_code eval_task_run(const struct verb *verb, int argc, char **argv)
{
    struct eval_task e = {.log_every_s = 10};
    const struct option_group groups[] = {{data_option_rows, &e.data, NULL},
                                          {participant_option_rows, &e.agent, NULL},
                                          {eval_task_rows, &e, NULL}};
    struct data_world w = {0};
    struct error err;
    enum exit_code code;
    enum status rc;
    int first;

    data_options_init(&e.data, "valid");
    e.data.takes_first = true;
    participant_options_init(&e.agent);
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    rc = eval_task_open(&w, &e, &err);
    if (rc == STATUS_OK) {
        data_world_warn(&w);
        rc = eval(&w, &e, &err);
    }
    data_world_close(&w);
    world_file_close(e.file);
    human_terminal_close(e.data.terminal);
    return data_end(rc, &err);
}
