#include <string.h>

#include "tests/unit/base/suite.h"
#include "worlds/environment/environment.h"

/* A name is found in any case, with or without its version; an unknown one is told what there is.
 */
START_TEST(test_opens_by_name)
{
    static const char *const names[] = {"CartPole-v1", "cartpole-v1", "cartpole", "CartPole"};
    struct environment *e = NULL;
    struct error err;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ck_assert_int_eq(environment_open(&e, names[i], &err), STATUS_OK);
        ck_assert_str_eq(e->type->name, "CartPole-v1");
        environment_close(e);
    }
    ck_assert_int_eq(environment_open(&e, "cart", &err), STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "CartPole-v1"));
}
END_TEST

/* The same seed and episode begin alike, others do not, and all begin within 0.05 of the middle. */
START_TEST(test_resets_by_seed)
{
    struct environment *e;
    struct error err;
    float first[4], again[4], other[4];

    ck_assert_int_eq(environment_open(&e, "cartpole", &err), STATUS_OK);
    environment_reset(e, 543, 0, first);
    environment_reset(e, 543, 1, other);
    environment_reset(e, 543, 0, again);
    ck_assert_mem_eq(first, again, sizeof(first));
    ck_assert(memcmp(first, other, sizeof(first)) != 0);
    for (size_t i = 0; i < 4; i++)
        ck_assert(first[i] >= -0.05F && first[i] < 0.05F);
    environment_close(e);
}
END_TEST

/* Pushed one way only, the pole falls within a dozen steps, and a reward of 1 comes with each. */
START_TEST(test_falls)
{
    struct environment *e;
    struct environment_step step = {0};
    struct error err;
    float observation[4];

    ck_assert_int_eq(environment_open(&e, "cartpole", &err), STATUS_OK);
    environment_reset(e, 1, 0, observation);
    while (!step.terminated) {
        environment_step(e, 1, &step);
        ck_assert_float_eq(step.reward, 1);
        ck_assert_uint_lt(e->n_steps, 15);
    }
    ck_assert(!step.truncated && e->is_over);
    environment_close(e);
}
END_TEST

/* GridWorld begins in two different cells of the grid, Pendulum within its bounds; each is cut. */
START_TEST(test_other_kinds)
{
    struct environment *grid, *pendulum;
    struct environment_step step = {0};
    const float torque = 5;
    struct error err;
    float o[4];

    ck_assert_int_eq(environment_open(&grid, "gridworld", &err), STATUS_OK);
    ck_assert_int_eq(environment_open(&pendulum, "pendulum", &err), STATUS_OK);
    for (uint32_t episode = 0; episode < 2000; episode++) {
        environment_reset(grid, 7, episode, o);
        ck_assert(o[0] != o[2] || o[1] != o[3]);
        for (size_t i = 0; i < 4; i++)
            ck_assert(o[i] >= 0 && o[i] <= 4);
        environment_reset(pendulum, 7, episode, o);
        ck_assert(o[2] >= -1 && o[2] < 1);
    }
    for (size_t i = 0; i < 200; i++) {
        ck_assert(!pendulum->is_over);
        environment_step_numbers(pendulum, &torque, &step);
        ck_assert(step.reward <= 0 && step.observation[2] <= 8 && !step.terminated);
    }
    ck_assert(pendulum->is_over && step.truncated);
    environment_close(grid);
    environment_close(pendulum);
}
END_TEST

SUITE_MAIN("worlds/environment", test_opens_by_name, test_resets_by_seed, test_falls,
           test_other_kinds)
