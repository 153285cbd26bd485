/* The batches of a language model, row for row, by the tutorial's rules on long-tailed texts; and
 * how many words and cells they have beside those that are not made by length. lm_batches.py wrote
 * the golden file from the rules alone. */
#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "tests/support/tiny_participant.h"
#include "tests/unit/base/suite.h"
#include "worlds/teachers/teacher.h"
#include "worlds/world/world.h"

enum { MAX_BATCHES = 64, MAX_ROWS = 64 };

struct batches {
    size_t n;
    size_t n_rows[MAX_BATCHES];
    long rows[MAX_BATCHES][MAX_ROWS]; /* numbers of texts, rising */
};

static int long_compare(const void *a, const void *b)
{
    const long *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* A text begins with its number. */
static void take_batch(void *arg, const struct world *w, uint32_t thread)
{
    struct batches *b = arg;

    if (world_n_rows(w) == 0)
        return;
    ck_assert_uint_lt(b->n, MAX_BATCHES);
    for (size_t i = 0; i < world_n_rows(w); i++) {
        struct world_row row;
        char number[16];
        struct text text;

        world_row(w, i, &row);
        if (act_is_padding(&row.acts[0]))
            continue;
        text = act_text(&row.acts[0]);
        ck_assert_uint_lt(b->n_rows[b->n], MAX_ROWS);
        (void)snprintf(number, sizeof(number), "%.*s", (int)text.len, text.text);
        b->rows[b->n][b->n_rows[b->n]++] = strtol(number, NULL, 10);
    }
    qsort(b->rows[b->n], b->n_rows[b->n], sizeof(long), long_compare);
    b->n += b->n_rows[b->n] > 0;
}

static void run(struct batches *out, struct world_counters *counters, enum dynamic_batching kind,
                const json_t *sizes)
{
    struct participant *tasks[1], *agents[1];
    struct model_participant_config model;
    struct teacher_config teacher_config;
    struct tiny_file file;
    struct teacher *teacher;
    struct world *w;
    struct error err;
    struct world_config config = {
        .tasks = tasks,
        .n_tasks = 1,
        .agents = agents,
        .n_agents = 1,
        .dynamic = kind,
        .counts_words = true,
        .batch_size = (size_t)json_integer_value(json_object_get(sizes, "batchsize")),
        .text_truncate = (size_t)json_integer_value(json_object_get(sizes, "text_truncate")),
        .label_truncate = (size_t)json_integer_value(json_object_get(sizes, "label_truncate")),
        .watch = take_batch,
        .watch_arg = out,
    };

    memset(out, 0, sizeof(*out));
    teacher_config_init(&teacher_config);
    teacher_config.batch_size = config.batch_size;
    ck_assert_int_eq(datatype_parse(&teacher_config.datatype, "valid", &err), STATUS_OK);
    ck_assert_int_eq(
        teacher_open(&teacher, "parlai:" GOLDEN_DIR "/long_tail.txt", &teacher_config, &err),
        STATUS_OK);
    tasks[0] = teacher_participant(teacher);
    tiny_file_open(&file);
    model = tiny_participant(&file);
    model.is_plain = true;
    model.no_reply = true;
    model.listener.text_truncate = config.text_truncate;
    model.listener.label_truncate = config.label_truncate;
    ck_assert_msg(model_open(&agents[0], &model, &err) == STATUS_OK, "%s", err.text);
    ck_assert_msg(world_open(&w, &config, &err) == STATUS_OK, "%s", err.text);
    ck_assert_msg(world_run(w, &err) == STATUS_OK, "%s", err.text);
    world_counters(w, counters);
    world_close(w);
    participant_unref(agents[0]);
    participant_unref(tasks[0]);
    tiny_file_close(&file);
}

static void compare(const struct batches *got, const struct world_counters *counters,
                    const json_t *want)
{
    const char *kind = json_string_value(json_object_get(want, "kind"));
    const json_t *batches = json_object_get(want, "batches");
    size_t n_rows = 0;

    ck_assert_msg(got->n == json_array_size(batches), "%s: %zu batches", kind, got->n);
    for (size_t b = 0; b < got->n; b++) {
        const json_t *rows = json_array_get(batches, b);
        long numbers[MAX_ROWS];

        ck_assert_msg(got->n_rows[b] == json_array_size(rows), "%s: %zu rows of batch %zu", kind,
                      got->n_rows[b], b);
        for (size_t i = 0; i < got->n_rows[b]; i++)
            numbers[i] = (long)json_integer_value(json_array_get(rows, i));
        qsort(numbers, got->n_rows[b], sizeof(long), long_compare);
        for (size_t i = 0; i < got->n_rows[b]; i++)
            ck_assert_msg(got->rows[b][i] == numbers[i], "%s: batch %zu has text %ld, not %ld",
                          kind, b, got->rows[b][i], numbers[i]);
        n_rows += got->n_rows[b];
    }
    ck_assert_uint_eq(counters->n_batches, got->n);
    ck_assert_uint_eq(counters->n_rows, n_rows);
    ck_assert_int_eq((json_int_t)counters->n_words,
                     json_integer_value(json_object_get(want, "words")));
    ck_assert_int_eq((json_int_t)counters->n_padded,
                     json_integer_value(json_object_get(want, "cells")));
}

/* Each batch has the rows of the golden file's, in the same order of batches. */
START_TEST(batches_are_the_rules)
{
    static const enum dynamic_batching kinds[] = {DYNAMIC_NONE, DYNAMIC_BATCHSORT, DYNAMIC_FULL};
    FILE *in = fopen(GOLDEN_DIR "/lm_batches.jsonl", "re");
    json_t *sizes, *want;
    struct world_counters counters;
    struct batches got;

    ck_assert_ptr_nonnull(in);
    sizes = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL);
    ck_assert_ptr_nonnull(sizes);
    for (size_t k = 0; k < 3; k++) {
        want = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL);
        ck_assert_ptr_nonnull(want);
        run(&got, &counters, kinds[k], sizes);
        compare(&got, &counters, want);
        json_decref(want);
    }
    json_decref(sizes);
    ck_assert_int_eq(fclose(in), 0);
}
END_TEST

SUITE_MAIN("parlai/lm_batches", batches_are_the_rules)
