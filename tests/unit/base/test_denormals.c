#include "base/denormals.h"

#include <check.h>
#include <float.h>
#include <pthread.h>

#include "tests/unit/base/suite.h"

static volatile float least = FLT_MIN, half = 0.5F;

static void *halve(void *arg)
{
    *(float *)arg = least * half;
    return NULL;
}

/* Here, and in a thread that is started after. */
START_TEST(test_are_zero)
{
    const uint64_t before = float_mode();
    float here, there = 1;
    pthread_t thread;

    halve(&here);
    ck_assert(here > 0.0F);
    denormals_are_zero();
    halve(&here);
    ck_assert(here == 0.0F);
    ck_assert_int_eq(pthread_create(&thread, NULL, halve, &there), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(there == 0.0F);
    float_mode_set(before);
}
END_TEST

/* The one result that depends on the kind of processor: it lies just below the least normal float,
 * and rounds up to it. Further below, all make 0 of it. */
START_TEST(test_what_rounds_up_to_normal)
{
    const uint64_t before = float_mode();
    const volatile float a = (1.0F - 0x1p-23F) * 0x1p-63F, b = (1.0F + 0x1p-23F) * 0x1p-63F;
    const volatile float c = (1.0F - 0x1p-24F) * 0x1p-63F, d = 0x1p-63F;
    volatile float near, below; /* computed before the mode is what it was */

    denormals_are_zero();
    near = a * b; /* 2^-126 (1 - 2^-46) */
    below = c * d;
    float_mode_set(before);
#if defined(__x86_64__)
    ck_assert(near == FLT_MIN);
#else
    ck_assert(near == 0.0F);
#endif
    ck_assert(below == 0.0F);
}
END_TEST

SUITE_MAIN("base/denormals", test_are_zero, test_what_rounds_up_to_normal)
