/* Whatever the world, the size of its batches and the number of its threads: each example is
 * answered once, and as many as were asked for. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/support/fake_task.h"
#include "tests/unit/base/suite.h"
#include "worlds/baselines/simple.h"
#include "worlds/world/world.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SCALE = 8 }; /* so much slower, so much smaller */
#else
enum { SCALE = 1 };
#endif

static const size_t batch_sizes[] = {1, 3, 7, 64, 1021};
static const size_t thread_counts[] = {1, 2, 8};

enum { N_BATCHES = 5, N_THREADS = 3 };

static struct participant *open_agent(const char *name)
{
    struct simple_config config;
    struct participant *agent;
    struct error err;

    simple_config_init(&config);
    ck_assert_int_eq(simple_open(&agent, name, &config, &err), STATUS_OK);
    return agent;
}

struct run {
    struct participant *tasks[2], *agent;
    struct text names[2];
    struct world_config config;
    struct world *world;
};

static void run_open(struct run *r, struct fake_task *a, struct fake_task *b, const char *agent)
{
    memset(r->names, 0, sizeof(r->names));
    r->names[0] = (struct text){"a", 1};
    r->names[1] = (struct text){"b", 1};
    r->tasks[0] = &a->base;
    r->tasks[1] = b != NULL ? &b->base : NULL;
    r->agent = open_agent(agent);
    r->config.tasks = r->tasks;
    r->config.n_tasks = b != NULL ? 2 : 1;
    r->config.task_names = r->names;
    r->config.agents = &r->agent;
    r->config.n_agents = 1;
    r->config.text_truncate = 16;
}

static void run_all(struct run *r)
{
    struct world_counters counters;
    struct error err;

    ck_assert_msg(world_open(&r->world, &r->config, &err) == STATUS_OK, "%s", err.text);
    ck_assert_msg(world_run(r->world, &err) == STATUS_OK, "%s", err.text);
    world_counters(r->world, &counters);
    ck_assert_uint_eq(counters.n_examples, r->config.n_examples != 0 ? r->config.n_examples
                                                                     : world_n_examples(r->world));
    world_close(r->world);
    participant_unref(r->agent);
}

static void check_grid(size_t n_episodes, size_t turns, enum dynamic_batching dynamic)
{
    struct fake_example *examples = fake_examples(n_episodes, turns);

    for (size_t b = 0; b < N_BATCHES; b++)
        for (size_t t = 0; t < N_THREADS; t++) {
            struct fake_task *task = fake_task_open("a", examples, n_episodes * turns);
            struct run r = {.config = {.batch_size = batch_sizes[b],
                                       .n_threads = thread_counts[t],
                                       .dynamic = dynamic}};

            run_open(&r, task, NULL,
                     dynamic == DYNAMIC_NONE && b % 2 == 0 ? "repeat_label" : "repeat_query");
            run_all(&r);
            ck_assert_msg(fake_task_is_even(task, 1), "batch %zu, threads %zu", batch_sizes[b],
                          thread_counts[t]);
            participant_unref(&task->base);
        }
    free(examples);
}

/* Episodes of one turn. */
START_TEST(test_one_turn)
{
    check_grid(2000 / SCALE, 1, DYNAMIC_NONE);
}
END_TEST

/* Episodes of several. */
START_TEST(test_turns)
{
    check_grid(500 / SCALE, 5, DYNAMIC_NONE);
}
END_TEST

START_TEST(test_dynamic_one_turn)
{
    check_grid(2000 / SCALE, 1, DYNAMIC_FULL);
}
END_TEST

START_TEST(test_dynamic_turns)
{
    check_grid(500 / SCALE, 5, DYNAMIC_FULL);
    check_grid(500 / SCALE, 5, DYNAMIC_BATCHSORT);
}
END_TEST

/* Two tasks, in turn and by chance, in every kind of world: nothing of either is lost. */
START_TEST(test_two_tasks)
{
    struct fake_example *more = fake_examples(90, 3), *fewer = fake_examples(17, 2);

    for (size_t dynamic = 0; dynamic <= DYNAMIC_FULL; dynamic++)
        for (size_t b = 0; b < N_BATCHES; b++)
            for (size_t shuffle = 0; shuffle < 2; shuffle++) {
                struct fake_task *x = fake_task_open("a", more, 270);
                struct fake_task *y = fake_task_open("b", fewer, 34);
                struct run r = {.config = {.batch_size = batch_sizes[b],
                                           .n_threads = 1 + b % 2,
                                           .shuffle = shuffle == 1,
                                           .stochastic = b == 2,
                                           .dynamic = (enum dynamic_batching)dynamic}};

                run_open(&r, x, y, "repeat_query");
                run_all(&r);
                ck_assert(fake_task_is_even(x, 1) && fake_task_is_even(y, 1));
                participant_unref(&x->base);
                participant_unref(&y->base);
            }
    free(more);
    free(fewer);
}
END_TEST

/* As many as were asked for and not one more, of data that end and of data that do not. */
START_TEST(test_quota)
{
    struct fake_example *examples = fake_examples(60, 5);

    for (size_t endless = 0; endless < 2; endless++)
        for (size_t b = 0; b < N_BATCHES; b++)
            for (size_t t = 0; t < N_THREADS; t++)
                for (size_t dynamic = 0; dynamic <= DYNAMIC_FULL; dynamic++) {
                    struct fake_task *task = fake_task_open("a", examples, 300);
                    struct run r = {.config = {.batch_size = batch_sizes[b],
                                               .n_threads = thread_counts[t],
                                               .n_examples = 100,
                                               .dynamic = (enum dynamic_batching)dynamic}};

                    task->is_endless = endless == 1;
                    run_open(&r, task, NULL, "repeat_query");
                    run_all(&r);
                    ck_assert_uint_eq(fake_task_n_answers(task), 100);
                    participant_unref(&task->base);
                }
    free(examples);
}
END_TEST

/* An epoch after a reset has all examples once more; one that is reset half way begins anew. */
START_TEST(test_epochs)
{
    struct fake_example *examples = fake_examples(50, 3);
    struct error err;

    for (size_t dynamic = 0; dynamic <= DYNAMIC_FULL; dynamic++)
        for (size_t t = 0; t < N_THREADS; t++) {
            struct fake_task *task = fake_task_open("a", examples, 150);
            struct run r = {.config = {.batch_size = 7,
                                       .n_threads = thread_counts[t],
                                       .dynamic = (enum dynamic_batching)dynamic}};

            run_open(&r, task, NULL, "repeat_query");
            ck_assert_int_eq(world_open(&r.world, &r.config, &err), STATUS_OK);
            for (unsigned epoch = 1; epoch <= 3; epoch++) {
                ck_assert_int_eq(world_run(r.world, &err), STATUS_OK);
                ck_assert(fake_task_is_even(task, epoch));
                world_reset(r.world);
                ck_assert(!world_epoch_done(r.world));
            }
            ck_assert_int_eq(world_parley(r.world, &err), STATUS_OK);
            for (size_t i = 0; i < 150; i++)
                atomic_store(&task->n_answered[i], 0);
            world_reset(r.world);
            ck_assert_int_eq(world_run(r.world, &err), STATUS_OK);
            ck_assert(fake_task_is_even(task, 1));
            world_close(r.world);
            participant_unref(r.agent);
            participant_unref(&task->base);
        }
    free(examples);
}
END_TEST

SUITE_MAIN("worlds/exact_once", test_one_turn, test_turns, test_dynamic_one_turn,
           test_dynamic_turns, test_two_tasks, test_quota, test_epochs)
