/* A language model in a world when memory fails: each fault point of an epoch in turn. A failure
 * ends the run with an error line, and leaves nothing behind. */
#include <stdlib.h>

#include "tests/fault/sweep.h"
#include "tests/support/fake_task.h"
#include "tests/support/tiny_participant.h"
#include "tests/unit/base/suite.h"
#include "worlds/world/world.h"

enum { N_EPISODES = 2, N_TURNS = 2 };

struct epoch {
    struct participant *agent;
    struct fake_task *task;
};

static enum status run_once(void *arg)
{
    const struct epoch *e = arg;
    struct participant *tasks[] = {&e->task->base};
    struct world_config config = {
        .tasks = tasks, .n_tasks = 1, .agents = &e->agent, .n_agents = 1, .batch_size = 2};
    struct world *w = NULL;
    struct error err;
    enum status rc = world_open(&w, &config, &err);

    if (rc == STATUS_OK)
        rc = world_run(w, &err);
    world_close(w);
    e->task->base.type->reset_shared(&e->task->base);
    return rc == STATUS_UNAVAILABLE ? STATUS_EXHAUSTED
                                    : rc; /* a row that failed for lack of memory */
}

START_TEST(epochs_survive)
{
    struct tiny_file file;
    struct model_participant_config config;
    struct epoch e;
    struct fake_example *examples = fake_examples(N_EPISODES, N_TURNS);
    struct error err;

    tiny_file_open(&file);
    config = tiny_participant(&file);
    config.sampling.max_tokens = 2;
    ck_assert_int_eq(model_open(&e.agent, &config, &err), STATUS_OK);
    e.task = fake_task_open("t", examples, N_EPISODES * N_TURNS);
    ck_assert_int_gt(sweep(run_once, &e), 50);
    participant_unref(e.agent);
    participant_unref(&e.task->base);
    free(examples);
    tiny_file_close(&file);
}
END_TEST

SUITE_MAIN("fault/model", epochs_survive)
