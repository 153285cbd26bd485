#include "client/cli/bench/shape.h"

#include "tests/unit/base/suite.h"

static unsigned long tokens_of(const struct trace *t)
{
    unsigned long n = 0;

    for (uint32_t i = 0; i < t->items[0].n_turns; i++)
        n += t->items[0].turns[i].input_tokens + t->items[0].turns[i].output_tokens;
    return n;
}

START_TEST(agent)
{
    struct trace t;
    struct error err;

    ck_assert_int_eq(shape_make(&t, "agent", &err), STATUS_OK);
    ck_assert_uint_eq(t.n, 1);
    ck_assert_uint_eq(t.items[0].n_turns, 43);
    ck_assert_uint_eq(t.max_turns, 43);
    ck_assert_uint_eq(tokens_of(&t), 142000);
    ck_assert_ptr_null(t.at_s);
    ck_assert_ptr_null(t.items[0].turns[42].text);
    trace_deinit(&t);
    ck_assert_int_eq(shape_make(&t, "agent:0.1", &err), STATUS_OK);
    ck_assert_uint_eq(tokens_of(&t), 14200);
    trace_deinit(&t);
    ck_assert_int_eq(shape_make(&t, "agent:0.000001", &err), STATUS_OK);
    ck_assert_uint_eq(tokens_of(&t), 2 * 43);
    trace_deinit(&t);
}
END_TEST

START_TEST(none)
{
    static const char *const wrong[] = {"",        "agen",      "agents",    "agent:",   "agent:0",
                                        "agent:x", "agent:101", "agent:nan", "agent:-1", "chat"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct trace t;
        struct error err;

        ck_assert_int_eq(shape_make(&t, wrong[i], &err), STATUS_INVALID);
        trace_deinit(&t);
    }
}
END_TEST

SUITE_MAIN("client/cli/bench/shape", agent, none)
