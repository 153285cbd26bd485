#include "agents/remote/tensors.h"

#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static enum status check(size_t n_observations, size_t n_actions, size_t n_numbers)
{
    const struct remote_tensors t = {
        .n_observations = n_observations, .n_actions = n_actions, .n_action_numbers = n_numbers};
    struct error err;

    return remote_tensors_check(&t, &err);
}

/* An offer has observations, and choices or numbers, within their bounds. */
START_TEST(test_offers)
{
    ck_assert_int_eq(check(4, 2, 0), STATUS_OK);
    ck_assert_int_eq(check(65536, 65536, 0), STATUS_OK);
    ck_assert_int_eq(check(1, 0, 65536), STATUS_OK);
    ck_assert_int_eq(check(0, 2, 0), STATUS_INVALID);
    ck_assert_int_eq(check(65537, 2, 0), STATUS_INVALID);
    ck_assert_int_eq(check(4, 0, 0), STATUS_INVALID);
    ck_assert_int_eq(check(4, 1, 0), STATUS_INVALID);
    ck_assert_int_eq(check(4, 65537, 0), STATUS_INVALID);
    ck_assert_int_eq(check(4, 0, 65537), STATUS_INVALID);
    ck_assert_int_eq(check(4, 2, 2), STATUS_INVALID);
}
END_TEST

/* What is kept is a copy, also when the worker's message is gone. */
START_TEST(test_kept)
{
    int64_t action = 2;
    float value = 0.5f;
    char name[] = "value";
    const struct remote_tensors t = {.n_observations = 1, .n_actions = 3, .has_value = true};
    const struct tensor_view output[] = {
        {.name = "action", .type = TENSOR_I64, .data = &action, .size_bytes = sizeof(action)},
        {.name = name, .type = TENSOR_F32, .data = &value, .size_bytes = sizeof(value)},
    };
    struct agent_turn turn;
    struct arena arena;
    struct error err;

    arena_init(&arena, 1 << 16);
    agent_turn_init(&turn, &arena, 0);
    ck_assert_int_eq(remote_tensors_check_output(&t, output, 2, &err), STATUS_OK);
    ck_assert_int_eq(remote_tensors_check_output(&t, output, 1, &err), STATUS_INVALID);
    ck_assert_int_eq(remote_tensors_keep(&turn, output, 2, &err), STATUS_OK);
    action = 3;
    value = NAN;
    ck_assert_int_eq(remote_tensors_check_output(&t, output, 2, &err), STATUS_INVALID);
    action = 0;
    ck_assert_int_eq(remote_tensors_check_output(&t, output, 2, &err), STATUS_INVALID);
    name[0] = '?';
    ck_assert_uint_eq(turn.reply.n_tensors, 2);
    ck_assert_int_eq(*(const int64_t *)turn.reply.tensors[0].data, 2);
    ck_assert_str_eq(turn.reply.tensors[1].name, "value");
    ck_assert(*(const float *)turn.reply.tensors[1].data == 0.5f);
    agent_turn_deinit(&turn);
    arena_deinit(&arena);
}
END_TEST

SUITE_MAIN("agents/remote/tensors", test_offers, test_kept)
