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
    const unsigned before = _mm_getcsr();
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
    _mm_setcsr(before);
}
END_TEST

SUITE_MAIN("base/denormals", test_are_zero)
