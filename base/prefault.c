#include "base/prefault.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

enum {
    BUSY_MS = 200, /* longer than the time between two steps */
    SHARE = 5,     /* while steps run, fn takes at most 1/SHARE of a processor's time, */
    PAUSE_MS = 20, /* and pauses at least this long: each wake-up may move another thread */
};

struct prefault {
    pthread_t thread;
    prefault_fn fn;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t noticed_ns; /* guarded by lock, as is all below */
    bool is_asleep;      /* until prefault_notice */
    bool is_stopping;
};

static bool is_busy_at(const struct prefault *p, uint64_t at_ns)
{
    return p->noticed_ns != 0 && at_ns < p->noticed_ns + BUSY_MS * UINT64_C(1000000);
}

/* With the lock held. */
static void pause_until(struct prefault *p, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};

    while (!p->is_stopping &&
           pthread_cond_clockwait(&p->wake, &p->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        continue;
}

/* With the lock held. */
static void sleep_until_noticed(struct prefault *p)
{
    uint64_t noticed_ns = p->noticed_ns;

    p->is_asleep = true;
    while (!p->is_stopping && p->noticed_ns == noticed_ns)
        pthread_cond_wait(&p->wake, &p->lock);
    p->is_asleep = false;
}

static void *prefault_work(void *arg)
{
    struct prefault *p = arg;

    (void)pthread_setname_np(pthread_self(), "parley-prefault"); /* for ps and top */
    pthread_mutex_lock(&p->lock);
    while (!p->is_stopping) {
        uint64_t begun_ns = clock_ns(), end_ns;
        bool is_busy = is_busy_at(p, begun_ns), has_more;

        pthread_mutex_unlock(&p->lock);
        has_more = p->fn(p->arg, is_busy);
        pthread_mutex_lock(&p->lock);
        end_ns = clock_ns();
        if (is_busy && has_more) {
            uint64_t rest_ns = (end_ns - begun_ns) * (SHARE - 1);
            uint64_t least_ns = PAUSE_MS * UINT64_C(1000000);

            pause_until(p, end_ns + (rest_ns > least_ns ? rest_ns : least_ns));
        } else if (is_busy) {
            pause_until(p, end_ns + BUSY_MS * UINT64_C(1000000));
        } else if (!has_more && !is_busy_at(p, end_ns)) {
            sleep_until_noticed(p);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void prefault_free(struct prefault *p)
{
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

struct prefault *prefault_start(prefault_fn fn, void *arg)
{
    struct prefault *p = xalloc(sizeof(*p));

    p->fn = fn;
    p->arg = arg;
    (void)pthread_mutex_init(&p->lock, NULL); /* neither can fail with default attributes */
    (void)pthread_cond_init(&p->wake, NULL);
    if (fault_now() || pthread_create(&p->thread, NULL, prefault_work, p) != 0) {
        prefault_free(p);
        return NULL;
    }
    return p;
}

void prefault_notice(struct prefault *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->noticed_ns = clock_ns();
    if (p->is_asleep)
        pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void prefault_stop(struct prefault *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->is_stopping = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL); /* cannot fail for a thread that was started */
    prefault_free(p);
}
