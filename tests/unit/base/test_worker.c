#include "base/worker.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "tests/unit/base/suite.h"

enum { N_JOBS = 1000 };

/* One worker on a loop of its own, and the results of its jobs. */
struct bench {
    uv_loop_t loop;
    struct worker *worker;
    pthread_t home;
    int n_run;  /* the compute thread's */
    int n_done; /* the loop's, as are those below */
    int n_stopped;
    int stop_after; /* the done call that stops the worker; 0: none does */
};

struct task {
    struct job job;
    struct bench *bench;
    int number;        /* in the order of submission */
    int answer;        /* written by run, read by done */
    struct task *next; /* submitted by done; NULL: none */
    uv_sem_t *gate;    /* waited for by run; NULL: none */
};

static void on_stopped(void *arg)
{
    struct bench *b = arg;

    ck_assert(pthread_equal(b->home, pthread_self()));
    b->n_stopped++;
    b->worker = NULL;
}

static void run_task(struct job *job)
{
    struct task *t = container_of(job, struct task, job);

    ck_assert(worker_is_current(t->bench->worker));
    ck_assert_int_eq(t->number, t->bench->n_run);
    if (t->gate != NULL)
        uv_sem_wait(t->gate);
    t->bench->n_run++;
    t->answer = t->number + 7;
}

static void task_done(struct job *job)
{
    struct task *t = container_of(job, struct task, job);
    struct bench *b = t->bench;

    ck_assert(pthread_equal(b->home, pthread_self()));
    ck_assert_int_eq(b->n_stopped, 0);
    ck_assert_int_eq(t->number, b->n_done++);
    ck_assert_int_eq(t->answer, t->number + 7);
    if (t->next != NULL)
        worker_submit(b->worker, &t->next->job);
    if (b->n_done == b->stop_after)
        worker_stop(b->worker, on_stopped, b);
    free(t); /* done is its last user */
}

static struct task *make_task(struct bench *b, int number)
{
    struct task *t = xalloc(sizeof(*t));

    *t = (struct task){.job = {.run = run_task, .done = task_done}, .bench = b, .number = number};
    return t;
}

static void bench_start(struct bench *b)
{
    struct error err;

    *b = (struct bench){.home = pthread_self()};
    ck_assert_int_eq(uv_loop_init(&b->loop), 0);
    ck_assert_int_eq(worker_start(&b->worker, &b->loop, "parley-compute-of-a-test", &err),
                     STATUS_OK);
    ck_assert(!worker_is_current(b->worker));
}

/* Runs the loop to its end: the worker has been stopped, or is stopped by a job's done. */
static void bench_end(struct bench *b)
{
    ck_assert_int_eq(uv_run(&b->loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(b->n_stopped, 1);
    ck_assert_int_eq(uv_loop_close(&b->loop), 0);
}

/* Jobs run on the compute thread and are done on the loop, each once, in the order of
 * submission. */
START_TEST(jobs_run_and_come_back_in_order)
{
    struct bench b;

    bench_start(&b);
    b.stop_after = N_JOBS;
    for (int i = 0; i < N_JOBS; i++)
        worker_submit(b.worker, &make_task(&b, i)->job);
    ck_assert_int_eq(b.n_done, 0); /* never inside worker_submit */
    bench_end(&b);
    ck_assert_int_eq(b.n_run, N_JOBS);
    ck_assert_int_eq(b.n_done, N_JOBS);
}
END_TEST

/* A done call may submit the next job: so a batch follows a batch. */
START_TEST(done_may_submit)
{
    struct task *last = NULL;
    struct bench b;

    bench_start(&b);
    b.stop_after = N_JOBS;
    for (int i = N_JOBS; i-- > 0;) {
        struct task *t = make_task(&b, i);

        t->next = last;
        last = t;
    }
    worker_submit(b.worker, &last->job);
    bench_end(&b);
    ck_assert_int_eq(b.n_done, N_JOBS);
}
END_TEST

/* A stop runs the queued jobs, calls done for all, and calls stopped last. */
START_TEST(a_stop_runs_what_waits)
{
    struct bench b;
    uv_sem_t gate;

    bench_start(&b);
    ck_assert_int_eq(uv_sem_init(&gate, 0), 0);
    for (int i = 0; i < 10; i++) {
        struct task *t = make_task(&b, i);

        t->gate = i == 0 ? &gate : NULL;
        worker_submit(b.worker, &t->job);
    }
    uv_sem_post(&gate);
    worker_stop(b.worker, on_stopped, &b);
    ck_assert_int_eq(b.n_stopped, 0); /* later, when the loop has closed the handle */
    ck_assert_int_eq(b.n_run, 10);
    bench_end(&b);
    ck_assert_int_eq(b.n_done, 10);
    uv_sem_destroy(&gate);
}
END_TEST

/* A worker that never had a job stops as well. */
START_TEST(an_idle_worker_stops)
{
    struct bench b;

    bench_start(&b);
    worker_stop(b.worker, on_stopped, &b);
    bench_end(&b);
}
END_TEST

/* A thread that cannot be started is an error with a text, and leaves nothing on the loop. */
START_TEST(no_thread_is_an_error)
{
    struct worker *w = NULL;
    struct error err;
    uv_loop_t loop;

    ck_assert_int_eq(uv_loop_init(&loop), 0);
    fault_after = 0;
    ck_assert_int_eq(worker_start(&w, &loop, "compute", &err), STATUS_EXHAUSTED);
    fault_after = -1;
    ck_assert_str_eq(err.text, "cannot start thread 'compute': Resource temporarily unavailable");
    ck_assert_ptr_null(w);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

SUITE_MAIN("compute/worker", jobs_run_and_come_back_in_order, done_may_submit,
           a_stop_runs_what_waits, an_idle_worker_stops, no_thread_is_an_error)
