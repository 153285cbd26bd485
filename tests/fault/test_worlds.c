/* Acts, teachers and metrics, each of whose allocations fails in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"
#include "worlds/message/text_line.h"
#include "worlds/metrics/metrics.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/data_file.h"
#include "worlds/teachers/teacher.h"

static char folder[] = "/tmp/parley-test-XXXXXX", path[64], data_path[72], index_path[80];

static const char *const sources[][2] = {
    {"parlai", "text:a\\tb\tlabels:x|y__PIPE__\treward:1\n"
               "text:c\tlabels:z\tepisode_done:True\ntext:d\tlabels:z\tq:r\n"},
    {"jsonl", "{\"text\":\"\\u00e9\",\"labels\":[\"x\",\"y\"],\"more\":{\"k\":[1]}}\n"
              "{\"text\":\"b\",\"labels\":\"x\",\"text_vec\":[1,2,3,4,5]}\n"},
    {"fbdialog", "1 a\n2 b\tx|y\t1\tx|y|z\n1 c\tz\n2 left\n"},
    {"conversations", "{\"dialog\":[[{\"text\":\"a\"},{\"text\":\"b\"}]]}\n"},
};

static void write_source(const char *text)
{
    FILE *out = fopen(path, "we");

    ck_assert_ptr_nonnull(out);
    ck_assert_int_ge(fputs(text, out), 0);
    ck_assert_int_eq(fclose(out), 0);
}

static void configure(struct teacher_config *config)
{
    teacher_config_init(config);
    config->metrics = METRICS_ALL;
    config->squash = true;
    config->batch_sort = true;
    config->batch_size = 2;
    config->data_file = data_path;
}

/* An epoch of a single clone that answers. */
static enum status teach(struct teacher *t, struct error *err)
{
    struct participant *p = teacher_participant(t);
    struct participant_clone *c = calloc(1, participant_clone_size(p));
    struct report r = {0};
    struct buf json;
    struct arena arena;
    enum status rc;
    bool done = false;

    ck_assert_ptr_nonnull(c);
    buf_init(&json, 1 << 20);
    arena_init(&arena, 1 << 20);
    rc = participant_clone_init(c, p, &(struct participant_slot){0, 0}, err);
    while (rc == STATUS_OK && !done) {
        const struct act *seen;
        struct act said, reply;

        act_init(&said, &arena);
        rc = p->type->act(c, &said, err);
        done = p->type->epoch_done(c);
        act_init(&reply, &arena);
        if (rc == STATUS_OK)
            rc = act_set(&reply, ACT_TEXT, value_text((struct text){"walking home y", 14}), err);
        if (rc == STATUS_OK)
            rc = participant_observe(c, &reply, &seen, err);
    }
    if (rc == STATUS_OK)
        rc = metrics_report(&r, teacher_metrics(t), err);
    if (rc == STATUS_OK)
        rc = report_json(&r, &json, err);
    report_deinit(&r);
    participant_clone_deinit(c);
    free(c);
    arena_deinit(&arena);
    buf_deinit(&json);
    return rc;
}

static enum status teach_once(void *arg)
{
    const char *prefix = arg;
    struct teacher_config config;
    struct teacher *t;
    struct error err;
    char task[100];
    enum status rc;

    configure(&config);
    (void)snprintf(task, sizeof(task), "%s:%s", prefix, path);
    rc = teacher_open(&t, task, &config, &err);
    if (rc != STATUS_OK)
        return rc;
    rc = teach(t, &err);
    participant_unref(teacher_participant(t));
    return rc;
}

START_TEST(test_teachers)
{
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        write_source(sources[i][1]);
        ck_assert_int_gt(sweep(teach_once, (void *)(uintptr_t)sources[i][0]), 20);
    }
}
END_TEST

static enum status build_once(void *arg)
{
    const char *prefix = arg;
    struct teacher_config config;
    struct data_index x;
    struct error err;
    char task[100];
    enum status rc;

    configure(&config);
    config.batch_sort = false;
    (void)snprintf(task, sizeof(task), "%s:%s", prefix, path);
    (void)unlink(index_path);
    rc = data_ready(&x, data_path, task, &config, &err);
    if (rc == STATUS_OK)
        data_index_close(&x);
    return rc;
}

START_TEST(test_data_files)
{
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        write_source(sources[i][1]);
        ck_assert_int_ge(sweep(build_once, (void *)(uintptr_t)sources[i][0]), 9);
    }
}
END_TEST

static enum status aggregate_once(void *arg)
{
    const struct metric sum = metric_sum(1), mean = metric_average(1, 2);
    const struct text tasks[] = {{"a", 1}, {"b", 1}};
    struct report reports[2] = {0}, named = {0}, whole = {0};
    const struct report *of[] = {&reports[0], &reports[1]};
    struct error err;
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < 2 && rc == STATUS_OK; i++) {
        rc = report_add(&reports[i], (struct text){"exs", 3}, &sum, &err);
        if (rc == STATUS_OK)
            rc = report_add(&reports[i], (struct text){"f1", 2}, &mean, &err);
    }
    if (rc == STATUS_OK)
        rc = report_aggregate_named(&named, tasks, of, 2, false, &err);
    if (rc == STATUS_OK)
        rc = report_aggregate_unnamed(&whole, of, 2, &err);
    report_deinit(&reports[0]);
    report_deinit(&reports[1]);
    report_deinit(&named);
    report_deinit(&whole);
    return rc;
}

START_TEST(test_reports)
{
    ck_assert_int_gt(sweep(aggregate_once, NULL), 10);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_teachers, test_data_files, test_reports};
    int rc;

    if (mkdtemp(folder) == NULL)
        return EXIT_FAILURE;
    (void)snprintf(path, sizeof(path), "%s/source", folder);
    (void)snprintf(data_path, sizeof(data_path), "%s/data", folder);
    (void)snprintf(index_path, sizeof(index_path), "%s.index", data_path);
    rc = suite_run("fault/worlds", tests, sizeof(tests) / sizeof(tests[0]));
    (void)unlink(path);
    (void)unlink(data_path);
    (void)unlink(index_path);
    return rmdir(folder) == 0 ? rc : EXIT_FAILURE;
}
