/* Worlds when memory or a thread fails: opening, a few parleys, a report, each fault point in turn.
 * After any failure all clones are closed and nothing leaks. */
#include <stdlib.h>
#include <string.h>

#include "tests/fault/sweep.h"
#include "tests/support/fake_task.h"
#include "tests/unit/base/suite.h"
#include "worlds/baselines/dictionary.h"
#include "worlds/baselines/simple.h"
#include "worlds/metrics/metrics.h"
#include "worlds/world/world.h"

static struct fake_example *examples;
static struct fake_task *tasks[2];

static void watch(void *arg, const struct world *w, uint32_t thread)
{
}

static enum status agent_once(struct participant **out, const char *name, struct dictionary **d,
                              struct error *err)
{
    struct simple_config config;
    enum status rc = STATUS_OK;

    simple_config_init(&config);
    if (simple_needs_dictionary(name)) {
        rc = dictionary_open(d, err);
        if (rc == STATUS_OK)
            rc = dictionary_add(*d, (struct text){"one two two three", 17}, err);
    }
    config.dictionary = *d;
    config.history_size = 3;
    return rc == STATUS_OK ? simple_open(out, name, &config, err) : rc;
}

struct kind {
    const char *agent;
    struct world_config config;
};

static enum status world_once(void *arg)
{
    const struct kind *kind = arg;
    struct participant *members[] = {&tasks[0]->base, &tasks[1]->base}, *agent = NULL;
    const struct text names[] = {{"a", 1}, {"b", 1}};
    struct world_config config = kind->config;
    struct dictionary *d = NULL;
    struct report report = {0};
    struct world *w = NULL;
    struct error err;
    enum status rc = agent_once(&agent, kind->agent, &d, &err);

    config.tasks = members;
    config.task_names = names;
    config.agents = &agent;
    config.n_agents = 1;
    config.text_truncate = 8;
    if (rc == STATUS_OK)
        rc = world_open(&w, &config, &err);
    for (size_t i = 0; i < 3 && rc == STATUS_OK; i++)
        rc = world_parley(w, &err);
    if (rc == STATUS_OK)
        rc = world_report(&report, w, &err);
    if (w != NULL)
        world_reset(w);
    report_deinit(&report);
    world_close(w);
    participant_unref(agent);
    dictionary_close(d);
    ck_assert_uint_eq(atomic_load(&tasks[0]->n_open), atomic_load(&tasks[0]->n_closed));
    return rc;
}

START_TEST(worlds_survive)
{
    struct kind kinds[] = {
        {"repeat_label", {.n_tasks = 1}},
        {"ir_baseline", {.n_tasks = 2, .shuffle = true}},
        {"unigram", {.n_tasks = 1, .batch_size = 3, .watch = watch}},
        {"repeat_query", {.n_tasks = 2, .batch_size = 3}},
        {"repeat_query",
         {.n_tasks = 2, .batch_size = 3, .dynamic = DYNAMIC_FULL, .n_slots = 5, .watch = watch}},
        {"random_candidate", {.n_tasks = 1, .batch_size = 2, .n_threads = 2}},
    };

    examples = fake_examples(8, 2);
    tasks[0] = fake_task_open("a", examples, 16);
    tasks[1] = fake_task_open("b", examples, 16);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_int_gt(sweep(world_once, &kinds[i]), 5);
    participant_unref(&tasks[0]->base);
    participant_unref(&tasks[1]->base);
    free(examples);
}
END_TEST

SUITE_MAIN("fault/parley", worlds_survive)
