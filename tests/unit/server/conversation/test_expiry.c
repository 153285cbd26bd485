#include "server/conversation/expiry.h"

#include <check.h>
#include <stdlib.h>

#include "base/counter_rng.h"
#include "tests/unit/base/suite.h"

enum { N = 300, ROUNDS = 5000 };

/* Entries are added, moved and removed at random; the first one is always the earliest. */
START_TEST(test_earliest_is_first)
{
    static struct expiry_entry entries[N];
    struct expiry e;
    struct error err;

    expiry_init(&e);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        size_t i = (size_t)(counter_rng_uniform(1, round, 0, 0) * N);
        float what = counter_rng_uniform(1, round, 1, 0);
        const struct expiry_entry *earliest = NULL;

        if (entries[i].place == 0) {
            entries[i].at_us = (uint64_t)(counter_rng_uniform(1, round, 2, 0) * 1000);
            ck_assert_int_eq(expiry_add(&e, &entries[i], &err), STATUS_OK);
        } else if (what < 0.5f) {
            entries[i].at_us = (uint64_t)(counter_rng_uniform(1, round, 2, 0) * 1000);
            expiry_moved(&e, &entries[i]);
        } else {
            expiry_remove(&e, &entries[i]);
        }
        for (size_t j = 0; j < N; j++) {
            if (entries[j].place != 0 && (earliest == NULL || entries[j].at_us < earliest->at_us))
                earliest = &entries[j];
        }
        if (earliest == NULL)
            ck_assert_ptr_null(expiry_first(&e));
        else
            ck_assert_uint_eq(expiry_first(&e)->at_us, earliest->at_us);
    }
    for (size_t j = 0; j < N; j++)
        if (entries[j].place != 0)
            expiry_remove(&e, &entries[j]);
    ck_assert_ptr_null(expiry_first(&e));
    expiry_deinit(&e);
}
END_TEST

/* Memory is freed when most entries are removed, and the rest are found as before. */
START_TEST(test_shrinks)
{
    static struct expiry_entry entries[N];
    struct expiry e;
    struct error err;

    expiry_init(&e);
    for (size_t i = 0; i < N; i++) {
        entries[i].at_us = N - i;
        ck_assert_int_eq(expiry_add(&e, &entries[i], &err), STATUS_OK);
    }
    for (size_t left = N; left > 0; left--) {
        expiry_shrink(&e);
        ck_assert_uint_gt(e.cap, left);
        ck_assert_uint_le(e.cap, left < 32 ? 64 : 2 * (left + 1));
        ck_assert_uint_eq(expiry_first(&e)->at_us, N - left + 1);
        expiry_remove(&e, &entries[left - 1]);
    }
    expiry_shrink(&e);
    expiry_deinit(&e);
}
END_TEST

SUITE_MAIN("server/expiry", test_earliest_is_first, test_shrinks)
