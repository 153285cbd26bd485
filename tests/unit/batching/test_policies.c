#include "batching/policy.h"

#include "tests/unit/base/suite.h"

static const struct batcher_config config = {.max_rows = 4, .max_delay_us = 100};

static size_t admitted(enum batch_policy which, const struct policy_view *v, uint64_t *wake_us)
{
    struct policy_view seen = *v;

    seen.config = &config;
    *wake_us = 0;
    return policy_of(which)->admit(&seen, wake_us);
}

/* Each policy is found by its number and has its name. */
START_TEST(test_names)
{
    ck_assert_str_eq(policy_of(BATCH_FIXED)->name, "fixed");
    ck_assert_str_eq(policy_of(BATCH_WINDOW)->name, "window");
    ck_assert_str_eq(policy_of(BATCH_CONTINUOUS)->name, "continuous");
    ck_assert_str_eq(policy_of(BATCH_ADAPTIVE)->name, "gather");
    ck_assert_str_eq(policy_of(BATCH_BATCHSORT)->name, "batchsort");
    ck_assert_str_eq(policy_of(BATCH_FULL)->name, "full");
}
END_TEST

/* fixed: admits none before max_rows wait, then exactly max_rows, and never needs a timer. */
START_TEST(test_fixed_counts)
{
    uint64_t wake_us;

    for (size_t n = 0; n < 4; n++) {
        ck_assert_uint_eq(admitted(BATCH_FIXED,
                                   &(struct policy_view){.n_queued = n, .now_us = 1000000},
                                   &wake_us),
                          0);
        ck_assert_uint_eq(wake_us, 0);
    }
    ck_assert_uint_eq(admitted(BATCH_FIXED, &(struct policy_view){.n_queued = 4}, &wake_us), 4);
    ck_assert_uint_eq(admitted(BATCH_FIXED, &(struct policy_view){.n_queued = 9}, &wake_us), 4);
}
END_TEST

/* fixed: after the oldest's delay a quorum begins and fewer requests end; without a delay neither
 * happens. */
START_TEST(test_fixed_in_time)
{
    struct batcher_config c = {.max_rows = 4, .min_rows = 2, .max_delay_us = 100};
    struct policy_view v = {.config = &c, .now_us = 1099, .oldest_us = 1000, .n_queued = 2};
    const struct batch_policy_type *fixed = policy_of(BATCH_FIXED);
    uint64_t wake_us = 0;

    ck_assert_uint_eq(fixed->admit(&v, &wake_us), 0);
    ck_assert_uint_eq(wake_us, 1100);
    ck_assert_uint_eq(fixed->give_up_us(&v), 0);
    v.now_us = 1100;
    ck_assert_uint_eq(fixed->admit(&v, &wake_us), 2);
    v.n_queued = 1;
    wake_us = 0;
    ck_assert_uint_eq(fixed->admit(&v, &wake_us), 0);
    ck_assert_uint_eq(wake_us, 0);
    ck_assert_uint_eq(fixed->give_up_us(&v), 1100);
    v.n_admitted = 1;
    ck_assert_uint_eq(fixed->give_up_us(&v), 0);
    v.n_admitted = 0;
    c.max_delay_us = 0;
    ck_assert_uint_eq(fixed->give_up_us(&v), 0);
    c = (struct batcher_config){.max_rows = 4, .max_delay_us = 100}; /* the quorum is max_rows */
    v.n_queued = 3;
    ck_assert_uint_eq(fixed->admit(&v, &wake_us), 0);
    ck_assert_uint_eq(fixed->give_up_us(&v), 1100);
}
END_TEST

/* window: min_rows are enough, or as many as have room. */
START_TEST(test_window_enough)
{
    struct batcher_config c = {.max_rows = 4, .min_rows = 3, .max_delay_us = 100};
    struct policy_view v = {.config = &c, .now_us = 1000, .oldest_us = 1000, .n_queued = 2};
    uint64_t wake_us = 0;

    ck_assert_uint_eq(policy_of(BATCH_WINDOW)->admit(&v, &wake_us), 0);
    v.n_running = 2;
    ck_assert_uint_eq(policy_of(BATCH_WINDOW)->admit(&v, &wake_us), 2);
    v.n_running = 0;
    v.n_queued = 3;
    ck_assert_uint_eq(policy_of(BATCH_WINDOW)->admit(&v, &wake_us), 3);
    v.n_queued = 7;
    ck_assert_uint_eq(policy_of(BATCH_WINDOW)->admit(&v, &wake_us), 4);
}
END_TEST

/* fixed: the next batch waits until the last row of this one has ended. */
START_TEST(test_fixed_group_by_group)
{
    uint64_t wake_us;

    ck_assert_uint_eq(
        admitted(BATCH_FIXED, &(struct policy_view){.n_queued = 9, .n_running = 1}, &wake_us), 0);
    ck_assert_uint_eq(
        admitted(BATCH_FIXED, &(struct policy_view){.n_queued = 9, .n_admitted = 1}, &wake_us), 0);
}
END_TEST

/* window: a full step starts at once, another waits for the delay of its oldest request. */
START_TEST(test_window)
{
    struct policy_view v = {.now_us = 1050, .oldest_us = 1000, .n_queued = 3};
    uint64_t wake_us;

    ck_assert_uint_eq(admitted(BATCH_WINDOW, &v, &wake_us), 0);
    ck_assert_uint_eq(wake_us, 1100);
    v.now_us = 1099;
    ck_assert_uint_eq(admitted(BATCH_WINDOW, &v, &wake_us), 0);
    v.now_us = 1100;
    ck_assert_uint_eq(admitted(BATCH_WINDOW, &v, &wake_us), 3);
    v.now_us = 1000;
    v.n_queued = 4;
    ck_assert_uint_eq(admitted(BATCH_WINDOW, &v, &wake_us), 4);
    v.n_queued = 9;
    ck_assert_uint_eq(admitted(BATCH_WINDOW, &v, &wake_us), 4);
    v.n_queued = 0;
    ck_assert_uint_eq(admitted(BATCH_WINDOW, &v, &wake_us), 0);
    ck_assert_uint_eq(wake_us, 0);
}
END_TEST

/* window: running and admitted rows count as taken places. */
START_TEST(test_window_with_running)
{
    struct policy_view v = {
        .now_us = 1000, .oldest_us = 1000, .n_queued = 2, .n_running = 1, .n_admitted = 1};
    uint64_t wake_us;

    ck_assert_uint_eq(admitted(BATCH_WINDOW, &v, &wake_us), 2);
    v.n_running = 3;
    ck_assert_uint_eq(admitted(BATCH_WINDOW, &v, &wake_us), 0);
    ck_assert_uint_eq(wake_us, 0);
}
END_TEST

/* continuous: admits waiting requests as long as there is a place. */
START_TEST(test_continuous)
{
    struct policy_view v = {.n_queued = 3, .n_running = 2};
    uint64_t wake_us;

    ck_assert_uint_eq(admitted(BATCH_CONTINUOUS, &v, &wake_us), 2);
    v.n_queued = 1;
    ck_assert_uint_eq(admitted(BATCH_CONTINUOUS, &v, &wake_us), 1);
    v.n_running = 4;
    ck_assert_uint_eq(admitted(BATCH_CONTINUOUS, &v, &wake_us), 0);
    v.n_running = 1;
    v.n_admitted = 3;
    ck_assert_uint_eq(admitted(BATCH_CONTINUOUS, &v, &wake_us), 0);
    ck_assert_uint_eq(wake_us, 0);
}
END_TEST

SUITE_MAIN("batching/policies", test_names, test_fixed_counts, test_fixed_in_time,
           test_fixed_group_by_group, test_window_enough, test_window, test_window_with_running,
           test_continuous)
