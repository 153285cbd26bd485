#include "base/env.h"

#include <string.h>
#include <time.h>

#include "tests/unit/base/suite.h"

/* The real clock is the monotonic one, in microseconds. */
START_TEST(real_clock)
{
    struct timespec t;
    uint64_t before, at, after;

    ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    before = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    at = env_now_us(&env_real);
    ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    after = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    ck_assert_uint_le(before, at);
    ck_assert_uint_le(at, after);
    ck_assert_uint_ge(env_now_ms(&env_real), at / 1000);
}
END_TEST

/* The real generator fills the whole buffer, and no two ids are equal. */
START_TEST(real_random)
{
    enum { N = 200 };
    static unsigned char ids[N][16];
    static unsigned char large[100000];
    size_t n_zero = 0;

    for (int i = 0; i < N; i++) {
        env_real.random(env_real.self, ids[i], sizeof(ids[i]));
        for (int k = 0; k < i; k++)
            ck_assert_int_ne(memcmp(ids[i], ids[k], sizeof(ids[i])), 0);
    }
    env_real.random(env_real.self, large, sizeof(large));
    for (size_t i = 0; i < sizeof(large); i++)
        n_zero += large[i] == 0;
    ck_assert_uint_lt(n_zero, 1000); /* expected: 391, deviation 20 */
    env_real.random(env_real.self, large, 0);
}
END_TEST

static uint64_t hand_now(void *self)
{
    return *(uint64_t *)self;
}

/* A test's clock gets self; milliseconds are truncated, not rounded. */
START_TEST(clock_by_hand)
{
    uint64_t now = 1999;
    const struct env e = {.now_us = hand_now, .self = &now};

    ck_assert_uint_eq(env_now_us(&e), 1999);
    ck_assert_uint_eq(env_now_ms(&e), 1);
    now = 2000;
    ck_assert_uint_eq(env_now_ms(&e), 2);
}
END_TEST

SUITE_MAIN("env", real_clock, real_random, clock_by_hand)
