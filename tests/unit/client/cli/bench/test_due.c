#include "client/cli/bench/due.h"

#include "base/counter_rng.h"
#include "tests/unit/base/suite.h"

/* However moments come, they go in order, each once. */
START_TEST(in_order)
{
    struct due d = {0};
    uint64_t before = 0, sum = 0;

    ck_assert_uint_eq(due_next(&d), UINT64_MAX);
    for (uint32_t i = 0; i < 1000; i++) {
        due_add(&d, (uint64_t)(1000 * counter_rng_uniform(1, 0, i, 0)), i);
        sum += i;
    }
    for (int i = 0; i < 1000; i++) {
        uint64_t next = due_next(&d);
        struct due_entry e = due_take(&d);

        ck_assert_uint_eq(next, e.at_us);
        ck_assert_uint_ge(e.at_us, before);
        before = e.at_us;
        sum -= e.id;
    }
    ck_assert_uint_eq(sum, 0);
    ck_assert_uint_eq(d.n, 0);
    due_deinit(&d);
}
END_TEST

SUITE_MAIN("client/cli/bench/due", in_order)
