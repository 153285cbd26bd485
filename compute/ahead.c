#include "compute/ahead.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

enum {
    BUSY_MS = 200, /* longer than what lies between two steps */
    SHARE = 5,     /* while others are busy, this part of a processor's time, */
    PAUSE_MS = 20, /* and seldom: each time may cost somebody a change of processor */
};

struct ahead {
    pthread_t thread;
    ahead_fn fn;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t noticed_ns; /* guarded by lock, as those below */
    bool is_asleep;      /* until somebody is busy */
    bool is_stopping;
};

static bool is_busy_at(const struct ahead *a, uint64_t at_ns)
{
    return a->noticed_ns != 0 && at_ns < a->noticed_ns + BUSY_MS * UINT64_C(1000000);
}

/* With the lock held. */
static void pause_until(struct ahead *a, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};

    while (!a->is_stopping &&
           pthread_cond_clockwait(&a->wake, &a->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        continue;
}

/* With the lock held. */
static void sleep_until_noticed(struct ahead *a)
{
    uint64_t noticed_ns = a->noticed_ns;

    a->is_asleep = true;
    while (!a->is_stopping && a->noticed_ns == noticed_ns)
        pthread_cond_wait(&a->wake, &a->lock);
    a->is_asleep = false;
}

static void *work(void *arg)
{
    struct ahead *a = arg;

    (void)pthread_setname_np(pthread_self(), "parley-ahead"); /* only for those who look on */
    pthread_mutex_lock(&a->lock);
    while (!a->is_stopping) {
        uint64_t begun_ns = clock_ns(), end_ns;
        bool is_busy = is_busy_at(a, begun_ns), has_more;

        pthread_mutex_unlock(&a->lock);
        has_more = a->fn(a->arg, is_busy);
        pthread_mutex_lock(&a->lock);
        end_ns = clock_ns();
        if (is_busy && has_more) {
            uint64_t rest_ns = (end_ns - begun_ns) * (SHARE - 1);
            uint64_t least_ns = PAUSE_MS * UINT64_C(1000000);

            pause_until(a, end_ns + (rest_ns > least_ns ? rest_ns : least_ns));
        } else if (is_busy) {
            pause_until(a, end_ns + BUSY_MS * UINT64_C(1000000));
        } else if (!has_more && !is_busy_at(a, end_ns)) {
            sleep_until_noticed(a);
        }
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void free_ahead(struct ahead *a)
{
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

struct ahead *ahead_start(ahead_fn fn, void *arg)
{
    struct ahead *a = xalloc(sizeof *a);

    a->fn = fn;
    a->arg = arg;
    (void)pthread_mutex_init(&a->lock, NULL); /* neither can fail with default attributes */
    (void)pthread_cond_init(&a->wake, NULL);
    if (fault_now() || pthread_create(&a->thread, NULL, work, a) != 0) {
        free_ahead(a);
        return NULL;
    }
    return a;
}

void ahead_notice(struct ahead *a)
{
    if (a == NULL)
        return;
    pthread_mutex_lock(&a->lock);
    a->noticed_ns = clock_ns();
    if (a->is_asleep)
        pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

void ahead_stop(struct ahead *a)
{
    if (a == NULL)
        return;
    pthread_mutex_lock(&a->lock);
    a->is_stopping = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    (void)pthread_join(a->thread, NULL); /* fails only for what is no thread of ours */
    free_ahead(a);
}
