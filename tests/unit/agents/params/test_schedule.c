#include "agents/params/schedule.h"

#include <math.h>

#include "tests/unit/base/suite.h"

static void check(const struct schedule *s, uint64_t round, double rate)
{
    ck_assert_double_eq_tol((double)schedule_rate(s, round), rate, 1e-7 * rate + 1e-12);
}

/* The given rate in every round, to the last bit. */
START_TEST(test_constant)
{
    const struct schedule s = {.rate = 0.001};

    ck_assert(schedule_rate(&s, 1) == 0.001f && schedule_rate(&s, UINT64_MAX) == 0.001f);
}
END_TEST

/* Multiplied by a tenth after every three rounds. */
START_TEST(test_step)
{
    const struct schedule s = {SCHEDULE_STEP, .rate = 0.5, .step_size = 3, .factor = 0.1};

    for (uint64_t round = 1; round <= 12; round++)
        check(&s, round, 0.5 * pow(0.1, (double)((round - 1) / 3)));
}
END_TEST

/* From the rate to the minimum in half a cosine, then the minimum. */
START_TEST(test_cosine)
{
    const struct schedule s = {SCHEDULE_COSINE, .rate = 1.0, .total = 8, .minimum = 0.2};

    check(&s, 1, 1.0);
    check(&s, 5, 0.6);
    for (uint64_t round = 1; round <= 9; round++)
        check(&s, round, 0.2 + 0.8 * (1.0 + cos(M_PI * (double)(round - 1) / 8.0)) / 2.0);
    check(&s, 1000, 0.2);
}
END_TEST

/* Each kind begins after the warm-up as it would without one. */
START_TEST(test_warm_up)
{
    struct schedule s = {.rate = 0.4, .warm_up = 4, .step_size = 2, .factor = 0.5, .total = 12};

    for (int kind = SCHEDULE_CONSTANT; kind <= SCHEDULE_COSINE; kind++) {
        s.kind = (enum schedule_kind)kind;
        for (uint64_t round = 1; round <= 4; round++)
            check(&s, round, 0.1 * (double)round);
        check(&s, 5, 0.4);
    }
    check(&s, 9, 0.2);
    check(&s, 13, 0.0);
    s.kind = SCHEDULE_STEP;
    check(&s, 7, 0.2);
}
END_TEST

/* Invalid values are refused by name. */
START_TEST(test_check)
{
    static const struct {
        struct schedule s;
        const char *field;
    } bad[] = {
        {{.rate = -1.0}, "learning_rate"},
        {{.rate = (double)INFINITY}, "learning_rate"},
        {{.rate = (double)NAN}, "learning_rate"},
        {{.rate = 1e300}, "learning_rate"},
        {{SCHEDULE_STEP, .rate = 1.0, .factor = 0.5}, "schedule.step_size"},
        {{SCHEDULE_STEP, .rate = 1.0, .step_size = 1, .factor = -0.5}, "schedule.factor"},
        {{SCHEDULE_COSINE, .rate = 1.0, .warm_up = 5, .total = 5}, "schedule.total"},
        {{SCHEDULE_COSINE, .rate = 1.0, .total = 5, .minimum = -1.0}, "schedule.minimum"},
    };
    struct error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(schedule_check(&bad[i].s, &err), STATUS_INVALID);
        ck_assert_str_eq(err.field, bad[i].field);
    }
    ck_assert_int_eq(schedule_check(&(struct schedule){.rate = 0.0}, &err), STATUS_OK);
}
END_TEST

SUITE_MAIN("agents/params/schedule", test_constant, test_step, test_cosine, test_warm_up,
           test_check)
