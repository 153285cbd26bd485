/* The table of tasks, directly: whose turn it is, which worker gets a task, what is refused. The
 * schedules of tests/sim/test_work_sim.c show that no task is lost or done twice. */
#include <stdio.h>
#include <string.h>

#include "base/alarm.h"
#include "base/env.h"
#include "server/work/parts.h"
#include "server/work/work.h"
#include "server/work/worker.h"
#include "tests/unit/base/suite.h"

static uint64_t now_us;
static struct work_table work;
static struct alarm due = {.tick = work_tick, .owner = &work};
static struct work_worker workers[3];
static unsigned n_ended;

static uint64_t fake_now(void *self)
{
    return now_us;
}

static void real_random(void *self, void *out, size_t n_bytes)
{
    env_real.random(env_real.self, out, n_bytes);
}

static const struct env env = {.now_us = fake_now, .random = real_random};

static unsigned weight(void *self, uint32_t principal)
{
    return principal == 2 ? 3 : 1;
}

static void on_notify(struct peer *p)
{
}

static void on_ended(struct peer *p, const struct error *err)
{
    work_worker_close(container_of(p, struct work_worker, peer));
    n_ended++;
}

static void open_work(void)
{
    const struct work_config config = {.env = &env,
                                       .silence_us = 1000000,
                                       .may_attach = true,
                                       .max_bytes = 4000,
                                       .weight = weight,
                                       .alarm = &due};

    now_us = 1;
    n_ended = 0;
    work_init(&work, &config);
}

static void attach(struct work_worker *w, size_t room)
{
    static const char *const functions[] = {"f"};
    const struct work_offer offer = {
        .name = "", .functions = functions, .n_functions = 1, .room = room};
    struct error err;

    *w = (struct work_worker){.peer = {.notify = on_notify, .ended = on_ended}};
    ck_assert_int_eq(work_worker_open(w, &work, &offer, &err), STATUS_OK);
}

static struct work_task *submit(uint32_t principal, const char *request_id, size_t size)
{
    const struct work_submission s = {
        .principal = principal, .function = "f", .request_id = request_id};
    static const uint8_t zeros[1000];
    struct work_bytes bytes;
    struct work_task *t;
    struct error err;

    ck_assert_int_eq(work_bytes_begin(&bytes, &work, principal, size, &err), STATUS_OK);
    ck_assert_int_eq(work_bytes_append(&bytes, zeros, size, &err), STATUS_OK);
    ck_assert_int_eq(work_submit(&t, &work, &s, &bytes, &err), STATUS_OK);
    return t;
}

/* The worker's next task is sent and done. */
static struct work_task *compute(struct work_worker *w)
{
    struct work_task *t = work_worker_order(w);
    struct work_bytes none = {0};

    work_worker_taken(w);
    work_worker_result(w, t, &none, NULL);
    return t;
}

static void close_work(void)
{
    for (size_t i = 0; i < 3; i++)
        work_worker_close(&workers[i]);
    memset(workers, 0, sizeof(workers));
    work_deinit(&work);
}

/* Tasks of one principal begin in their order; principals take turns, by weight; who comes late has
 * no claim on the turns before. */
START_TEST(test_turns)
{
    unsigned n[3] = {0};
    struct work_task *first, *second;

    open_work();
    attach(&workers[0], 1);
    first = submit(1, "", 0);
    second = submit(1, "", 0);
    for (int i = 0; i < 20; i++)
        (void)submit(1, "", 0);
    for (int i = 0; i < 20; i++)
        (void)submit(2, "", 0);
    ck_assert_ptr_eq(compute(&workers[0]), first);
    for (int i = 0; i < 20; i++) {
        struct work_task *t = compute(&workers[0]);

        n[t->principal->id]++;
        ck_assert(n[1] != 1 || t->principal->id != 1 || t == second);
    }
    ck_assert(n[1] == 4 || n[1] == 5); /* of weight 1 beside weight 3 */
    close_work();
}
END_TEST

/* What a worker gives back, and what it had not begun when it went, waits in its old place. */
START_TEST(test_order)
{
    struct work_task *t[6], *back;
    struct error err;

    open_work();
    attach(&workers[0], 4);
    for (int i = 0; i < 6; i++)
        t[i] = submit(1, "", 0);
    for (int i = 0; i < 4; i++)
        work_worker_taken(&workers[0]);
    ck_assert_int_eq(work_worker_set_room(&workers[0], 0, &err), STATUS_OK);
    for (int i = 1; i < 3; i++) {
        ck_assert_int_eq(work_worker_find(&back, &workers[0], t[i]->by_id.hash, &err), STATUS_OK);
        work_worker_return(&workers[0], back);
    }
    work_worker_close(&workers[0]);
    ck_assert_int_eq(t[0]->failure->err.status, STATUS_ABORTED); /* it may have begun */
    attach(&workers[1], 6);
    for (int i = 1; i < 6; i++)
        ck_assert_ptr_eq(compute(&workers[1]), t[i]);
    close_work();
}
END_TEST

/* The worker with the fewest tasks gets the next, none more than its room; one that says that it
 * has less keeps what it has. */
START_TEST(test_room)
{
    struct error err;

    open_work();
    attach(&workers[0], 3);
    attach(&workers[1], 2);
    for (int i = 0; i < 4; i++)
        (void)submit(1, "", 0);
    ck_assert_uint_eq(workers[0].peer.n_awaited, 2);
    ck_assert_uint_eq(workers[1].peer.n_awaited, 2);
    for (int i = 0; i < 4; i++)
        (void)submit(1, "", 0);
    ck_assert_uint_eq(workers[0].peer.n_awaited, 3);
    ck_assert_int_eq(work_worker_set_room(&workers[0], 1, &err), STATUS_OK);
    (void)compute(&workers[0]);
    ck_assert_uint_eq(workers[0].peer.n_awaited, 2);
    attach(&workers[2], 10); /* what waited is its */
    ck_assert_uint_eq(workers[2].peer.n_awaited, 3);
    ck_assert_int_eq(work_worker_set_room(&workers[0], WORK_MAX_ROOM + 1, &err), STATUS_INVALID);
    close_work();
}
END_TEST

/* All payloads together are bounded, a principal's and each; what is freed may be used again. */
START_TEST(test_bytes)
{
    struct work_bytes bytes = {0};
    struct work_task *t[4];
    struct error err;

    open_work();
    attach(&workers[0], 1);
    ck_assert_int_eq(work_bytes_begin(&bytes, &work, 1, 1001, &err), STATUS_INVALID);
    for (int i = 0; i < 2; i++)
        t[i] = submit(1, "", 1000);
    ck_assert_int_eq(work_bytes_begin(&bytes, &work, 1, 1, &err), STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "half of the limit of 4000 bytes"));
    ck_assert_ptr_nonnull(strstr(err.text, "(--work-bytes) is reached: it has 2000"));
    ck_assert_uint_gt(err.retry_after_ms, 0);
    for (int i = 2; i < 4; i++)
        t[i] = submit(2, "", 1000);
    ck_assert_int_eq(work_bytes_begin(&bytes, &work, 3, 1, &err), STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "there are 4000"));
    ck_assert_uint_gt(err.retry_after_ms, 0);
    work_cancel(t[3]);
    ck_assert_uint_eq(work.bytes_limit.held / 1000, 3);
    ck_assert_int_eq(work_bytes_begin(&bytes, &work, 1, 1, &err), STATUS_EXHAUSTED);
    work_cancel(t[1]);
    ck_assert_uint_eq(work.bytes_limit.held / 1000, 2);
    ck_assert_int_eq(work_bytes_begin(&bytes, &work, 1, 1, &err), STATUS_OK);
    ck_assert_int_eq(work_bytes_append(&bytes, "ab", 2, &err), STATUS_INVALID);
    work_bytes_free(&bytes, &work);
    close_work();
}
END_TEST

/* A request id is its principal's; the task with it is kept for a while once it is done. */
START_TEST(test_request_ids)
{
    struct work_task *t, *found;
    struct error err;

    open_work();
    attach(&workers[0], 5);
    t = submit(1, "r", 3);
    ck_assert_ptr_eq(submit(1, "r", 3), t);
    ck_assert_ptr_ne(submit(2, "r", 3), t);
    ck_assert_ptr_eq(compute(&workers[0]), t);
    ck_assert_ptr_eq(submit(1, "r", 3), t);
    ck_assert_int_eq(work_find(&found, &work, 1, t->by_id.hash, &err), STATUS_OK);
    ck_assert_int_eq(work_find(&found, &work, 2, t->by_id.hash, &err), STATUS_NOT_FOUND);
    now_us += (uint64_t)WORK_KEEP_MS * 1000;
    peer_heard(&workers[0].peer);
    alarm_ring(&due);
    ck_assert_uint_eq(work.tasks_limit.held, 1); /* principal 2's */
    close_work();
}
END_TEST

/* Silent workers are ended; a function without workers is forgotten, and its tasks fail. */
START_TEST(test_silence)
{
    struct work_task *t;
    struct error err;

    open_work();
    attach(&workers[0], 1);
    (void)submit(1, "", 0);
    t = submit(1, "", 0);
    now_us += 1000000;
    alarm_ring(&due);
    ck_assert_uint_eq(n_ended, 1);
    ck_assert_int_eq(work_check_function(&work, 1, "f", &err), STATUS_OK);
    now_us += 1000000;
    alarm_ring(&due);
    ck_assert_int_eq(work_check_function(&work, 1, "f", &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(t->failure->err.status, STATUS_UNAVAILABLE);
    ck_assert_int_eq(t->failure->err.reason, REASON_WORKER_LOST);
    close_work();
}
END_TEST

SUITE_MAIN("server/work", test_turns, test_order, test_room, test_bytes, test_request_ids,
           test_silence)
