/* The table of tasks when memory fails: what is refused changes nothing, and succeeds when it is
 * repeated; a task whose failure has no room still ends. */
#include <string.h>

#include "base/alarm.h"
#include "server/work/work.h"
#include "server/work/worker.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"

static void on_order(struct peer *p)
{
}

static void on_ended(struct peer *p, const struct error *err)
{
    ck_abort_msg("the worker is at no fault");
}

static void on_ready(struct work_wait *wait)
{
}

/* A fault hits once: the second attempt is told apart from the first by nothing. */
static enum status check_refusal(enum status rc, int attempt)
{
    ck_assert(rc == STATUS_OK || (rc == STATUS_EXHAUSTED && attempt == 0));
    return rc;
}

static void attach(struct work_worker *w, struct work_table *work, const char *name)
{
    static const char *const functions[] = {"f", "g"};
    const struct work_offer offer = {
        .name = name, .principal = 1, .functions = functions, .n_functions = 2, .room = 3};
    struct error err;

    *w = (struct work_worker){.peer = {.notify = on_order, .ended = on_ended}};
    for (int i = 0; check_refusal(work_worker_open(w, work, &offer, &err), i) != STATUS_OK; i++) {
        ck_assert(!peer_is_open(&w->peer));
        ck_assert_uint_eq(work->workers_limit.held, 0);
    }
}

static struct work_task *submit(struct work_table *work, struct work_wait *wait, const char *id,
                                unsigned n_retries)
{
    const struct work_submission s = {
        .principal = 7, .function = "f", .request_id = id, .n_retries = n_retries};
    struct work_bytes bytes = {0};
    struct work_task *t = NULL;
    struct error err;
    size_t before = work->bytes_limit.held;

    for (int i = 0; check_refusal(work_bytes_begin(&bytes, work, 7, 100, &err), i) != STATUS_OK;
         i++)
        ck_assert_uint_eq(work->bytes_limit.held, before);
    ck_assert_int_eq(work_bytes_append(&bytes, (char[100]){0}, 100, &err), STATUS_OK);
    for (int i = 0; check_refusal(work_submit(&t, work, &s, &bytes, &err), i) != STATUS_OK; i++)
        ck_assert_uint_eq(bytes.size_bytes, 100); /* not taken */
    for (int i = 0; check_refusal(work_wait_add(wait, t, 1, &err), i) != STATUS_OK; i++)
        ck_assert(list_is_empty(&t->waits));
    return t;
}

static struct work_task *take_order(struct work_worker *w)
{
    struct work_task *t = work_worker_order(w);

    ck_assert_ptr_nonnull(t);
    work_worker_taken(w);
    return t;
}

/* Results, an exception, and a worker that is lost with a task that is run again and with one that
 * is not. */
static enum status compute_all(void *arg)
{
    struct alarm never = {0};
    const struct work_config config = {.env = &env_real,
                                       .silence_us = 60000000,
                                       .may_attach = true,
                                       .max_bytes = 1 << 20,
                                       .alarm = &never};
    struct work_failure odd = {.is_exception = true, .type = "Odd", .message = "so", .trace = "."};
    const struct work_report report = {
        .name = "first", .principal = 1, .signal = 9, .tail = "last words"};
    struct work_bytes result = {0};
    struct work_worker first, second;
    struct work_task *t[4], *taken;
    struct work_table work;
    struct work_wait wait;
    struct error err;

    work_init(&work, &config);
    work_wait_init(&wait, on_ready);
    attach(&first, &work, "first");
    for (size_t i = 0; i < 4; i++)
        t[i] = submit(&work, &wait, i == 1 ? "id" : "", i == 2);

    taken = take_order(&first);
    for (int i = 0; check_refusal(work_bytes_begin(&result, &work, 7, 9, &err), i) != STATUS_OK;)
        i++;
    ck_assert_int_eq(work_bytes_append(&result, "a result.", 9, &err), STATUS_OK);
    work_worker_result(&first, taken, &result, NULL);
    ck_assert(t[0]->state == WORK_TASK_DONE && t[0]->failure == NULL);

    taken = take_order(&first);
    (void)error_set(&odd.err, STATUS_UNKNOWN, "Odd: so");
    work_worker_result(&first, taken, &result, &odd);
    ck_assert(t[1]->failure->err.status == STATUS_UNKNOWN ||
              t[1]->failure->err.status == STATUS_EXHAUSTED);

    first.n_at_once = 2;
    (void)take_order(&first);
    (void)take_order(&first);
    work_worker_close(&first);
    (void)check_refusal(work_report(&work, &report, &err), 0);
    attach(&second, &work, "");
    while (work_worker_order(&second) != NULL)
        work_worker_result(&second, take_order(&second), &result, NULL);
    work_worker_close(&second);
    /* Without a death, or with one that is not reported, the report changes nothing of it. */
    work_end(&work);
    for (size_t i = 2; i < 4; i++)
        ck_assert_int_eq(t[i]->state, WORK_TASK_DONE);
    ck_assert(t[3]->failure->err.status == STATUS_ABORTED ||
              t[3]->failure->err.status == STATUS_EXHAUSTED);
    work_wait_close(&wait, true);
    work_deinit(&work); /* asserts that nothing is left */
    return STATUS_OK;
}

START_TEST(tasks_survive)
{
    ck_assert_int_gt(sweep(compute_all, NULL), 20);
}
END_TEST

SUITE_MAIN("fault/work", tasks_survive)
