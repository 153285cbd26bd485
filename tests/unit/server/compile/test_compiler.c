#include "server/compile/compiler.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "batching/tenant.h"
#include "server/compile/child.h"
#include "tests/support/compile_rig.h"
#include "tests/unit/base/suite.h"

static struct compile_rig rig;

static pid_t pid_of(const struct rig_job *j)
{
    const struct child *c = j->job.child;

    return c->pid;
}

static void compile_well(struct rig_job *j, const char *regex)
{
    compile_rig_job(&rig, j, regex);
    ck_assert_msg(compile_rig_submit(&rig, j) == STATUS_OK, "%s", j->err.text);
}

static void end_well(struct rig_job *j)
{
    compile_rig_await(&rig, j);
    ck_assert_msg(j->bytes != NULL && j->n_bytes > 0, "%s", j->err.text);
    free(j->bytes);
}

/* One process compiles one constraint after the other; what it refuses does not end it. */
START_TEST(test_reuse)
{
    struct rig_job a, b, c;
    pid_t first;

    compile_rig_open(&rig);
    compile_well(&a, "a{3}");
    first = pid_of(&a);
    end_well(&a);
    compile_well(&b, "(a");
    ck_assert_int_eq(pid_of(&b), first);
    compile_rig_await(&rig, &b);
    ck_assert_ptr_null(b.bytes);
    ck_assert_int_eq(b.err.status, STATUS_INVALID);
    ck_assert_str_eq(b.err.field, "constraint");
    compile_well(&c, "[a-z]*");
    ck_assert_int_eq(pid_of(&c), first);
    end_well(&c);
    ck_assert_uint_eq(compiler_count(&rig.compiler).n_processes, 1);
    compile_rig_close(&rig);
}
END_TEST

/* However a process ends without an answer, or with a wrong one, its job has one error, and the
 * next job is served. */
START_TEST(test_deaths)
{
    static const struct {
        const char *commands;
        enum status status;
        const char *text;
        bool is_over_budget;
    } rows[] = {
        {"exit 3", STATUS_UNAVAILABLE, "ended with code 3", false},
        {"exit 0", STATUS_UNAVAILABLE, "ended with code 0", false},
        {"kill -KILL $$", STATUS_UNAVAILABLE, "killed by signal 9", false},
        {"kill -TERM $$", STATUS_UNAVAILABLE, "killed by signal 15", false},
        {"kill -PROF $$", STATUS_INVALID, "more than 2000 ms of processor time", true},
        {"kill -SEGV $$", STATUS_INVALID, "ended with signal 11", false},
        {"kill -ABRT $$", STATUS_INVALID, "ended with signal 6", false},
        {"head -c 10 >/dev/null; exit 4", STATUS_UNAVAILABLE, "ended with code 4", false},
        {"printf PGC1 >&0; exit 5", STATUS_UNAVAILABLE, "ended with code 5", false},
        {"printf 'PGC1\\000\\000\\000\\000\\100\\000\\000\\000cut' >&0; exit 6", STATUS_UNAVAILABLE,
         "ended with code 6", false},
        {"printf 'this is no answer' >&0; exec sleep 1000", STATUS_UNAVAILABLE, "a wrong answer",
         false},
        {"cat /dev/zero >&0", STATUS_UNAVAILABLE, "a wrong answer", false},
        {"printf 'PGC1\\001\\000\\000\\000\\002\\000\\000\\000no, and more' >&0; exec sleep 1000",
         STATUS_UNAVAILABLE, "more than an answer", false},
        {RIG_ANSWER, STATUS_INVALID, "cannot be compiled: no", false},
    };

    compile_rig_open(&rig);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rig_job j, next;

        compile_rig_use(&rig, rows[i].commands);
        compile_well(&j, "a");
        compile_rig_await(&rig, &j);
        ck_assert_ptr_null(j.bytes);
        ck_assert_msg(j.err.status == rows[i].status && strstr(j.err.text, rows[i].text) != NULL,
                      "%s: %s", rows[i].commands, j.err.text);
        ck_assert(j.job.is_over_budget == rows[i].is_over_budget);
        compile_rig_settle(&rig, 0);
        compile_rig_use(&rig, NULL);
        compile_well(&next, "a");
        end_well(&next);
        compiler_user_agents(rig.user)->forget(rig.user);
        compile_rig_settle(&rig, 0);
    }
    compile_rig_close(&rig);
}
END_TEST

/* A process that ends by itself after an answer takes no job with it. */
START_TEST(test_retired)
{
    struct rig_job a, b;

    compile_rig_open(&rig);
    compile_rig_use(&rig, "head -c 25 >/dev/null; " RIG_ANSWER "; head -c 1 >/dev/null; exit 0");
    compile_well(&a, "a");
    compile_rig_await(&rig, &a);
    compile_rig_use(&rig, NULL);
    compile_well(&b, "b"); /* the process reads a byte of it */
    end_well(&b);
    compile_rig_close(&rig);
}
END_TEST

/* What cannot be started is UNAVAILABLE at once. */
START_TEST(test_missing)
{
    static const char *const programs[] = {"/nowhere/parley-compile", "/dev/null", ""};

    compile_rig_open(&rig);
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        struct rig_job j;

        ck_assert_int_eq(setenv("PARLEY_COMPILE", programs[i], 1), 0);
        compile_rig_job(&rig, &j, "a");
        ck_assert_int_eq(compile_rig_submit(&rig, &j), STATUS_UNAVAILABLE);
        ck_assert_uint_eq(compiler_count(&rig.compiler).n_running, 0);
    }
    compile_rig_close(&rig);
}
END_TEST

/* --- the limits of the real program --- */

static bool is_child_over;
static int wait_status;
static uint32_t verdict;

static void on_limited_answer(struct child *c)
{
    verdict = c->answer.head.verdict;
    c->job = NULL;
    if (verdict != COMPILE_NO_MEMORY) /* it would wait for another job */
        child_close(c);
}

static void on_limited_gone(struct child *c)
{
    wait_status = c->wait_status;
    child_close(c);
}

static void on_limited_closed(struct child *c)
{
    is_child_over = true;
}

static void run_limited(const char *regex, uint32_t budget_ms, uint32_t memory_mib)
{
    static const struct child_events events = {on_limited_answer, on_limited_gone,
                                               on_limited_closed};
    struct rig_job j;
    struct child *c;
    struct error err;

    compile_rig_job(&rig, &j, regex);
    is_child_over = false;
    verdict = N_COMPILE_VERDICTS;
    ck_assert_int_eq(child_start(&c, &rig.loop, getenv("PARLEY_COMPILE"),
                                 getenv("PARLEY_GRAMMAR_MODULE"), rig.vocab_fd, &events, NULL,
                                 &err),
                     STATUS_OK);
    ck_assert_int_eq(child_give(c, &j.job, budget_ms, memory_mib, &err), STATUS_OK);
    while (!is_child_over) {
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
        if (!is_child_over)
            child_reap(c);
    }
}

/* The program answers that memory is too little, and then ends; for processor time it is ended. */
START_TEST(test_limits)
{
    enum { N = 4000 }; /* far more than 20 ms of any processor */
    static char slow[2 * N + 2];

    for (size_t i = 0; i < N; i++)
        memcpy(slow + 2 * i, "a?", 2);
    slow[2 * N] = 'b';
    compile_rig_open(&rig);
    run_limited("([a-z]{60}[A-Z]?){15}", 0, 0);
    ck_assert_uint_eq(verdict, COMPILE_NO_MEMORY);
    ck_assert(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    run_limited(slow, 20, 512);
    ck_assert_uint_eq(verdict, N_COMPILE_VERDICTS);
    ck_assert(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGPROF);
    compile_rig_close(&rig);
}
END_TEST

static bool is_gone(pid_t pid)
{
    return kill(pid, 0) != 0;
}

/* A job that is cancelled frees its place at once, and its process is gone. One that waits just
 * leaves. */
START_TEST(test_cancel)
{
    enum { N = COMPILER_MAX_AT_ONCE + 3 };
    struct rig_job jobs[N];
    const size_t n_at_once = (compile_rig_open(&rig), rig.compiler.n_at_once);
    pid_t pid;

    compile_rig_use(&rig, "exec sleep 1000");
    for (size_t i = 0; i < N; i++) {
        compile_well(&jobs[i], "a");
    }
    ck_assert_uint_eq(compiler_count(&rig.compiler).n_running, n_at_once);
    pid = pid_of(&jobs[0]);
    compile_rig_cancel(&rig, &jobs[N - 1]);
    compile_rig_cancel(&rig, &jobs[0]);
    while (compiler_count(&rig.compiler).n_running < n_at_once || !is_gone(pid))
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(compiler_count(&rig.compiler).n_waiting, N - n_at_once - 2);
    for (size_t i = 1; i < N - 1; i++) {
        ck_assert_uint_eq(jobs[i].n_done, 0);
        compile_rig_cancel(&rig, &jobs[i]);
    }
    compile_rig_settle(&rig, 0);
    ck_assert_uint_eq(compiler_count(&rig.compiler).n_cancelled, N);
    compile_rig_close(&rig);
}
END_TEST

/* One tenant has half of the places, whatever it submits; another's job runs at once. */
START_TEST(test_tenants)
{
    enum { N = COMPILER_MAX_AT_ONCE + 2 };
    struct rig_job greedy[N], other;
    struct tenant tenants[2];

    compile_rig_open(&rig);
    compile_rig_use(&rig, "exec sleep 1000");
    tenant_init(&tenants[0], 1);
    tenant_init(&tenants[1], 1);
    for (size_t i = 0; i < N; i++) {
        compile_rig_job(&rig, &greedy[i], "a");
        greedy[i].job.tenant = &tenants[0];
        ck_assert_int_eq(compile_rig_submit(&rig, &greedy[i]), STATUS_OK);
    }
    ck_assert_uint_eq(compiler_count(&rig.compiler).n_running, rig.compiler.n_at_once / 2);
    compile_rig_use(&rig, NULL);
    compile_rig_job(&rig, &other, "b");
    other.job.tenant = &tenants[1];
    ck_assert_int_eq(compile_rig_submit(&rig, &other), STATUS_OK);
    end_well(&other);
    for (size_t i = 0; i < N; i++)
        compile_rig_cancel(&rig, &greedy[i]);
    compile_rig_close(&rig);
}
END_TEST

/* A new job does not wait for jobs that take long, however many there are. */
START_TEST(test_long)
{
    enum { N = 3 * COMPILER_MAX_AT_ONCE };
    struct rig_job jobs[N], small;
    const size_t n_at_once = (compile_rig_open(&rig), rig.compiler.n_at_once);
    size_t n_long;

    compile_rig_use(&rig, "while :; do :; done");
    for (size_t i = 0; i < N; i++)
        compile_well(&jobs[i], "a");
    do { /* all have had their turn as new ones */
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
        n_long = 0;
        for (size_t i = 0; i < N; i++)
            n_long += jobs[i].job.is_long;
    } while (n_long < N);
    ck_assert_uint_eq(compiler_count(&rig.compiler).n_running, n_at_once);
    ck_assert_uint_eq(compiler_count(&rig.compiler).n_waiting, N - n_at_once);
    compile_rig_use(&rig, NULL);
    compile_well(&small, "b");
    end_well(&small);
    ck_assert_uint_eq(compiler_count(&rig.compiler).n_running, n_at_once);
    for (size_t i = 0; i < N; i++) {
        ck_assert_uint_eq(jobs[i].n_done, 0);
        compile_rig_cancel(&rig, &jobs[i]);
    }
    compile_rig_close(&rig);
}
END_TEST

/* Of new jobs the smallest text is next, but none waits while more and more overtake it. */
START_TEST(test_small)
{
    enum { N = COMPILER_MAX_AT_ONCE + 2 };
    struct rig_job jobs[N], small[2];
    const size_t n_at_once = (compile_rig_open(&rig), rig.compiler.n_at_once);

    compile_rig_use(&rig, "exec sleep 1000");
    for (size_t i = 0; i < N; i++)
        compile_well(&jobs[i], "aaaa");
    for (size_t i = 0; i < 2; i++) {
        compile_well(&small[i], "a");
        ck_assert_ptr_null(small[i].job.child);
        compile_rig_cancel(&rig, &jobs[i]);
        do
            (void)uv_run(&rig.loop, UV_RUN_ONCE);
        while (compiler_count(&rig.compiler).n_running < n_at_once);
        if (i == 0) {
            ck_assert_ptr_nonnull(small[i].job.child);
            ck_assert_uint_eq(jobs[N - 1].job.n_overtaken, 1);
            jobs[N - 1].job.n_overtaken = COMPILER_MAX_OVERTAKEN;
        }
    }
    ck_assert_ptr_null(small[1].job.child);
    ck_assert_ptr_nonnull(jobs[N - 1].job.child);
    for (size_t i = 2; i < N; i++)
        compile_rig_cancel(&rig, &jobs[i]);
    for (size_t i = 0; i < 2; i++)
        compile_rig_cancel(&rig, &small[i]);
    compile_rig_close(&rig);
}
END_TEST

static uint64_t cpu_us_of(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    ck_assert_int_eq(clock_getcpuclockid(pid, &clock), 0);
    ck_assert_int_eq(clock_gettime(clock, &used), 0);
    return (uint64_t)used.tv_sec * 1000000 + (uint64_t)used.tv_nsec / 1000;
}

/* What a process computes before it reads its job is not the job's. */
START_TEST(test_start)
{
    struct rig_job j;

    compile_rig_open(&rig);
    compile_rig_use(&rig, "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done; head -c 25 "
                          ">/dev/null; exec sleep 1000");
    compile_rig_job(&rig, &j, "a");
    j.job.n_tokens = 1 << 24; /* it may take long to read as many */
    ck_assert_int_eq(compile_rig_submit(&rig, &j), STATUS_OK);
    ck_assert(!child_has_read(j.job.child));
    while (!child_has_read(j.job.child))
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
    ck_assert(!j.job.is_long);
    ck_assert_uint_lt(child_spent_ms(j.job.child) * 1000, cpu_us_of(pid_of(&j)) / 2);
    compile_rig_cancel(&rig, &j);
    compile_rig_close(&rig);
}
END_TEST

/* Only so many jobs wait; the next is told when to come back. */
START_TEST(test_full)
{
    static struct rig_job jobs[COMPILER_MAX_WAITING + COMPILER_MAX_AT_ONCE];
    struct rig_job last;
    size_t n = 0;

    compile_rig_open(&rig);
    compile_rig_use(&rig, "exec sleep 1000");
    while (compiler_count(&rig.compiler).n_waiting < COMPILER_MAX_WAITING)
        compile_well(&jobs[n++], "a");
    compile_rig_job(&rig, &last, "a");
    ck_assert_int_eq(compile_rig_submit(&rig, &last), STATUS_EXHAUSTED);
    ck_assert_uint_gt(last.err.retry_after_ms, 0);
    while (n > 0)
        compile_rig_cancel(&rig, &jobs[--n]);
    compile_rig_close(&rig);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_reuse,  test_deaths, test_retired, test_missing,
                                  test_limits, test_cancel, test_tenants, test_long,
                                  test_small,  test_start,  test_full};

    if (getenv("PARLEY_COMPILE") == NULL || access(getenv("PARLEY_COMPILE"), X_OK) != 0) {
        printf("the program parley-compile is not built\n");
        return 77;
    }
    return suite_run("compiler", tests, sizeof(tests) / sizeof(tests[0]));
}
