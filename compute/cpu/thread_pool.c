/* A job is partitioned into shares, one for each thread, so that a thread finds the rows that it
 * worked on in one operator in its own cache in the next. A share is one atomic word: the job's
 * number, and the range of its items that no thread has taken. The share's thread takes pieces from
 * its front, a thread that has done its own share takes them from the back of others', by
 * compare-and-swap. A word with items left means that the job is open, and a successful swap means
 * that it was open all along: what the thread read of the job in between belongs to this job,
 * because the next one is written only when no item is left and all are done. So a late thread
 * finds nothing to take, and the caller never waits for a thread that has taken no piece. */
#include "compute/cpu/thread_pool.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/clock.h"

enum {
    SPIN_NS = 80000, /* longer than the gaps within a step, much shorter than those between steps */
    SPINS_A_LOOK = 64,   /* between looks at the clock */
    SPINS_A_YIELD = 512, /* the caller's: the thread that it waits for may need this processor */
    MAX_THREADS = 1024,
};

struct share {
    /* number of the job << 32 | end << 16 | first: items first … end - 1 are left */
    _Alignas(64) atomic_uint_fast64_t word;
};

struct thread_pool {
    _Alignas(64) atomic_uint_fast32_t job; /* the number of the last one */
    _Alignas(64) atomic_size_t n_done;     /* items of the job */
    /* The job; relaxed, since the compare-and-swap of a share validates them. */
    _Alignas(64) _Atomic(thread_pool_fn) fn;
    _Atomic(void *) arg;
    atomic_size_t n;     /* of the caller's items, */
    atomic_size_t unit;  /* the number of them in one item of the shares */
    atomic_size_t grain; /* of the shares' items */
    atomic_size_t n_numbered;
    atomic_int n_asleep;
    atomic_bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* there is another job, or stopping */
    size_t n_threads, n_started;
    pthread_t *threads;    /* [n_threads - 1], in memory after the shares */
    struct share shares[]; /* [n_threads] */
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t word_of(uint32_t job, size_t first, size_t end)
{
    return (uint64_t)job << 32 | (uint64_t)end << 16 | (uint64_t)first;
}

/* Does pieces of one share until none is left; its owner takes them from the front. False: the job
 * is over. */
static bool work_on(struct thread_pool *p, uint32_t job, struct share *share, bool is_own)
{
    uint64_t word = atomic_load(&share->word);

    for (;;) {
        thread_pool_fn fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&p->arg, memory_order_relaxed);
        size_t n = atomic_load_explicit(&p->n, memory_order_relaxed);
        size_t unit = atomic_load_explicit(&p->unit, memory_order_relaxed);
        size_t grain = atomic_load_explicit(&p->grain, memory_order_relaxed);
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
        atomic_fetch_add_explicit(&p->n_done, piece, memory_order_release);
        word = atomic_load(&share->word);
    }
}

/* The thread's own share, then those of the others. */
static void thread_pool_work(struct thread_pool *p, uint32_t job, size_t number)
{
    for (size_t i = 0; i < p->n_threads; i++)
        if (!work_on(p, job, &p->shares[(number + i) % p->n_threads], i == 0))
            return;
}

/* Waits until the job is not the one seen, or the pool stops. */
static uint32_t await_job(struct thread_pool *p, uint32_t seen)
{
    uint64_t end = 0;
    uint32_t job;
    int n = 0;

    for (;;) {
        job = (uint32_t)atomic_load_explicit(&p->job, memory_order_acquire);
        if (job != seen || atomic_load_explicit(&p->stopping, memory_order_relaxed))
            return job;
        relax();
        if (++n % SPINS_A_LOOK != 0)
            continue;
        if (end == 0)
            end = clock_ns() + SPIN_NS;
        else if (clock_ns() > end)
            break;
    }
    /* Both are sequentially consistent: either this sees the new job, or the publisher sees the
     * sleeper. */
    (void)pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_asleep, 1);
    while ((job = (uint32_t)atomic_load(&p->job)) == seen && !atomic_load(&p->stopping))
        (void)pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_asleep, 1);
    (void)pthread_mutex_unlock(&p->lock);
    return job;
}

static void *thread_run(void *arg)
{
    struct thread_pool *p = arg;
    size_t number = 1 + atomic_fetch_add(&p->n_numbered, 1);
    uint32_t job = 0;

    for (;;) {
        job = await_job(p, job);
        if (atomic_load(&p->stopping))
            return NULL;
        thread_pool_work(p, job, number);
    }
}

static void wake_all(struct thread_pool *p)
{
    (void)pthread_mutex_lock(&p->lock);
    (void)pthread_cond_broadcast(&p->wake);
    (void)pthread_mutex_unlock(&p->lock);
}

void thread_pool_for(struct thread_pool *p, size_t n, size_t grain, thread_pool_fn fn, void *arg)
{
    size_t unit = 1 + n / UINT16_MAX, n_units = (n + unit - 1) / unit;
    uint32_t job;
    int spins = 0;

    assert(grain > 0);
    if (n <= grain || p->n_threads == 1) {
        if (n > 0)
            fn(arg, 0, n);
        return;
    }
    /* All pieces of the last job have been counted: no thread adds to n_done now. */
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&p->n, n, memory_order_relaxed);
    atomic_store_explicit(&p->unit, unit, memory_order_relaxed);
    atomic_store_explicit(&p->grain, 1 + (grain - 1) / unit, memory_order_relaxed);
    job = (uint32_t)atomic_load_explicit(&p->job, memory_order_relaxed) + 1;
    for (size_t i = 0; i < p->n_threads; i++)
        atomic_store(&p->shares[i].word,
                     word_of(job, n_units * i / p->n_threads, n_units * (i + 1) / p->n_threads));
    atomic_store(&p->job, job);
    if (atomic_load(&p->n_asleep) > 0)
        wake_all(p);
    thread_pool_work(p, job, 0);
    while (atomic_load_explicit(&p->n_done, memory_order_acquire) != n_units) {
        relax();
        if (++spins % SPINS_A_YIELD == 0)
            (void)sched_yield();
    }
}

static bool read_first_line(const char *path, char *line, int size)
{
    FILE *in = fopen(path, "re");
    bool ok = in != NULL && fgets(line, size, in) != NULL;

    if (in != NULL)
        (void)fclose(in);
    return ok;
}

/* The CPU quota as processors, rounded up; SIZE_MAX for no quota. */
static size_t quota(void)
{
    double cpus = ceil(cgroup_cpus(""));

    return cpus < MAX_THREADS ? (size_t)cpus : SIZE_MAX;
}

/* Cores, not their hyperthreads, that this process may run on. */
static size_t physical_cores(void)
{
    cpu_set_t set;
    size_t n = 0, limit = quota();

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char path[96], line[64];
        long first = cpu;

        if (!CPU_ISSET(cpu, &set))
            continue;
        (void)snprintf(path, sizeof(path),
                       "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        if (read_first_line(path, line, sizeof(line)))
            first = strtol(line, NULL, 10);
        /* a core is counted at its first thread, or at each if we may not use that one */
        if (first == cpu || first < 0 || first >= CPU_SETSIZE || !CPU_ISSET(first, &set))
            n++;
    }
    n = n < limit ? n : limit;
    return n > 0 ? n : 1;
}

enum status thread_pool_open(struct thread_pool **out, size_t n_threads, struct error *err)
{
    enum status rc = STATUS_OK;
    struct thread_pool *p;
    int failed = 0;
    size_t size_bytes;

    if (n_threads == 0)
        n_threads = physical_cores();
    if (n_threads > MAX_THREADS)
        return error_set(err, STATUS_INVALID, "%zu threads are too many, there can be at most %d",
                         n_threads, (int)MAX_THREADS);
    size_bytes = sizeof(*p) + n_threads * (sizeof(p->shares[0]) + sizeof(p->threads[0]));
    size_bytes = (size_bytes + 63) / 64 * 64;
    p = aligned_alloc(64, size_bytes);
    if (p == NULL)
        return error_no_memory(err, size_bytes, "threads");
    memset(p, 0, size_bytes);
    p->n_threads = n_threads;
    p->threads = (pthread_t *)(void *)&p->shares[n_threads];
    (void)pthread_mutex_init(&p->lock, NULL); /* neither fails on Linux with default attributes */
    (void)pthread_cond_init(&p->wake, NULL);
    for (; failed == 0 && p->n_started < n_threads - 1; p->n_started += failed == 0)
        failed =
            fault_now() ? EAGAIN : pthread_create(&p->threads[p->n_started], NULL, thread_run, p);
    if (failed != 0) {
        rc = error_set(err, STATUS_EXHAUSTED, "cannot start thread %zu of %zu: %s",
                       p->n_started + 2, n_threads, strerror(failed));
        goto out;
    }
    for (size_t i = 0; i < p->n_started; i++)
        (void)pthread_setname_np(p->threads[i], "compute-pool"); /* only a name */
    *out = p;
    p = NULL; /* the caller's now */
out:
    thread_pool_close(p);
    return rc;
}

void thread_pool_close(struct thread_pool *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->stopping, true);
    wake_all(p);
    for (size_t i = 0; i < p->n_started; i++)
        (void)pthread_join(p->threads[i], NULL);
    (void)pthread_cond_destroy(&p->wake);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

size_t thread_pool_size(const struct thread_pool *p)
{
    return p->n_threads;
}
