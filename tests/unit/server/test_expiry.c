#include "server/expiry.h"

#include <check.h>
#include <stdlib.h>

#include "base/chance.h"
#include "tests/unit/base/suite.h"

enum { N = 300, ROUNDS = 5000 };

/* Entries come, change and go as chance has it; the earliest is always the one in sight. */
START_TEST(test_earliest_is_first)
{
    static struct expiry_entry entries[N];
    struct expiry e;
    struct error err;

    expiry_init(&e);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        size_t i = (size_t)(chance_uniform(1, round, 0, 0) * N);
        float what = chance_uniform(1, round, 1, 0);
        const struct expiry_entry *earliest = NULL;

        if (entries[i].place == 0) {
            entries[i].at_us = (uint64_t)(chance_uniform(1, round, 2, 0) * 1000);
            ck_assert_int_eq(expiry_add(&e, &entries[i], &err), STATUS_OK);
        } else if (what < 0.5f) {
            entries[i].at_us = (uint64_t)(chance_uniform(1, round, 2, 0) * 1000);
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

SUITE_MAIN("server/expiry", test_earliest_is_first)
