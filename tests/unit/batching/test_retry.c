#include "batching/retry.h"

#include <check.h>
#include <string.h>

#include "tests/unit/base/suite.h"

enum { MS = 1000 };

static void give(void *self, void *out, size_t n_bytes)
{
    memset(out, *(const int *)self, n_bytes);
}

/* The least and the greatest hint that can be drawn. */
static void hints(const struct retry *r, size_t n_waiting, size_t n_together, uint64_t now_us,
                  uint32_t *ret_least, uint32_t *ret_most)
{
    int bits = 0;
    const struct env env = {.random = give, .self = &bits};

    *ret_least = retry_after_ms(r, n_waiting, n_together, now_us, &env);
    bits = 0xff;
    *ret_most = retry_after_ms(r, n_waiting, n_together, now_us, &env);
}

/* Rows that run together count together: if the first of 64 ends after 3 s, they do not take 3 s
 * each, one after the other. */
START_TEST(test_rows_run_together)
{
    struct retry r = {0};
    uint32_t least, most;

    retry_begin(&r, 5 * MS);
    retry_learn(&r, 5 * MS, 3005 * MS);
    hints(&r, 32, 64, 3005 * MS, &least, &most);
    ck_assert_uint_eq(least, 3000 * 5 / 8 / 2); /* 32 of 64 and an eighth */
    ck_assert_uint_eq(most, 3000 * 5 / 8 - 1);
    hints(&r, 32, 1, 3005 * MS, &least, &most);
    ck_assert_uint_eq(least, 48187); /* 32 one after the other, and an eighth */
    ck_assert_uint_eq(most, 60 * MS);
}
END_TEST

/* Before a request has ended the hint is at most a tenth of a second, and grows with the time
 * without an end, but not beyond the run time that this time proves. */
START_TEST(test_unknown_grows)
{
    struct retry r = {0};
    uint32_t least, most;

    hints(&r, 32, 64, 7 * MS, &least, &most);
    ck_assert_uint_eq(least, 50);
    ck_assert_uint_eq(most, 99);
    retry_begin(&r, 5 * MS);
    hints(&r, 32, 64, 105 * MS, &least, &most);
    ck_assert_uint_eq(least, 50);
    hints(&r, 32, 64, 2005 * MS, &least, &most);
    ck_assert_uint_eq(least, 625);
    ck_assert_uint_eq(most, 1249);
}
END_TEST

/* Earlier, longer run times count less and less. If no request ends for longer than the known run
 * time, run times have become longer. */
START_TEST(test_follows_the_load)
{
    struct retry r = {0};
    uint32_t least, before, most;

    retry_begin(&r, 1);
    retry_learn(&r, 1, 1 + 100 * MS);
    retry_rest(&r);
    hints(&r, 7, 8, 9000 * MS, &least, &most); /* idle time does not count */
    ck_assert_uint_eq(least, 50);
    retry_begin(&r, 9000 * MS);
    hints(&r, 7, 8, 11000 * MS, &least, &most);
    ck_assert_uint_eq(least, 1000);
    before = least;
    for (uint64_t i = 1; i <= 64; i++) {
        retry_learn(&r, 9000 * MS + i, 13000 * MS + i);
        hints(&r, 7, 8, 13000 * MS + i, &least, &most);
        if (i > 1)
            ck_assert_uint_ge(least, before);
        before = least;
    }
    ck_assert_uint_ge(least, 1990);
    ck_assert_uint_le(most, 4000);
}
END_TEST

/* A hint is never 0. */
START_TEST(test_bounds)
{
    struct retry r = {0};
    uint32_t least, most;

    retry_begin(&r, 1);
    retry_learn(&r, 1, 3);
    hints(&r, 1, 64, 3, &least, &most);
    ck_assert_uint_eq(least, 1);
    hints(&r, 0, 0, 3, &least, &most);
    ck_assert_uint_eq(least, 1);
    retry_learn(&r, 3, UINT64_MAX / 2);
    hints(&r, SIZE_MAX, 1, UINT64_MAX / 2, &least, &most);
    ck_assert_uint_eq(most, 60 * MS);
}
END_TEST

SUITE_MAIN("batching/retry", test_rows_run_together, test_unknown_grows, test_follows_the_load,
           test_bounds)
