#include "server/loop_alarm.h"

#include <check.h>

#include "tests/unit/base/suite.h"

static uv_loop_t loop;
static struct loop_alarm a;
static unsigned n_rings;

static void on_ring(void *owner)
{
    ++*(unsigned *)owner;
}

static void open_alarm(void)
{
    n_rings = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    loop_alarm_open(&a, &loop, &env_real, on_ring, &n_rings);
}

static void rings_by_now(unsigned n)
{
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_uint_eq(n_rings, n);
}

static void close_alarm(void)
{
    loop_alarm_close(&a);
    alarm_set(&a.alarm, 1); /* its owner may not know yet */
    rings_by_now(n_rings);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* It rings once, for a time in the past at once, but never inside. */
START_TEST(rings)
{
    open_alarm();
    alarm_set(&a.alarm, env_now_us(&env_real) + 5000);
    rings_by_now(1);
    ck_assert_uint_eq(a.alarm.at_us, 0);
    alarm_set(&a.alarm, 1);
    ck_assert_uint_eq(n_rings, 1);
    rings_by_now(2);
    alarm_set(&a.alarm, 1); /* the same time again */
    rings_by_now(3);
    close_alarm();
}
END_TEST

/* The last time that was set counts. */
START_TEST(set_anew)
{
    uint64_t far_us = env_now_us(&env_real) + (uint64_t)3600 * 1000000;

    open_alarm();
    alarm_set(&a.alarm, far_us);
    alarm_set(&a.alarm, 1);
    rings_by_now(1); /* does not wait an hour */
    alarm_set(&a.alarm, 1);
    alarm_set(&a.alarm, 0);
    rings_by_now(1);
    close_alarm();
}
END_TEST

/* Of the times that it is to ring by, the earliest wins. */
START_TEST(rings_by_the_earliest)
{
    uint64_t far_us = env_now_us(&env_real) + (uint64_t)3600 * 1000000;

    open_alarm();
    alarm_by(&a.alarm, far_us);
    alarm_by(&a.alarm, 1);
    alarm_by(&a.alarm, far_us);
    alarm_by(&a.alarm, 0);
    ck_assert_uint_eq(a.alarm.at_us, 1);
    rings_by_now(1);
    alarm_by(&a.alarm, far_us);
    ck_assert_uint_eq(a.alarm.at_us, far_us);
    alarm_set(&a.alarm, 0);
    rings_by_now(1);
    close_alarm();
}
END_TEST

SUITE_MAIN("server/loop_alarm", rings, set_anew, rings_by_the_earliest)
