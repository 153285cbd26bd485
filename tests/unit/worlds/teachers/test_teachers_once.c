/* Real teachers in every kind of world: whatever the datatype, the size of batches and the number
 * of threads, each example is said once and scored once. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"
#include "worlds/baselines/simple.h"
#include "worlds/metrics/metrics.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/teacher.h"
#include "worlds/world/world.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SCALE = 16 }; /* so much slower, so much smaller */
#else
enum { SCALE = 1 };
#endif

enum { MAX_EXAMPLES = 4000 };

static const size_t batch_sizes[] = {1, 3, 7, 64, 1021};
static const size_t thread_counts[] = {1, 2, 8};
static const char *const datatypes[] = {"valid", "train:ordered", "valid:stream", "train:stream"};

static struct error err;
static char folder[32];

static void path_of(char out[128], const char *name)
{
    (void)snprintf(out, 128, "%s/%s", folder, name);
}

/* n examples "x0" … in episodes of at most turns turns; the label says the same. */
static void write_data(const char *name, size_t n, size_t turns)
{
    char path[128];
    FILE *to;

    path_of(path, name);
    to = fopen(path, "we");
    ck_assert_ptr_nonnull(to);
    for (size_t i = 0, turn = 0; i < n; i++) {
        bool is_last = ++turn > i % turns || i + 1 == n;

        (void)fprintf(to, "text:x%zu", i);
        for (size_t w = 0; w < i % 9; w++)
            (void)fputs(" w", to);
        (void)fprintf(to, "\tlabels:a label%s\n", is_last ? "\tepisode_done:True" : "");
        if (is_last)
            turn = 0;
    }
    ck_assert_int_eq(fclose(to), 0);
}

static char what[100];
static atomic_uint n_said[MAX_EXAMPLES];

static void watch(void *arg, const struct world *w, uint32_t thread)
{
    for (size_t i = 0; i < world_n_rows(w); i++) {
        struct world_row row;
        size_t example;

        world_row(w, i, &row);
        if (act_is_padding(&row.acts[0]))
            continue;
        ck_assert_int_eq(sscanf(act_text(&row.acts[0]).text, "x%zu", &example), 1);
        ck_assert_uint_lt(example, MAX_EXAMPLES);
        (void)atomic_fetch_add(&n_said[example], 1);
    }
}

static void check_epoch(struct world *w, size_t n)
{
    struct world_counters counters;
    struct report report = {0};

    ck_assert_msg(world_run(w, &err) == STATUS_OK, "%s", err.text);
    ck_assert_int_eq(world_report(&report, w, &err), STATUS_OK);
    world_counters(w, &counters);
    ck_assert_msg(counters.n_examples == n, "%llu of %zu, %s",
                  (unsigned long long)counters.n_examples, n, what);
    ck_assert_double_eq(metric_value(report_get(&report, "exs")), (double)n);
    report_deinit(&report);
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(atomic_exchange(&n_said[i], 0), 1);
}

/* So many epochs, resets between. */
static void check(const char *name, size_t n, const struct teacher_config *teacher_config,
                  const struct world_config *world_config, size_t n_epochs)
{
    struct world_config config = *world_config;
    struct simple_config simple;
    struct participant *task, *agent;
    struct teacher *teacher;
    struct world *w;
    char path[128], source[160];

    path_of(path, name);
    (void)snprintf(source, sizeof(source), "parlai:%s", path);
    ck_assert_msg(teacher_open(&teacher, source, teacher_config, &err) == STATUS_OK, "%s",
                  err.text);
    task = teacher_participant(teacher);
    simple_config_init(&simple);
    ck_assert_int_eq(simple_open(&agent, "repeat_query", &simple, &err), STATUS_OK);
    config.tasks = &task;
    config.agents = &agent;
    config.n_tasks = config.n_agents = 1;
    config.text_truncate = 16;
    config.watch = watch;
    ck_assert_msg(world_open(&w, &config, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_eq(world_n_examples(w), n);
    for (size_t i = 0; i < n_epochs; i++) {
        if (i > 0)
            world_reset(w);
        check_epoch(w, n);
    }
    world_close(w);
    participant_unref(agent);
    participant_unref(task);
}

static void check_grid(const char *name, size_t n, size_t turns)
{
    write_data(name, n, turns);
    for (size_t d = 0; d < sizeof(datatypes) / sizeof(datatypes[0]); d++)
        for (size_t b = 0; b < sizeof(batch_sizes) / sizeof(batch_sizes[0]); b++)
            for (size_t t = 0; t < sizeof(thread_counts) / sizeof(thread_counts[0]); t++)
                for (size_t full = 0; full < (b < 2 ? 1 : 2); full++) {
                    struct teacher_config teacher;
                    const struct world_config world = {.batch_size = batch_sizes[b],
                                                       .n_threads = thread_counts[t],
                                                       .n_slots = 100,
                                                       .dynamic =
                                                           full ? DYNAMIC_FULL : DYNAMIC_NONE};

                    (void)snprintf(what, sizeof(what), "%s, batch %zu, threads %zu, full %zu",
                                   datatypes[d], batch_sizes[b], thread_counts[t], full);
                    teacher_config_init(&teacher);
                    teacher.batch_size = batch_sizes[b];
                    teacher.n_shards = thread_counts[t];
                    ck_assert_int_eq(datatype_parse(&teacher.datatype, datatypes[d], &err),
                                     STATUS_OK);
                    check(name, n, &teacher, &world, batch_sizes[b] == 7 ? 2 : 1);
                }
}

static void open_folder(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/parley-once-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void close_folder(void)
{
    static const char *const names[] = {
        "one.txt",     "one.txt.stream",     "one.txt.stream.index",
        "several.txt", "several.txt.stream", "several.txt.stream.index"};
    char path[128];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        path_of(path, names[i]);
        (void)unlink(path);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

START_TEST(test_one_turn)
{
    open_folder();
    check_grid("one.txt", 2000 / SCALE, 1);
    close_folder();
}
END_TEST

START_TEST(test_turns)
{
    open_folder();
    check_grid("several.txt", 1500 / SCALE, 5);
    close_folder();
}
END_TEST

/* Short epochs, one after the other: who hears late that the last episode is taken does not begin
 * anew by himself, though data to be trained on do. */
START_TEST(test_ends_of_epochs)
{
    static const char *const kinds[] = {"valid", "train:ordered"};
    enum { N = 30, N_EPOCHS = 200 / SCALE };

    open_folder();
    write_data("one.txt", N, 1);
    for (size_t k = 0; k < 2; k++)
        for (size_t full = 0; full < 2; full++) {
            struct teacher_config teacher;
            const struct world_config world = {.batch_size = 3,
                                               .n_threads = 4,
                                               .n_slots = 5,
                                               .dynamic = full ? DYNAMIC_FULL : DYNAMIC_NONE};

            teacher_config_init(&teacher);
            teacher.batch_size = 3;
            teacher.n_shards = 4;
            ck_assert_int_eq(datatype_parse(&teacher.datatype, kinds[k], &err), STATUS_OK);
            check("one.txt", N, &teacher, &world, N_EPOCHS);
        }
    close_folder();
}
END_TEST

/* A teacher that deals out batches of like length itself. */
START_TEST(test_batch_sort)
{
    open_folder();
    write_data("several.txt", 1500 / SCALE, 5);
    for (size_t b = 1; b < sizeof(batch_sizes) / sizeof(batch_sizes[0]); b++)
        for (size_t t = 0; t < sizeof(thread_counts) / sizeof(thread_counts[0]); t++) {
            struct teacher_config teacher;
            const struct world_config world = {.batch_size = batch_sizes[b],
                                               .n_threads = thread_counts[t]};

            teacher_config_init(&teacher);
            teacher.batch_size = batch_sizes[b];
            teacher.n_shards = thread_counts[t];
            teacher.batch_sort = true;
            teacher.context_length = 1;
            check("several.txt", 1500 / SCALE, &teacher, &world, 1);
        }
    close_folder();
}
END_TEST

SUITE_MAIN("worlds/teachers_once", test_one_turn, test_turns, test_ends_of_epochs, test_batch_sort)
