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

SUITE_MAIN("client/cli/bench/timeline", merges)
