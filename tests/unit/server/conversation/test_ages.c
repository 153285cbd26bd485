#include "server/conversation/ages.h"

#include "tests/unit/base/suite.h"

#define DAY ((uint64_t)24 * 60 * 60 * 1000)
#define YEAR (365 * DAY)

/* A record a day in this order of writing: the i-th, of these days, has the seq 10 (i + 1). */
static uint64_t found(const uint64_t *days, size_t n, uint64_t age_days, uint64_t up_ms)
{
    struct error err;
    uint64_t seq;
    struct ages a;

    ages_init(&a);
    for (size_t i = n; i-- > 0;) /* in any order */
        ck_assert_int_eq(ages_add(&a, 10 * (i + 1), days[i] * DAY, &err), STATUS_OK);
    seq = ages_find(&a, age_days * DAY, up_ms);
    ages_deinit(&a);
    return seq;
}

#define FOUND(days, age, up) found(days, sizeof(days) / sizeof((days)[0]), age, up)

/* Records count among each other, and the process' own time. */
START_TEST(an_age_is_a_sum)
{
    static const uint64_t days[] = {100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110};

    ck_assert_uint_eq(found(days, 0, 1, 2 * DAY), 0);
    ck_assert_uint_eq(FOUND(days, 11, 0), 0);
    ck_assert_uint_eq(FOUND(days, 10, 0), 10);
    ck_assert_uint_eq(FOUND(days, 9, 0), 20);
    ck_assert_uint_eq(FOUND(days, 11, DAY - 1), 0);
    ck_assert_uint_eq(FOUND(days, 11, DAY), 10);
    ck_assert_uint_eq(FOUND(days, 11, 11 * DAY), 110);
}
END_TEST

/* Whatever a clock said, no record is old because of it: neither those before a jump nor those that
 * were written behind it. */
START_TEST(a_clock_makes_nothing_old)
{
    static const uint64_t ahead[] = {20000, 20001, 46000, 20002};
    static const uint64_t behind[] = {20000, 20001, 0, 20002};
    static const uint64_t twice[] = {20000, 46000, 20001, 46001, 20002, 46002};

    ck_assert_uint_eq(FOUND(ahead, 30, 0), 0);
    ck_assert_uint_eq(FOUND(behind, 30, 0), 0);
    ck_assert_uint_eq(FOUND(twice, 30, 0), 0);
    ck_assert_uint_eq(FOUND(ahead, 30, 30 * DAY), 40);
    ck_assert_uint_eq(FOUND(behind, 5, 4 * DAY), 10); /* a pause counts an eighth of the age */
}
END_TEST

/* Many of them take the memory that they need. */
START_TEST(there_may_be_many)
{
    struct error err;
    struct ages a;

    ages_init(&a);
    for (uint64_t i = 100000; i > 0; i--)
        ck_assert_int_eq(ages_add(&a, i, i * 60000, &err), STATUS_OK);
    ck_assert_uint_eq(ages_find(&a, 1000 * (uint64_t)60000, 0), 100000 - 1000);
    ages_deinit(&a);
    ck_assert_uint_eq(ages_find(&a, 1, YEAR), 0);
}
END_TEST

SUITE_MAIN("server/conversation/ages", an_age_is_a_sum, a_clock_makes_nothing_old,
           there_may_be_many)
