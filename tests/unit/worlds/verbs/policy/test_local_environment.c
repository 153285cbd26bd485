/* Environments that the program steps itself; of plug-ins that of faulty_environment.c, whose
 * actions are two numbers and whose observation is its seed, its episode and its steps. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "worlds/verbs/policy/local_environment.h"

static struct environment *opened(const char *name)
{
    struct environment *e;
    struct error err;

    ck_assert_msg(local_environment_open(&e, name, &err) == STATUS_OK, "%s", err.text);
    return e;
}

static void refused(const char *name, enum status status, const char *why)
{
    struct environment *e;
    struct error err;

    ck_assert_int_eq(local_environment_open(&e, name, &err), status);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' has no '%s'", err.text, why);
}

/* One that is built in is as ever. */
START_TEST(test_built_in)
{
    float seen[ENVIRONMENT_MAX_OBSERVATION];
    struct environment *e = opened("cartpole");

    environment_reset(e, 1, 0, seen);
    ck_assert_str_eq(e->type->name, "CartPole-v1");
    ck_assert_ptr_null(local_environment_failure(e));
    local_environment_close(e);
    local_environment_close(NULL);
    refused("pong", STATUS_NOT_FOUND, "it must be one of: CartPole-v1");
}
END_TEST

/* A plug-in's gets seed and episode, its steps what it is to do, and its bound cuts it. */
START_TEST(test_plugged_in)
{
    const float action[] = {0.25F, 0}, last[] = {2, 1};
    float seen[ENVIRONMENT_MAX_OBSERVATION];
    struct environment *e = opened("plugin:" ENVIRONMENT_WHOLE);
    struct environment_step step;

    ck_assert_uint_eq(e->type->n_observation, 3);
    ck_assert_uint_eq(e->type->n_actions, 0);
    ck_assert_uint_eq(e->type->n_action_numbers, 2);
    environment_reset(e, 7, 3, seen);
    ck_assert(seen[0] == 7 && seen[1] == 3 && seen[2] == 0);
    for (int i = 1; i <= 5; i++) {
        environment_step_numbers(e, action, &step);
        ck_assert(step.observation[2] == (float)i && step.reward == 1.25F);
        ck_assert(!step.terminated && step.truncated == (i == 5) && e->is_over == (i == 5));
    }
    environment_reset(e, 7, 4, seen);
    ck_assert(seen[1] == 4 && seen[2] == 0);
    environment_step_numbers(e, last, &step);
    ck_assert(step.terminated && !step.truncated && e->is_over);
    ck_assert_ptr_null(local_environment_failure(e));
    local_environment_close(e);
}
END_TEST

/* What it says of a failure is told, as are numbers that are none; a reset brings it back. */
START_TEST(test_failures)
{
    const float fails[] = {0, 3}, nan_reward[] = {0, 4}, infinite[] = {0, 5};
    const float *const bad[] = {nan_reward, infinite};
    float seen[ENVIRONMENT_MAX_OBSERVATION];
    struct environment *e = opened("plugin:" ENVIRONMENT_WHOLE);
    struct environment_step step;

    environment_reset(e, 666, 0, seen);
    ck_assert_str_eq(local_environment_failure(e), "the environment failed: it does not begin");
    environment_reset(e, 666, 1, seen);
    ck_assert_ptr_null(local_environment_failure(e));
    environment_step_numbers(e, fails, &step);
    ck_assert_str_eq(local_environment_failure(e), "the environment failed: it was told to fail");
    for (int i = 0; i < 2; i++) {
        environment_reset(e, 1, 0, seen);
        environment_step_numbers(e, bad[i], &step);
        ck_assert_ptr_nonnull(strstr(local_environment_failure(e), "not finite"));
    }
    local_environment_close(e);
}
END_TEST

/* A file that has none, or one that is larger than what is played here, is one line with its name.
 */
START_TEST(test_refused)
{
    refused("plugin:" PLUGIN_ECHO, STATUS_PRECONDITION, "it has no environment");
    refused("plugin:" ENVIRONMENT_ABI, STATUS_PRECONDITION, "ABI");
    refused("plugin:" ENVIRONMENT_HUNDRED, STATUS_UNIMPLEMENTED,
            "an observation of faulty-v0 has 100 numbers, it may have at most 64");
    refused("attached", STATUS_NOT_FOUND, "environments of the server run only there");
    refused("plugin:/nowhere.so", STATUS_NOT_FOUND, "/nowhere.so");
}
END_TEST

SUITE_MAIN("worlds/verbs/policy/local_environment", test_built_in, test_plugged_in, test_failures,
           test_refused)
