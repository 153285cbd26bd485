/* What a shared machine costs a thread pool. A step is like a model's: many short operators, each
 * waited for. It is timed alone and beside 1, 2, … processes that only spin, and compared with a
 * fair share: the same work beside the same processes, on threads that do not wait for each other.
 * The rest of a step's time is spent waiting for preempted threads.
 *
 *     bench_thread_pool [THREADS] */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "compute/cpu/thread_pool.h"

enum {
    OPERATORS = 150, /* of a step: five of each of 30 layers */
    ITEMS = 64,      /* of an operator */
    ITEM_LOOPS = 200,
    MAX_SPINNERS = 16,
    MAX_THREADS = 64,
};

static const double measured_s = 1.5;

static void do_items(void *arg, size_t begin, size_t end)
{
    volatile float x = 1;

    for (size_t i = begin; i < end; i++)
        for (int k = 0; k < ITEM_LOOPS; k++)
            x = x * 0.999F + 0.001F;
}

/* Steps a second. */
static double steps_of_pool(struct thread_pool *t)
{
    double start = clock_s();
    size_t n = 0;

    for (; clock_s() - start < measured_s; n++)
        for (int i = 0; i < OPERATORS; i++)
            thread_pool_for(t, ITEMS, 1, do_items, NULL);
    return (double)n / (clock_s() - start);
}

static void *work_alone(void *arg)
{
    double start = clock_s();
    size_t n = 0;

    for (; clock_s() - start < measured_s; n++)
        do_items(NULL, 0, ITEMS);
    *(double *)arg = (double)n / OPERATORS / (clock_s() - start);
    return NULL;
}

/* Steps a second of as many threads that never wait. */
static double steps_without_waiting(size_t n_threads)
{
    pthread_t threads[MAX_THREADS];
    double rates[MAX_THREADS], sum = 0;

    for (size_t i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, work_alone, &rates[i]) != 0)
            abort();
    for (size_t i = 0; i < n_threads; i++) {
        (void)pthread_join(threads[i], NULL);
        sum += rates[i];
    }
    return sum;
}

static void spin(void)
{
    for (;;)
        do_items(NULL, 0, ITEMS);
}

int main(int argc, char **argv)
{
    struct thread_pool *t;
    struct error err;
    double alone_pool = 0, alone_unwaited = 0;
    pid_t spinners[MAX_SPINNERS];
    size_t n, most;

    if (thread_pool_open(&t, argc > 1 ? strtoul(argv[1], NULL, 10) : 0, &err) != STATUS_OK) {
        (void)fprintf(stderr, "bench_thread_pool: %s\n", err.text);
        return 1;
    }
    most = thread_pool_size(t) < MAX_SPINNERS ? thread_pool_size(t) : MAX_SPINNERS;
    if (thread_pool_size(t) > MAX_THREADS)
        return 1;
    printf("%zu threads, %d operators a step\n", thread_pool_size(t), (int)OPERATORS);
    printf("%-9s %10s %12s %14s %8s\n", "spinners", "steps/s", "slower", "a fair share", "ratio");
    for (n = 0; n <= most; n++) {
        double pool, unwaited;

        if (n > 0) {
            (void)fflush(stdout);
            spinners[n - 1] = fork();
            if (spinners[n - 1] == 0)
                spin();
            if (spinners[n - 1] < 0)
                break;
        }
        unwaited = steps_without_waiting(thread_pool_size(t));
        pool = steps_of_pool(t);
        alone_pool = n == 0 ? pool : alone_pool;
        alone_unwaited = n == 0 ? unwaited : alone_unwaited;
        printf("%-9zu %10.1f %10.2f x %12.2f x %8.2f\n", n, pool, alone_pool / pool,
               alone_unwaited / unwaited, alone_pool / pool / (alone_unwaited / unwaited));
    }
    for (size_t i = 0; i < most && i + 1 <= n; i++)
        (void)kill(spinners[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
    thread_pool_close(t);
    return 0;
}
