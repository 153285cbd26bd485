/* A job waits in one queue until a process may take it: so many new ones run at once, and as many
 * long ones, which have taken COMPILER_NEW_MS of processor time. Once keys are configured a
 * tenant's are at most half of both. The next is of a tenant that has the fewest running; of its
 * new jobs the one with the smallest text, of its long ones the first. A new job that becomes long
 * runs on in a place of the long ones; where none is free its process is ended, and it begins again
 * when one is. A job goes to an idle process of its model, or a new one.
 * A process that answers is idle again; one that ends without an answer takes its job with it, by
 * the reason of its end, but for one that had ended by itself before it could read the job, which
 * another gets. */
#include "server/compile/compiler.h"

#include <assert.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/lm/grammar/engine.h"
#include "base/alloc.h"
#include "base/program.h"
#include "server/compile/child.h"
#include "server/telemetry/metric.h"

enum {
    TICK_MS = 1000,
    RETRY_MS = 1000,
    LOOK_MS = 20,
    VOCAB_TOKENS_FOR_MS = 512, /* a new process reads at least so many tokens of the vocabulary in
                                  1 ms */
};

struct compiler_user {
    struct compiler *compiler;
    struct agent_compiler agents;
    size_t n_children; /* that are not closing */
};

static struct compiler_user *child_user(const struct child *c)
{
    return c->owner;
}

static void compiler_advance(struct compiler *c);
static void on_look(uv_timer_t *look);

static struct child *compiler_next_child(const struct compiler *c, const struct child *child)
{
    const struct link *next =
        child == NULL ? list_first(&c->children) : list_next(&c->children, &child->link);

    return next == NULL ? NULL : container_of(next, struct child, link);
}

/* --- the end of a job --- */

static void job_end(struct compiler *c, struct compile_job *job, char *bytes, size_t len,
                    const struct error *err)
{
    c->figures.n_running--;
    job->child = NULL;
    job->done(job, bytes, len, err);
}

static void job_fail(struct compiler *c, struct compile_job *job, const struct error *err)
{
    if (job->is_over_budget)
        c->figures.n_over_budget++;
    else if (err->status == STATUS_INVALID)
        c->figures.n_refused++;
    else
        c->figures.n_failed++;
    job_end(c, job, NULL, 0, err);
}

static uint32_t job_budget_ms(const struct compile_job *job)
{
    const size_t shares = job->n_tokens / COMPILER_BUDGET_TOKENS;

    if (job->is_unbounded)
        return 0;
    return (uint32_t)(COMPILER_BUDGET_MS * (shares > 1 ? shares : 1));
}

static uint32_t job_memory_mib(const struct compile_job *job)
{
    return job->is_unbounded ? COMPILER_UNBOUNDED_MEMORY_MIB : COMPILER_MEMORY_MIB;
}

static void job_too_large(struct error *err, unsigned n, const char *of_what)
{
    (void)error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "constraint",
                        "the constraint takes more than %u %s: it must be smaller", n, of_what);
}

static void job_lost(struct error *err, const char *how, int code)
{
    (void)error_set(err, STATUS_UNAVAILABLE, "the program that compiles constraints %s %d", how,
                    code);
    err->retry_after_ms = RETRY_MS;
}

/* Why a process that has ended has not answered its job. */
static void job_explain(struct compile_job *job, const struct child *child, struct error *err)
{
    const int status = child->wait_status, number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    if (child->err.status != STATUS_OK) { /* its answer was wrong, so it was killed */
        *err = child->err;
        err->status = STATUS_UNAVAILABLE;
        err->retry_after_ms = RETRY_MS;
    } else if (number == SIGPROF) {
        job->is_over_budget = true;
        job_too_large(err, job_budget_ms(job), "ms of processor time to compile");
    } else if (number == SIGSEGV || number == SIGABRT || number == SIGBUS || number == SIGFPE ||
               number == SIGILL) {
        (void)error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "constraint",
                            "the constraint cannot be compiled: its compiler ended with signal %d",
                            number);
    } else if (number != 0) { /* by the kernel, without memory, or by somebody */
        job_lost(err, "was killed by signal", number);
    } else {
        job_lost(err, "ended with code", WEXITSTATUS(status));
    }
}

/* --- processes --- */

static void compiler_close_child(struct compiler *c, struct child *child)
{
    child_user(child)->n_children--;
    child->owner = c;
    child_close(child);
}

/* A process of the model that waits for a job, but for one. */
static struct child *user_idle(const struct compiler_user *u, const struct child *but)
{
    struct child *at = compiler_next_child(u->compiler, NULL);

    while (at != NULL && (at->is_closing || at->owner != u || at->job != NULL || at == but))
        at = compiler_next_child(u->compiler, at);
    return at;
}

static void on_answered(struct child *child)
{
    struct compiler_user *u = child_user(child);
    struct compiler *c = u->compiler;
    struct compile_job *job = child->job;
    struct answer *answer = &child->answer;
    char *bytes = answer->bytes;
    struct error err = {0};

    child->job = NULL;
    child->since_ms = uv_now(c->loop);
    if (answer->head.verdict == COMPILE_INVALID)
        (void)error_because(&err, STATUS_INVALID, REASON_INVALID_FIELD, "constraint",
                            "the constraint cannot be compiled: %.*s", COMPILE_MAX_WHY, bytes);
    else if (answer->head.verdict == COMPILE_NO_MEMORY)
        job_too_large(&err, job_memory_mib(job), "MiB to compile");
    else if (answer->head.verdict == COMPILE_TOO_LARGE)
        job_too_large(&err, COMPILE_MAX_BYTES >> 20, "MiB once it is compiled");
    if (child->is_slowed || user_idle(u, child) != NULL) /* one is enough */
        compiler_close_child(c, child);
    if (err.status != STATUS_OK) {
        job_fail(c, job, &err);
    } else {
        answer->bytes = NULL; /* given away */
        c->figures.n_done++;
        job_end(c, job, bytes, answer->n_bytes, &err);
    }
    compiler_advance(c);
}

static void on_gone(struct child *child)
{
    struct compiler *c = child_user(child)->compiler;
    struct compile_job *job = child->job;
    struct error err = {0};

    child->job = NULL;
    if (job != NULL && !job->is_repeated && child->n_answers > 0 && child->answer.n_head == 0 &&
        child->err.status == STATUS_OK && WIFEXITED(child->wait_status)) {
        job->is_repeated = true; /* the process had ended before it read the job */
        job->child = NULL;
        c->figures.n_running--;
        list_push_front(&c->waiting, &job->link);
        c->figures.n_waiting++;
        job = NULL;
    }
    if (job != NULL)
        job_explain(job, child, &err);
    compiler_close_child(c, child);
    if (job != NULL)
        job_fail(c, job, &err);
    compiler_advance(c);
}

static void on_child_closed(struct child *child)
{
    struct compiler *c = child->owner;

    list_remove(&child->link);
    c->n_children--;
    if (c->n_children == 0 && !c->is_closing)
        (void)uv_timer_stop(&c->tick); /* cannot fail */
}

/* Ends what was idle for long, and what has a budget and got no processor to use it up. */
static void on_tick(uv_timer_t *tick)
{
    struct compiler *c = tick->data;

    for (struct child *at = compiler_next_child(c, NULL); at != NULL;
         at = compiler_next_child(c, at)) {
        const uint64_t for_ms = uv_now(c->loop) - at->since_ms;
        struct error late;

        if (at->is_closing)
            continue;
        if (at->job == NULL && for_ms > COMPILER_IDLE_MS) {
            compiler_close_child(c, at);
        } else if (at->job != NULL && !at->job->is_unbounded && for_ms > COMPILER_PATIENCE_MS) {
            (void)error_set(&late, STATUS_UNAVAILABLE,
                            "the program that compiles constraints got no processor time");
            child_kill(at, &late);
        }
    }
}

static enum status compiler_find_program(char out[PATH_MAX], struct error *err)
{
    const char *given = getenv("PARLEY_COMPILE");

    if (given != NULL && strlen(given) < PATH_MAX) {
        memcpy(out, given, strlen(given) + 1);
        return STATUS_OK;
    }
    if (program_beside(out, "../lib/parley/parley-compile") || /* its place in an installation */
        program_beside(out, "../lib/parley-compile") ||
        program_beside(out, "server/compile/parley-compile"))
        return STATUS_OK;
    return error_set(err, STATUS_UNAVAILABLE,
                     "replies cannot be constrained: the program parley-compile is not beside "
                     "parleyd's libraries ('./run build' builds it)");
}

static enum status compiler_start_child(struct child **out, struct compiler_user *u, int vocab_fd,
                                        struct error *err)
{
    static const struct child_events events = {on_answered, on_gone, on_child_closed};
    struct compiler *c = u->compiler;
    char program[PATH_MAX], module[PATH_MAX];
    struct child *child;
    enum status rc = compiler_find_program(program, err);

    if (rc == STATUS_OK)
        rc = engine_find(module, err);
    if (rc == STATUS_OK)
        rc = child_start(&child, c->loop, program, module, vocab_fd, &events, u, err);
    if (rc != STATUS_OK)
        return rc;
    list_push(&c->children, &child->link);
    u->n_children++;
    if (c->n_children++ == 0)
        (void)uv_timer_start(&c->tick, on_tick, TICK_MS, TICK_MS); /* cannot fail */
    *out = child;
    return STATUS_OK;
}

/* --- the queue --- */

/* The long jobs that run, or the new ones; of this tenant alone where of_tenant is set. */
static size_t compiler_running(const struct compiler *c, bool are_long, bool of_tenant,
                               const struct tenant *tenant)
{
    size_t n = 0;

    for (const struct child *at = compiler_next_child(c, NULL); at != NULL;
         at = compiler_next_child(c, at))
        n += at->job != NULL && at->job->is_long == are_long &&
             (!of_tenant || at->job->tenant == tenant);
    return n;
}

/* Whether one more job of the tenant may run among the long or the new ones. */
static bool compiler_has_place(const struct compiler *c, bool is_long, const struct tenant *tenant)
{
    return compiler_running(c, is_long, false, NULL) < c->n_at_once &&
           (tenant == NULL || compiler_running(c, is_long, true, tenant) < c->n_at_once / 2);
}

/* Whether job goes before another, which came first: new ones with small texts take less time, as a
 * rule. None is overtaken for ever. */
static bool job_overtakes(const struct compile_job *job, const struct compile_job *other)
{
    if (job->is_long || other->is_long || other->n_overtaken >= COMPILER_MAX_OVERTAKEN)
        return false;
    return job->n_overtaken >= COMPILER_MAX_OVERTAKEN || job->len < other->len;
}

/* NULL: none may run now. */
static struct compile_job *compiler_choose(const struct compiler *c)
{
    struct compile_job *best = NULL;
    size_t least = SIZE_MAX;

    for (const struct link *at = list_first(&c->waiting); at != NULL;
         at = list_next(&c->waiting, at)) {
        struct compile_job *job = container_of(at, struct compile_job, link);
        const size_t n = compiler_running(c, job->is_long, true, job->tenant);

        if ((n < least || (n == least && job_overtakes(job, best))) &&
            compiler_has_place(c, job->is_long, job->tenant)) {
            best = job;
            least = n;
        }
    }
    return best;
}

/* Takes a job out of those that wait. */
static void compiler_take(struct compiler *c, struct compile_job *job)
{
    for (const struct link *at = list_first(&c->waiting); at != &job->link;
         at = list_next(&c->waiting, at))
        container_of(at, struct compile_job, link)->n_overtaken++;
    list_remove(&job->link);
    c->figures.n_waiting--;
}

/* On failure the job is over, and its done was not called. */
static enum status compiler_run(struct compiler *c, struct compile_job *job, struct error *err)
{
    struct compiler_user *u = job->user;
    struct child *child = user_idle(u, NULL);
    enum status rc = STATUS_OK;

    compiler_take(c, job);
    if (child == NULL)
        rc = compiler_start_child(&child, u, job->vocab_fd, err);
    if (rc == STATUS_OK)
        rc = child_give(child, job, job_budget_ms(job), job_memory_mib(job), err);
    if (rc == STATUS_OK) {
        job->child = child;
        c->figures.n_running++;
        if (job->is_long)
            child_slow(child);
        else
            (void)uv_timer_start(&c->look, on_look, LOOK_MS, LOOK_MS); /* cannot fail */
        return STATUS_OK;
    }
    if (child != NULL)
        compiler_close_child(c, child);
    err->retry_after_ms = RETRY_MS;
    return rc;
}

static void compiler_advance(struct compiler *c)
{
    struct compile_job *job;
    struct error err = {0};

    while (!c->is_closing && (job = compiler_choose(c)) != NULL)
        if (compiler_run(c, job, &err) != STATUS_OK) {
            c->figures.n_running++; /* as job_end expects */
            job_fail(c, job, &err);
        }
}

/* A job that runs has become long. It goes on, or begins again later. */
static void job_grow(struct compiler *c, struct compile_job *job, struct child *child)
{
    const bool has_place = compiler_has_place(c, true, job->tenant);

    job->is_long = true;
    if (has_place) {
        child_slow(child);
        return;
    }
    job->child = NULL;
    c->figures.n_running--;
    list_push(&c->waiting, &job->link);
    c->figures.n_waiting++;
    compiler_close_child(c, child);
}

/* Finds new jobs that have become long. */
static void on_look(uv_timer_t *look)
{
    struct compiler *c = look->data;
    bool has_new = false;

    for (struct child *at = compiler_next_child(c, NULL); at != NULL;
         at = compiler_next_child(c, at)) {
        struct compile_job *job = at->job;
        uint64_t new_ms = COMPILER_NEW_MS;

        if (job == NULL || job->is_long)
            continue;
        if (!child_has_read(at)) /* it reads the vocabulary before */
            new_ms += job->n_tokens / VOCAB_TOKENS_FOR_MS;
        if (child_spent_ms(at) > new_ms)
            job_grow(c, job, at);
        else
            has_new = true;
    }
    if (!has_new)
        (void)uv_timer_stop(look); /* cannot fail */
    compiler_advance(c);
}

static void on_later(uv_idle_t *later)
{
    (void)uv_idle_stop(later); /* cannot fail */
    compiler_advance(later->data);
}

static enum status compiler_submit(void *self, struct compile_job *job, struct error *err)
{
    struct compiler_user *u = self;
    struct compiler *c = u->compiler;

    if (c->figures.n_waiting >= COMPILER_MAX_WAITING) {
        (void)error_because(err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
                            "%d constraints wait to be compiled", COMPILER_MAX_WAITING);
        err->retry_after_ms = RETRY_MS;
        return STATUS_EXHAUSTED;
    }
    job->user = u;
    job->child = NULL;
    job->is_repeated = job->is_over_budget = job->is_long = false;
    job->n_overtaken = 0;
    list_push(&c->waiting, &job->link);
    c->figures.n_waiting++;
    /* Others that may run do so already. */
    return compiler_choose(c) == job ? compiler_run(c, job, err) : STATUS_OK;
}

static void compiler_cancel(void *self, struct compile_job *job)
{
    struct compiler_user *u = self;
    struct compiler *c = u->compiler;
    struct child *child = job->child;

    c->figures.n_cancelled++;
    if (child == NULL) {
        list_remove(&job->link);
        c->figures.n_waiting--;
        return;
    }
    c->figures.n_running--;
    compiler_close_child(c, child);
    (void)uv_idle_start(&c->later, on_later); /* cannot fail */
}

/* --- life --- */

static void compiler_forget(void *self)
{
    struct compiler_user *u = self;
    struct child *next;

    for (struct child *at = compiler_next_child(u->compiler, NULL); at != NULL; at = next) {
        next = compiler_next_child(u->compiler, at);
        if (!at->is_closing && at->owner == u)
            compiler_close_child(u->compiler, at);
    }
}

enum status compiler_user_open(struct compiler_user **out, struct compiler *c, struct error *err)
{
    struct compiler_user *u = try_alloc(1, sizeof(*u));

    if (u == NULL)
        return error_no_memory(err, sizeof(*u), "a compiler of constraints");
    u->compiler = c;
    u->agents = (struct agent_compiler){compiler_submit, compiler_cancel, compiler_forget, u};
    *out = u;
    return STATUS_OK;
}

void compiler_user_close(struct compiler_user *u)
{
    if (u == NULL)
        return;
    compiler_forget(u);
    assert(u->n_children == 0);
    free(u);
}

const struct agent_compiler *compiler_user_agents(const struct compiler_user *u)
{
    return &u->agents;
}

struct compiler_figures compiler_count(const struct compiler *c)
{
    struct compiler_figures figures = c->figures;

    figures.n_processes = c->n_children;
    return figures;
}

void compiler_metrics(const struct compiler *c, struct buf *out)
{
    static const struct metric_row rows[] = {
        METRIC("gauge", "parley_compile_processes", "Processes that compile constraints.",
               compiler_figures, n_processes),
        METRIC("gauge", "parley_compile_running", "Constraints that are being compiled.",
               compiler_figures, n_running),
        METRIC("gauge", "parley_compile_queued", "Constraints that wait to be compiled.",
               compiler_figures, n_waiting),
    };
    const struct compiler_figures f = compiler_count(c);
    const char *name = "parley_compile_total";

    METRIC_ROWS(out, rows, &f);
    metric_head(out, name, "counter", "Constraints, by how their compilation ended.");
    metric_labelled(out, name, (double)f.n_done, "result=\"done\"");
    metric_labelled(out, name, (double)f.n_refused, "result=\"refused\"");
    metric_labelled(out, name, (double)f.n_over_budget, "result=\"over_budget\"");
    metric_labelled(out, name, (double)f.n_failed, "result=\"failed\"");
    metric_labelled(out, name, (double)f.n_cancelled, "result=\"cancelled\"");
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct compiler *c = handle->data;
    struct child *next;

    for (struct child *at = compiler_next_child(c, NULL); at != NULL; at = next) {
        next = compiler_next_child(c, at); /* closing frees none before the loop's next turn */
        child_reap(at);
    }
}

void compiler_init(struct compiler *c, uv_loop_t *loop)
{
    const long half = sysconf(_SC_NPROCESSORS_ONLN) / 2;

    *c = (struct compiler){.loop = loop, .n_at_once = 2};
    if (half > 2)
        c->n_at_once = half < COMPILER_MAX_AT_ONCE ? (size_t)half : COMPILER_MAX_AT_ONCE;
    list_init(&c->waiting);
    list_init(&c->children);
    (void)uv_signal_init(loop, &c->on_child); /* none of these can fail */
    (void)uv_timer_init(loop, &c->tick);
    (void)uv_timer_init(loop, &c->look);
    (void)uv_idle_init(loop, &c->later);
    c->on_child.data = c->tick.data = c->look.data = c->later.data = c;
    (void)uv_signal_start(&c->on_child, on_signal, SIGCHLD);
}

void compiler_close(struct compiler *c)
{
    assert(list_is_empty(&c->waiting) && c->figures.n_running == 0);
    c->is_closing = true;
    for (struct child *at = compiler_next_child(c, NULL), *next; at != NULL; at = next) {
        next = compiler_next_child(c, at);
        child_abandon(at);
    }
    uv_close((uv_handle_t *)&c->on_child, NULL);
    uv_close((uv_handle_t *)&c->tick, NULL);
    uv_close((uv_handle_t *)&c->look, NULL);
    uv_close((uv_handle_t *)&c->later, NULL);
}
