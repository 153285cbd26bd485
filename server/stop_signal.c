#include "server/stop_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum { SECOND_SIGNAL_MS = 500 };

/* A handler has no argument, so there is one. */
static struct {
    uv_async_t async;
    timer_t timer;
    atomic_bool is_open;  /* the handler may wake the loop */
    atomic_uint n_inside; /* handlers that run now */
    atomic_uint n;        /* signals since the start */
    atomic_int number;
    atomic_uint_least64_t patience_ms;
    void (*told)(void *arg, int number, unsigned n);
    void *arg;
} stop_signal;

/* Async-signal-safe. */
static void stop_signal_arm(uint64_t ms)
{
    const struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}};

    (void)timer_settime(stop_signal.timer, 0, &at, NULL); /* cannot fail with these */
}

/* For one signal. A second one may have come on another thread meanwhile, whose time counts. */
static void stop_signal_arm_first(uint64_t ms)
{
    stop_signal_arm(ms);
    if (atomic_load(&stop_signal.n) > 1)
        stop_signal_arm(SECOND_SIGNAL_MS);
}

static void on_stop_signal(int number)
{
    const int before = errno;
    unsigned n = atomic_fetch_add(&stop_signal.n, 1) + 1;

    atomic_fetch_add(&stop_signal.n_inside, 1);
    atomic_store(&stop_signal.number, number);
    if (n == 1)
        stop_signal_arm_first(atomic_load(&stop_signal.patience_ms));
    else if (n == 2) /* a third does not put it off */
        stop_signal_arm(SECOND_SIGNAL_MS);
    if (atomic_load(&stop_signal.is_open))
        (void)uv_async_send(&stop_signal.async); /* cannot fail */
    atomic_fetch_sub(&stop_signal.n_inside, 1);
    errno = before;
}

static void on_told(uv_async_t *async)
{
    stop_signal.told(stop_signal.arg, atomic_load(&stop_signal.number),
                     atomic_load(&stop_signal.n));
}

enum status stop_signal_open(uv_loop_t *loop, void (*told)(void *arg, int number, unsigned n),
                             void *arg, struct error *err)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct sigaction action = {.sa_handler = on_stop_signal, .sa_flags = SA_RESTART};
    int rc;

    if (timer_create(CLOCK_MONOTONIC, &event, &stop_signal.timer) != 0)
        return error_set(err, STATUS_EXHAUSTED, "cannot make a timer: %s", strerror(errno));
    rc = uv_async_init(loop, &stop_signal.async, on_told);
    if (rc != 0) {
        (void)timer_delete(stop_signal.timer);
        return error_set(err, STATUS_EXHAUSTED, "cannot watch signals: %s", uv_strerror(rc));
    }
    stop_signal.told = told;
    stop_signal.arg = arg;
    atomic_store(&stop_signal.is_open, true);
    (void)sigaction(SIGTERM, &action, NULL); /* cannot fail with these numbers */
    (void)sigaction(SIGINT, &action, NULL);
    return STATUS_OK;
}

void stop_signal_close(void)
{
    if (!atomic_exchange(&stop_signal.is_open, false))
        return;
    while (atomic_load(&stop_signal.n_inside) > 0) /* another thread's, for some instructions */
        continue;
    uv_close((uv_handle_t *)&stop_signal.async, NULL);
}

void stop_signal_set_patience(uint64_t ms)
{
    atomic_store(&stop_signal.patience_ms, ms);
}

void stop_signal_allow(uint64_t ms)
{
    if (atomic_load(&stop_signal.n) < 2)
        stop_signal_arm_first(ms);
}
