#include "client/cli/bench/timeline.h"

#include "tests/unit/base/suite.h"

/* A load of any length fits: slices merge, and nothing is lost or moved to another time. */
START_TEST(merges)
{
    static struct timeline t;
    uint64_t n = 0, n_times = 0;

    for (uint64_t s = 0; s < 1000; s++) {
        struct moment *slice = timeline_at(&t, s * 1000 * 1000);

        slice->n_completed += s;
        quantiles_add(&slice->ttft_us, s);
    }
    ck_assert_uint_eq(t.width_us, 16 * 1000 * 1000);
    ck_assert_uint_eq(t.n, 63);
    for (size_t i = 0; i < t.n; i++) {
        n += t.moments[i].n_completed;
        n_times += t.moments[i].ttft_us.n;
        ck_assert_uint_eq(t.moments[i].ttft_us.min, i * 16);
    }
    ck_assert_uint_eq(n, 999 * 1000 / 2);
    ck_assert_uint_eq(n_times, 1000);
    ck_assert_double_eq_tol(timeline_seconds(&t, 1), 24, 1e-9);
    timeline_deinit(&t);
}
END_TEST

/* One load behind another: its slices keep their distance from its start. */
START_TEST(follows)
{
    static struct timeline into, from;

    timeline_at(&into, 0)->n_completed = 1;
    for (uint64_t s = 0; s < 5; s++)
        timeline_at(&from, s * 1000 * 1000)->n_completed = 10 + s;
    quantiles_add(&timeline_at(&from, 4000 * 1000)->e2el_us, 99);
    timeline_merge(&into, 3500 * 1000, &from);
    ck_assert_uint_eq(into.n, 8);
    ck_assert_uint_eq(into.moments[0].n_completed, 1);
    for (size_t i = 0; i < 5; i++)
        ck_assert_uint_eq(into.moments[3 + i].n_completed, 10 + i);
    ck_assert_uint_eq(into.moments[7].e2el_us.n, 1);
    timeline_deinit(&into);
    timeline_deinit(&from);
}
END_TEST

SUITE_MAIN("client/cli/bench/timeline", merges, follows)
