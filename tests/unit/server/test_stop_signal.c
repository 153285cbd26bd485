/* Each case is a process of its own, in which SIGALRM has its default: it ends the process, as
 * main.c's handler does. */
#include "server/stop_signal.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "tests/unit/base/suite.h"

enum { PATIENCE_MS = 100, HOUR_MS = 3600 * 1000, MEANWHILE_MS = 300 };

static unsigned n_told;
static int number_told;

static void told(void *arg, int number, unsigned n)
{
    number_told = number;
    n_told = n;
}

static void open_with(uv_loop_t *loop, uint64_t patience_ms)
{
    struct error err;

    if (uv_loop_init(loop) != 0 || stop_signal_open(loop, told, NULL, &err) != STATUS_OK)
        _exit(2);
    stop_signal_set_patience(patience_ms);
}

/* Blocks as a loop that is stuck in a call. */
static _Noreturn void be_stuck(void)
{
    for (;;)
        (void)pause();
}

static void stay_for(uint64_t ms)
{
    uint64_t until_us = env_now_us(&env_real) + ms * 1000;

    while (env_now_us(&env_real) < until_us)
        continue;
}

/* How body ended its process; its status as of waitpid. */
static int run(void (*body)(void), uint64_t *ret_ms)
{
    uint64_t began_us = env_now_us(&env_real);
    pid_t child = fork();
    int status;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void)signal(SIGALRM, SIG_DFL); /* Check's own would kill the whole group */
        body();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    *ret_ms = (env_now_us(&env_real) - began_us) / 1000;
    return status;
}

static void expect_end_by_alarm(void (*body)(void), uint64_t from_ms, uint64_t to_ms)
{
    uint64_t ms;
    int status = run(body, &ms);

    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), SIGALRM);
    ck_assert_uint_ge(ms, from_ms);
    ck_assert_uint_lt(ms, to_ms);
}

static void expect_good(void (*body)(void))
{
    uint64_t ms;
    int status = run(body, &ms);

    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void be_told(void)
{
    uv_loop_t loop;

    open_with(&loop, HOUR_MS);
    (void)raise(SIGINT);
    (void)raise(SIGTERM); /* coalesced with the first */
    (void)uv_run(&loop, UV_RUN_ONCE);
    if (number_told != SIGTERM || n_told != 2)
        _exit(3);
    stop_signal_close();
    (void)raise(SIGTERM); /* only counts */
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    if (n_told != 2 || uv_loop_close(&loop) != 0)
        _exit(4);
}

/* The loop is told of the last signal and of their number, until it closes. */
START_TEST(signals_are_told)
{
    expect_good(be_told);
}
END_TEST

static void be_late(void)
{
    uv_loop_t loop;

    open_with(&loop, PATIENCE_MS);
    (void)raise(SIGTERM);
    be_stuck();
}

static void be_in_time(void)
{
    uv_loop_t loop;

    open_with(&loop, PATIENCE_MS);
    (void)raise(SIGTERM);
    (void)uv_run(&loop, UV_RUN_ONCE);
    stop_signal_allow(0);
    stay_for(MEANWHILE_MS);
}

static void be_late_afterwards(void)
{
    uv_loop_t loop;

    open_with(&loop, HOUR_MS);
    (void)raise(SIGTERM);
    stop_signal_allow(PATIENCE_MS);
    be_stuck();
}

/* A loop that is stuck ends with its patience; what takes as long as it takes does not. */
START_TEST(a_stuck_loop_ends)
{
    expect_end_by_alarm(be_late, PATIENCE_MS, 1000);
    expect_good(be_in_time);
    expect_end_by_alarm(be_late_afterwards, PATIENCE_MS, 1000);
}
END_TEST

static void insist(void)
{
    uv_loop_t loop;

    open_with(&loop, HOUR_MS);
    (void)raise(SIGTERM);
    (void)raise(SIGINT);
    stop_signal_allow(0); /* too late */
    stay_for(MEANWHILE_MS);
    (void)raise(SIGTERM); /* puts nothing off */
    stop_signal_close();
    be_stuck();
}

/* A second signal ends the process within a second, whatever comes behind it. */
START_TEST(a_second_signal_ends)
{
    expect_end_by_alarm(insist, MEANWHILE_MS, 1000);
}
END_TEST

SUITE_MAIN("server/stop_signal", signals_are_told, a_stuck_loop_ends, a_second_signal_ends)
