#include "agents/agent.h"
#include "agents/turn.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"

static uint64_t no_time(void *self)
{
    return 1;
}

static void no_arm(void *self, uint64_t at_us)
{
}

static void no_step(void *self, struct batch_step *step)
{
}

static void on_closed(void *arg)
{
    *(bool *)arg = true;
}

static enum status batcher_once(void *arg)
{
    struct agent *a = arg;
    const struct env env = {.now_us = no_time};
    const struct batch_timer timer = {.arm = no_arm};
    const struct batch_compute compute = {.begin = no_step};
    struct batcher *b = NULL;
    struct batcher_config config;
    struct batch_agent agent;
    struct error err;
    bool is_closed = false;
    enum status rc;

    agent_batching(a, &config);
    agent_batch_adapter(a, &agent);
    rc = batcher_open(&b, &config, &agent, &compute, &timer, &env, &err);
    ck_assert((rc == STATUS_OK) == (b != NULL));
    if (b == NULL)
        return rc;
    batcher_close(b, on_closed, &is_closed);
    batcher_tick(b);
    ck_assert(is_closed);
    return rc;
}

static enum status agent_once(void *arg)
{
    const struct agent_config config = {.name = "e", .env = &env_real};
    struct agent *a = NULL;
    struct error err;
    enum status rc;

    rc = agent_open(&a, "echo", &config, &err);
    ck_assert((rc == STATUS_OK) == (a != NULL));
    agent_unref(a);
    return rc;
}

static enum status clone_once(void *arg)
{
    struct agent *a = arg;
    struct clone *c = NULL, *fork = NULL;
    struct error err;
    enum status rc;

    rc = clone_open(&c, a, &(struct clone_config){0}, &err);
    ck_assert((rc == STATUS_OK) == (c != NULL));
    if (rc == STATUS_OK)
        rc = clone_fork(&fork, c, 0, &err);
    ck_assert((rc == STATUS_OK) == (fork != NULL));
    clone_close(fork);
    clone_close(c);
    ck_assert_uint_eq(a->n_clones, 0);
    return rc;
}

/* Each allocation of an echo turn may fail: then the row fails. */
static enum status turn_once(void *arg)
{
    struct agent *a = arg;
    const struct message said = {.role = ROLE_USER, .text = "hello", .len = 5};
    struct agent_turn turn;
    struct clone *c = NULL;
    struct error err;
    enum status rc;

    rc = clone_open(&c, a, &(struct clone_config){0}, &err);
    if (rc != STATUS_OK)
        return rc;
    agent_turn_init(&turn, NULL, 100);
    turn.seen = (struct observation){.messages = &said, .n_messages = 1, .turn = 1};
    sampling_init(&turn.seen.sampling);
    rc = a->type->observe(c, &turn, &err);
    if (rc == STATUS_OK) {
        a->type->act(a, &turn.row);
        if (turn.row.outcome == ROW_DONE) {
            a->type->self_observe(c, &turn);
        } else {
            rc = turn.row.err.status;
        }
    }
    agent_turn_deinit(&turn);
    clone_close(c);
    return rc;
}

static struct agent *open_echo(void)
{
    const struct agent_config config = {.name = "e", .env = &env_real};
    struct agent *a = NULL;
    struct error err;

    ck_assert_int_eq(agent_open(&a, "echo", &config, &err), STATUS_OK);
    return a;
}

/* Opening a batcher without memory is EXHAUSTED and leaves nothing behind. */
START_TEST(test_batcher)
{
    struct agent *a = open_echo();

    ck_assert_int_eq(sweep(batcher_once, a), 3);
    agent_unref(a);
}
END_TEST

/* The same for agents, clones and forks, and for a whole turn of echo. */
START_TEST(test_agents)
{
    struct agent *a = open_echo();

    ck_assert_int_ge(sweep(agent_once, NULL), 1);
    ck_assert_int_eq(sweep(clone_once, a), 2);
    ck_assert_int_eq(sweep(turn_once, a), 2); /* the clone, and its reply */
    agent_unref(a);
}
END_TEST

SUITE_MAIN("fault/agents", test_batcher, test_agents)
