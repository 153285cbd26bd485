#include "server/alarm.h"

#include <check.h>

#include "tests/unit/base/suite.h"

static uv_loop_t loop;
static struct alarm a;
static unsigned n_rings;

static void on_ring(void *arg)
{
    ++*(unsigned *)arg;
}

static void open_alarm(void)
{
    n_rings = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    alarm_open(&a, &loop, &env_real, on_ring, &n_rings);
}

static void close_alarm(void)
{
    alarm_close(&a);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* It rings once, for a time in the past at once, but never inside. */
START_TEST(rings)
{
    open_alarm();
    alarm_arm(&a, env_now_us(&env_real) + 5000);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_uint_eq(n_rings, 1);
    alarm_arm(&a, 1);
    ck_assert_uint_eq(n_rings, 1);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_uint_eq(n_rings, 2);
    close_alarm();
}
END_TEST

/* The last arm counts. */
START_TEST(armed_anew)
{
    uint64_t far_us = env_now_us(&env_real) + (uint64_t)3600 * 1000000;

    open_alarm();
    alarm_arm(&a, far_us);
    alarm_arm(&a, 1);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0); /* does not wait an hour */
    ck_assert_uint_eq(n_rings, 1);
    alarm_arm(&a, 1);
    alarm_arm(&a, 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_uint_eq(n_rings, 1);
    close_alarm();
}
END_TEST

SUITE_MAIN("server/alarm", rings, armed_anew)
