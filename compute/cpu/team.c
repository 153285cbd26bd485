/* A job is cut in shares, one for each member, so that who worked on some rows in one operator
 * finds them in its own cache in the next. A share is one atomic word: the job's number, and the
 * first and the last of its items that nobody has taken. Its owner takes pieces from its front, and
 * who is done with his own from the back of others', by compare-and-swap. That the word says "some
 * are left" means that the job is open, and its success that it was so all along: what the member
 * has read of the job in between is this job's, for the next one is written only when none is left
 * and all are done. So a member that comes late finds nothing to take and harms nobody, and the
 * caller never waits for one that has taken no piece. */
#include "compute/cpu/team.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum {
    SPIN_NS = 80000,     /* longer than the gaps inside a step, short beside those between steps */
    SPINS_A_LOOK = 64,   /* at the clock */
    SPINS_A_YIELD = 512, /* the caller's: the member it waits for may want this processor */
    MAX_THREADS = 1024,
};

struct share {
    /* number of the job << 32 | end << 16 | first: items first … end - 1 are left */
    _Alignas(64) atomic_uint_fast64_t word;
};

struct team {
    _Alignas(64) atomic_uint_fast32_t job; /* the number of the last one */
    _Alignas(64) atomic_size_t n_done;     /* items of the job */
    /* The job; relaxed, since the compare-and-swap of a share validates them. */
    _Alignas(64) _Atomic(team_fn) fn;
    _Atomic(void *) arg;
    atomic_size_t n;     /* of the caller's items, */
    atomic_size_t unit;  /* of which so many are one of the shares' */
    atomic_size_t grain; /* of the shares' items */
    atomic_size_t n_members;
    atomic_int n_asleep;
    atomic_bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* there is another job, or stopping */
    size_t n_threads, n_started;
    pthread_t *threads;    /* [n_threads - 1], behind the shares */
    struct share shares[]; /* [n_threads] */
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static uint64_t word_of(uint32_t job, size_t first, size_t end)
{
    return (uint64_t)job << 32 | (uint64_t)end << 16 | (uint64_t)first;
}

/* Takes pieces of one share until none is left; its owner from the front. False: the job is over.
 */
static bool work_on(struct team *t, uint32_t job, struct share *share, bool is_own)
{
    uint64_t word = atomic_load(&share->word);

    for (;;) {
        team_fn fn = atomic_load_explicit(&t->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&t->arg, memory_order_relaxed);
        size_t n = atomic_load_explicit(&t->n, memory_order_relaxed);
        size_t unit = atomic_load_explicit(&t->unit, memory_order_relaxed);
        size_t grain = atomic_load_explicit(&t->grain, memory_order_relaxed);
        size_t first = word & UINT16_MAX, end = word >> 16 & UINT16_MAX, piece = (end - first) / 2;

        if ((uint32_t)(word >> 32) != job)
            return false;
        if (first == end)
            return true;
        piece = piece < grain ? grain : piece;
        piece = piece < end - first ? piece : end - first;
        if (!atomic_compare_exchange_weak(&share->word, &word,
                                          is_own ? word_of(job, first + piece, end)
                                                 : word_of(job, first, end - piece)))
            continue;
        if (!is_own)
            first = end - piece;
        end = (first + piece) * unit;
        fn(arg, first * unit, end < n ? end : n);
        atomic_fetch_add_explicit(&t->n_done, piece, memory_order_release);
        word = atomic_load(&share->word);
    }
}

/* The member's own share, then those of the others. */
static void work(struct team *t, uint32_t job, size_t member)
{
    for (size_t i = 0; i < t->n_threads; i++)
        if (!work_on(t, job, &t->shares[(member + i) % t->n_threads], i == 0))
            return;
}

/* Returns when the job is another than the one seen, or the team stops. */
static uint32_t await_job(struct team *t, uint32_t seen)
{
    uint64_t end = 0;
    uint32_t job;
    int n = 0;

    for (;;) {
        job = (uint32_t)atomic_load_explicit(&t->job, memory_order_acquire);
        if (job != seen || atomic_load_explicit(&t->stopping, memory_order_relaxed))
            return job;
        relax();
        if (++n % SPINS_A_LOOK != 0)
            continue;
        if (end == 0)
            end = clock_ns() + SPIN_NS;
        else if (clock_ns() > end)
            break;
    }
    /* Either this sees the new job, or the publisher sees the sleeper: both are in one order. */
    (void)pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->n_asleep, 1);
    while ((job = (uint32_t)atomic_load(&t->job)) == seen && !atomic_load(&t->stopping))
        (void)pthread_cond_wait(&t->wake, &t->lock);
    atomic_fetch_sub(&t->n_asleep, 1);
    (void)pthread_mutex_unlock(&t->lock);
    return job;
}

static void *member_run(void *arg)
{
    struct team *t = arg;
    size_t member = 1 + atomic_fetch_add(&t->n_members, 1);
    uint32_t job = 0;

    for (;;) {
        job = await_job(t, job);
        if (atomic_load(&t->stopping))
            return NULL;
        work(t, job, member);
    }
}

static void wake_all(struct team *t)
{
    (void)pthread_mutex_lock(&t->lock);
    (void)pthread_cond_broadcast(&t->wake);
    (void)pthread_mutex_unlock(&t->lock);
}

void team_for(struct team *t, size_t n, size_t grain, team_fn fn, void *arg)
{
    size_t unit = 1 + n / UINT16_MAX, n_units = (n + unit - 1) / unit;
    uint32_t job;
    int spins = 0;

    assert(grain > 0);
    if (n <= grain || t->n_threads == 1) {
        if (n > 0)
            fn(arg, 0, n);
        return;
    }
    /* Everyone who took a piece of the job before has counted it: nobody adds to n_done now. */
    atomic_store_explicit(&t->n_done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&t->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&t->n, n, memory_order_relaxed);
    atomic_store_explicit(&t->unit, unit, memory_order_relaxed);
    atomic_store_explicit(&t->grain, 1 + (grain - 1) / unit, memory_order_relaxed);
    job = (uint32_t)atomic_load_explicit(&t->job, memory_order_relaxed) + 1;
    for (size_t i = 0; i < t->n_threads; i++)
        atomic_store(&t->shares[i].word,
                     word_of(job, n_units * i / t->n_threads, n_units * (i + 1) / t->n_threads));
    atomic_store(&t->job, job);
    if (atomic_load(&t->n_asleep) > 0)
        wake_all(t);
    work(t, job, 0);
    while (atomic_load_explicit(&t->n_done, memory_order_acquire) != n_units) {
        relax();
        if (++spins % SPINS_A_YIELD == 0)
            (void)sched_yield();
    }
}

static bool read_line(const char *path, char *line, int size)
{
    FILE *in = fopen(path, "re");
    bool ok = in != NULL && fgets(line, size, in) != NULL;

    if (in != NULL)
        (void)fclose(in);
    return ok;
}

/* Processors that a container's quota amounts to, rounded up; SIZE_MAX for no quota. */
static size_t quota(void)
{
    char line[64], *end;
    double allowed, period;

    if (!read_line("/sys/fs/cgroup/cpu.max", line, sizeof line))
        return SIZE_MAX;
    allowed = strtod(line, &end);
    if (end == line) /* "max" */
        return SIZE_MAX;
    period = strtod(end, NULL);
    if (!(allowed > 0 && period > 0 && allowed / period < MAX_THREADS))
        return SIZE_MAX;
    return (size_t)((allowed + period - 1) / period);
}

/* Cores, not their hyperthreads, that this process may run on. */
static size_t physical_cores(void)
{
    cpu_set_t set;
    size_t n = 0, limit = quota();

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char path[96], line[64];
        long first = cpu;

        if (!CPU_ISSET(cpu, &set))
            continue;
        (void)snprintf(path, sizeof path,
                       "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        if (read_line(path, line, sizeof line))
            first = strtol(line, NULL, 10);
        /* a core counts by its first thread, unless that one is not ours */
        if (first == cpu || first < 0 || first >= CPU_SETSIZE || !CPU_ISSET(first, &set))
            n++;
    }
    n = n < limit ? n : limit;
    return n > 0 ? n : 1;
}

enum status team_open(struct team **out, size_t n_threads, struct error *err)
{
    enum status rc = STATUS_OK;
    struct team *t;
    int failed = 0;
    size_t size_bytes;

    if (n_threads == 0)
        n_threads = physical_cores();
    if (n_threads > MAX_THREADS)
        return error_set(err, STATUS_INVALID, "%zu threads, at most %d can be had", n_threads,
                         (int)MAX_THREADS);
    size_bytes = sizeof *t + n_threads * (sizeof t->shares[0] + sizeof t->threads[0]);
    size_bytes = (size_bytes + 63) / 64 * 64;
    t = aligned_alloc(64, size_bytes);
    if (t == NULL)
        return error_no_memory(err, size_bytes, "threads");
    memset(t, 0, size_bytes);
    t->n_threads = n_threads;
    t->threads = (pthread_t *)(void *)&t->shares[n_threads];
    (void)pthread_mutex_init(&t->lock, NULL); /* neither fails on Linux with default attributes */
    (void)pthread_cond_init(&t->wake, NULL);
    for (; failed == 0 && t->n_started < n_threads - 1; t->n_started += failed == 0)
        failed =
            fault_now() ? EAGAIN : pthread_create(&t->threads[t->n_started], NULL, member_run, t);
    if (failed != 0) {
        rc = error_set(err, STATUS_EXHAUSTED, "cannot start thread %zu of %zu: %s",
                       t->n_started + 2, n_threads, strerror(failed));
        goto out;
    }
    for (size_t i = 0; i < t->n_started; i++)
        (void)pthread_setname_np(t->threads[i], "compute-team"); /* only a name */
    *out = t;
    t = NULL;
out:
    team_close(t);
    return rc;
}

void team_close(struct team *t)
{
    if (t == NULL)
        return;
    atomic_store(&t->stopping, true);
    wake_all(t);
    for (size_t i = 0; i < t->n_started; i++)
        (void)pthread_join(t->threads[i], NULL);
    (void)pthread_cond_destroy(&t->wake);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

size_t team_size(const struct team *t)
{
    return t->n_threads;
}
