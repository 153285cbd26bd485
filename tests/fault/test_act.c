/* Sessions and training runs when memory fails: a refused operation changes nothing, and succeeds
 * when it is repeated. */
#include <stdlib.h>
#include <string.h>

#include "server/act/trainer.h"
#include "tests/fault/sweep.h"
#include "tests/support/fake_actor.h"
#include "tests/unit/base/suite.h"

/* Runs a step until it is done; a fault hits once, so the second attempt must succeed. */
static enum status step(struct fake_actor *f, const struct fake_request *r, float action)
{
    for (int i = 0; i < 2; i++) {
        struct fake_step s;
        struct error err;
        enum status rc = fake_step(f, &s, r, &err);

        fake_actor_run(f);
        if (rc == STATUS_OK)
            rc = s.err.status;
        if (rc == STATUS_OK) {
            ck_assert_float_eq(s.action, action);
            return rc;
        }
        ck_assert_int_eq(rc, STATUS_EXHAUSTED);
    }
    ck_abort_msg("twice");
    return STATUS_INTERNAL;
}

static enum status converse(void *arg)
{
    static const struct sessions_config config;
    static const struct act_config lockstep = {.mode = ACT_LOCKSTEP, .n = 1};
    struct session_lease h = {0};
    struct fake_actor f;
    struct error err;
    enum status rc = fake_actor_open(&f, &config, &err);
    char name[] = "a";

    if (rc != STATUS_OK)
        return rc;
    for (uint64_t i = 1; i <= 3; i++)
        (void)step(&f, &(struct fake_request){.env_id = "env", .run_id = 1, .seq = i, .a = 1},
                   (float)i);
    (void)step(&f, &(struct fake_request){.env_id = "env", .run_id = 2, .seq = 1, .a = 1}, 1);
    for (name[0] = 32; name[0] < 112; name[0]++) /* the table grows, or works without growing */
        (void)step(&f, &(struct fake_request){.env_id = name, .run_id = 1, .seq = 1, .a = 1}, 1);
    ck_assert_uint_eq(f.all.limit.held, 81);
    rc = act_configure(&f.all.modes, &f.model, &lockstep, &err);
    if (rc == STATUS_OK)
        rc = sessions_lease(&f.all, 0, &f.model, "held", 1, 1, &h, &err);
    session_release(&h);
    (void)step(&f, &(struct fake_request){.env_id = "env", .run_id = 2, .seq = 2, .a = 1}, 2);
    fake_actor_close(&f);
    return rc;
}

/* Every allocation of sessions, steps and modes fails in turn. */
START_TEST(test_sessions)
{
    ck_assert_int_gt(sweep(converse, NULL), 100);
}
END_TEST

static unsigned n_ended;

static void tell(struct act_training_run *t, const struct training_event *event)
{
}

static void ended(struct act_training_run *t, const struct error *err)
{
    ck_assert_int_eq(err->status, STATUS_CANCELLED);
    n_ended++;
}

static enum status train(void *arg)
{
    static const struct sessions_config config;
    struct act_training_run t = {.tell = tell,
                                 .ended = ended,
                                 .config = {.n_workers = 2,
                                            .n_episodes = 1,
                                            .n_steps = 10,
                                            .gamma = 1,
                                            .learn.learning_rate = 0.01f,
                                            .save_path = "",
                                            .timeout_ms = 1000}};
    struct trainers all;
    struct fake_actor f;
    struct error err;
    uv_loop_t *loop = arg;
    enum status rc = fake_actor_open(&f, &config, &err);

    if (rc != STATUS_OK)
        return rc;
    trainers_init(&all, &f.all, loop);
    t.model = &f.model;
    n_ended = 0;
    rc = training_run_start(&t, &all, &err);
    if (rc == STATUS_OK) {
        training_run_cancel(&t);
        ck_assert_uint_eq(n_ended, 0); /* never inside */
        (void)uv_run(loop, UV_RUN_DEFAULT);
        ck_assert_uint_eq(n_ended, 1);
    }
    ck_assert(trainers_are_idle(&all));
    fake_actor_close(&f);
    return rc;
}

/* Every allocation of a training run's start fails in turn. */
START_TEST(test_training)
{
    uv_loop_t loop;

    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_gt(sweep(train, &loop), 3);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

static void tell_and_cancel(struct act_training_run *t, const struct training_event *event)
{
    ck_assert_uint_eq(event->n_workers, 0);
    training_run_cancel(t);
}

static void no_notify(struct env_worker *o)
{
}

/* Without memory for an event the training run is cancelled, also after an episode that no worker
 * completed. */
START_TEST(test_cancelled_by_an_event)
{
    static const struct sessions_config config;
    struct act_training_run t = {.tell = tell_and_cancel,
                                 .ended = ended,
                                 .config = {.n_workers = 1,
                                            .n_episodes = 2,
                                            .n_steps = 10,
                                            .gamma = 1,
                                            .learn.learning_rate = 0.01f,
                                            .save_path = "",
                                            .timeout_ms = 1000}};
    struct env_worker o = {.env_id = "a", .run_id = 1, .notify = no_notify};
    struct episode_result failed = {.has_failed = true};
    struct trainers all;
    struct fake_actor f;
    struct error err;
    uv_loop_t loop;

    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(fake_actor_open(&f, &config, &err), STATUS_OK);
    trainers_init(&all, &f.all, &loop);
    t.model = o.model = &f.model;
    n_ended = 0;
    ck_assert_int_eq(training_run_start(&t, &all, &err), STATUS_OK);
    ck_assert_int_eq(env_worker_open(&o, &all, &err), STATUS_OK);
    ck_assert(o.has_order);
    failed.episode = o.order.episode;
    ck_assert_int_eq(env_worker_result(&o, &failed, &err), STATUS_OK);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_uint_eq(n_ended, 1);
    env_worker_close(&o);
    ck_assert(trainers_are_idle(&all));
    fake_actor_close(&f);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

SUITE_MAIN("fault/act", test_sessions, test_training, test_cancelled_by_an_event)
