#include "batching/batcher.h"

#include "tests/unit/batching/fakes.h"

/* A request is never answered inside batcher_submit: a tick starts the step, its end settles the
 * request. */
START_TEST(test_one_ask)
{
    struct fake f;
    struct fake_request a;

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    fake_open(&f);
    fake_request_init(&a, &f, 5, 1);
    fake_submit_ok(&a);
    ck_assert_ptr_null(f.step);
    ck_assert_uint_eq(f.armed_us, 1000);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 1);
    ck_assert_uint_eq(a.row.n_scheduled, 5);
    ck_assert_uint_eq(a.n_settled, 0);
    fake_step_done(&f);
    ck_assert_uint_eq(a.n_settled, 1);
    ck_assert_int_eq(a.err.status, STATUS_OK);
    ck_assert_uint_eq(a.n_stepped, 1);
    ck_assert_uint_eq(a.n_more, 0);
    ck_assert_ptr_null(a.own.head);
    ck_assert_uint_eq(f.armed_us, 0);
    fake_close(&f);
}
END_TEST

/* continuous: rows that answer MORE stay, requests that arrive meanwhile join the next step, and
 * each gets more once a step. */
START_TEST(test_continuous_joins)
{
    struct fake f;
    struct fake_request a, b;

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    fake_open(&f);
    fake_request_init(&a, &f, 5, 3);
    fake_request_init(&b, &f, 7, 1);
    fake_submit_ok(&a);
    fake_wait(&f, 0);
    fake_submit_ok(&b);
    ck_assert_uint_eq(f.armed_us, 0); /* compute is busy: the step's end schedules the next */
    fake_step_done(&f);
    ck_assert_uint_eq(f.n_rows, 2);
    ck_assert_ptr_eq(f.rows[0], &a);
    ck_assert_uint_eq(a.row.n_scheduled, 1);
    ck_assert_uint_eq(b.row.n_scheduled, 7);
    ck_assert_uint_eq(a.n_more, 1);
    fake_step_done(&f);
    ck_assert_uint_eq(b.n_settled, 1);
    ck_assert_uint_eq(a.n_settled, 0);
    fake_run_out(&f);
    ck_assert_uint_eq(a.n_settled, 1);
    ck_assert_uint_eq(a.n_more, 2);
    ck_assert_uint_eq(a.request.n_steps, 3);
    fake_close(&f);
}
END_TEST

static void more_while_running(struct batch_request *request, void *arg)
{
    struct fake_request *a = arg;

    ck_assert_ptr_nonnull(a->fake->step); /* compute does not wait for notifications */
    fake_more(request, arg);
}

/* more is called once the next step has begun. */
START_TEST(test_more_overlaps)
{
    struct fake f;
    struct fake_request a;

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    fake_open(&f);
    fake_request_init(&a, &f, 1, 3);
    a.request.more = more_while_running;
    fake_submit_ok(&a);
    fake_run_out(&f);
    ck_assert_uint_eq(a.n_more, 2);
    ck_assert_uint_eq(a.n_settled, 1);
    fake_close(&f);
}
END_TEST

/* A long prompt is chunked to the budget that decode rows leave; other requests wait until there is
 * budget. */
START_TEST(test_budget)
{
    struct fake f;
    struct fake_request word, prompt, late;

    fake_init(&f, BATCH_CONTINUOUS, 4, 10);
    fake_open(&f);
    fake_request_init(&word, &f, 1, 9);
    fake_request_init(&prompt, &f, 25, 1);
    fake_request_init(&late, &f, 8, 1);
    prompt.least = 2;
    fake_submit_ok(&word);
    fake_submit_ok(&prompt);
    fake_submit_ok(&late);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 2);
    ck_assert_uint_eq(word.row.n_scheduled, 1);
    ck_assert_uint_eq(prompt.row.n_scheduled, 9);
    fake_step_done(&f);
    ck_assert_uint_eq(prompt.row.n_scheduled, 9);
    fake_step_done(&f);
    ck_assert_uint_eq(f.n_rows, 2); /* 2 are left, 8 do not fit and cannot be chunked */
    ck_assert_uint_eq(prompt.row.n_scheduled, 7);
    fake_step_done(&f);
    ck_assert_uint_eq(prompt.n_settled, 1);
    ck_assert(fake_is_in_step(&f, &late));
    ck_assert_uint_eq(late.row.n_scheduled, 8);
    fake_run_out(&f);
    fake_close(&f);
}
END_TEST

/* Rows that together need more than the budget take turns: none is left out for long. */
START_TEST(test_rotation)
{
    struct fake f;
    struct fake_request a[3];
    unsigned n_in_step[3] = {0};

    fake_init(&f, BATCH_CONTINUOUS, 3, 6);
    fake_open(&f);
    for (size_t i = 0; i < 3; i++) {
        fake_request_init(&a[i], &f, 2, 1000);
        fake_submit_ok(&a[i]);
    }
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 3);
    for (size_t i = 0; i < 3; i++)
        a[i].cost = 3; /* of a budget of 6 */
    for (unsigned step = 0; step < 30; step++) {
        fake_step_done(&f);
        ck_assert_uint_eq(f.n_rows, 2);
        for (size_t i = 0; i < 3; i++) {
            n_in_step[i] += fake_is_in_step(&f, &a[i]);
            a[i].cost = 3;
        }
    }
    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_eq(n_in_step[i], 20);
    for (size_t i = 0; i < 3; i++)
        batcher_cancel(f.b, &a[i].request);
    fake_run_out(&f);
    fake_close(&f);
}
END_TEST

/* A row too large for any step runs in a step of its own. */
START_TEST(test_too_large_runs_alone)
{
    struct fake f;
    struct fake_request small, large, last;

    fake_init(&f, BATCH_CONTINUOUS, 4, 10);
    fake_open(&f);
    fake_request_init(&small, &f, 3, 1);
    fake_request_init(&large, &f, 30, 1);
    fake_request_init(&last, &f, 3, 1);
    fake_submit_ok(&small);
    fake_submit_ok(&large);
    fake_submit_ok(&last);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 1);
    ck_assert_ptr_eq(f.rows[0], &small);
    fake_step_done(&f);
    ck_assert_uint_eq(f.n_rows, 1);
    ck_assert_uint_eq(large.row.n_scheduled, 30);
    fake_step_done(&f);
    ck_assert_ptr_eq(f.rows[0], &last);
    fake_run_out(&f);
    fake_close(&f);
}
END_TEST

/* Priority decides first, arrival among equals, and waiting raises priority. */
START_TEST(test_priority_ages)
{
    struct fake f;
    struct fake_request a[5];
    static const int priority[] = {0, -1, 5, 0, 1};
    static const uint64_t at_us[] = {0, 0, 100, 150, 250};
    static const size_t order[] = {2, 0, 1, 4, 3};

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    f.config.ageing_us = 110;
    fake_open(&f);
    for (size_t i = 0; i < 5; i++) {
        f.now_us = 1000 + at_us[i];
        fake_request_init(&a[i], &f, 1, 1);
        a[i].request.priority = priority[i];
        fake_submit_ok(&a[i]);
    }
    fake_run_out(&f);
    for (size_t i = 0; i < 5; i++)
        ck_assert_ptr_eq(f.order[i], &a[order[i]]);
    fake_close(&f);
}
END_TEST

/* A priority out of range is clamped. */
START_TEST(test_priority_is_clamped)
{
    struct fake f;
    struct fake_request a[3];
    static const int priority[] = {100, 2000000000, -2000000000};

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    fake_open(&f);
    for (size_t i = 0; i < 3; i++) {
        fake_request_init(&a[i], &f, 1, 1);
        a[i].request.priority = priority[i];
        fake_submit_ok(&a[i]);
    }
    fake_run_out(&f);
    for (size_t i = 0; i < 3; i++)
        ck_assert_ptr_eq(f.order[i], &a[i]);
    fake_close(&f);
}
END_TEST

/* Requests of one flow run one after the other in the order of arrival, regardless of priority;
 * another flow's run beside them. */
START_TEST(test_asker_keeps_order)
{
    struct fake f;
    struct fake_request a[3], other;
    struct batcher_stats stats;

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    fake_open(&f);
    for (size_t i = 0; i < 3; i++) {
        fake_request_init(&a[i], &f, 1, 2);
        a[i].request.flow = &a[0].own;
        a[i].request.priority = (int)i;
        fake_submit_ok(&a[i]);
    }
    fake_request_init(&other, &f, 1, 1);
    fake_submit_ok(&other);
    batcher_stats(f.b, &stats);
    ck_assert_uint_eq(stats.n_flow_queued, 2);
    ck_assert_uint_eq(stats.n_waiting, 2);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 2);
    ck_assert(fake_is_in_step(&f, &a[0]) && fake_is_in_step(&f, &other));
    fake_run_out(&f);
    ck_assert_uint_eq(f.n_settled, 4);
    ck_assert_ptr_eq(f.order[0], &other);
    for (size_t i = 0; i < 3; i++)
        ck_assert_ptr_eq(f.order[1 + i], &a[i]);
    fake_close(&f);
}
END_TEST

/* A cancelled request that waits or is queued in its flow settles with the next tick, one in a step
 * after the step; if that step completes it, it is done. */
START_TEST(test_cancel)
{
    struct fake f;
    struct fake_request runs, ends, waits, behind;

    fake_init(&f, BATCH_CONTINUOUS, 2, 0);
    fake_open(&f);
    fake_request_init(&runs, &f, 1, 9);
    fake_request_init(&ends, &f, 1, 1);
    fake_request_init(&waits, &f, 1, 1);
    fake_request_init(&behind, &f, 1, 1);
    behind.request.flow = &runs.own;
    fake_submit_ok(&runs);
    fake_submit_ok(&ends);
    fake_wait(&f, 0);
    fake_submit_ok(&waits);
    fake_submit_ok(&behind);
    batcher_cancel(f.b, &runs.request);
    batcher_cancel(f.b, &ends.request);
    batcher_cancel(f.b, &waits.request);
    batcher_cancel(f.b, &behind.request);
    batcher_cancel(f.b, &behind.request); /* a second cancel has no effect */
    ck_assert_uint_eq(f.n_settled, 0);
    ck_assert_uint_eq(f.armed_us, f.now_us);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_settled, 2);
    ck_assert_int_eq(waits.err.status, STATUS_CANCELLED);
    ck_assert_int_eq(behind.err.status, STATUS_CANCELLED);
    fake_step_done(&f);
    ck_assert_uint_eq(f.n_settled, 4);
    ck_assert_int_eq(runs.err.status, STATUS_CANCELLED);
    ck_assert_uint_eq(runs.n_more, 0);
    ck_assert_uint_eq(runs.n_stepped, 1);
    ck_assert_int_eq(ends.err.status, STATUS_OK);
    ck_assert_ptr_null(f.step);
    fake_close(&f);
}
END_TEST

/* A deadline that has passed refuses; one that passes while the request waits expires it by the
 * timer, also while a step runs; one that passes in a step ends the request after it. */
START_TEST(test_deadline)
{
    struct fake f;
    struct fake_request past, runs, waits, behind;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    fake_open(&f);
    fake_request_init(&past, &f, 1, 1);
    past.request.deadline_us = f.now_us;
    ck_assert_int_eq(fake_submit(&past), STATUS_DEADLINE);
    ck_assert_uint_eq(past.err.retry_after_ms, 0);
    fake_request_init(&runs, &f, 1, 9);
    runs.request.deadline_us = f.now_us + 30;
    fake_submit_ok(&runs);
    fake_wait(&f, 0);
    fake_request_init(&waits, &f, 1, 1);
    fake_request_init(&behind, &f, 1, 1);
    waits.request.deadline_us = f.now_us + 20;
    behind.request.deadline_us = f.now_us + 10;
    behind.request.flow = &waits.own;
    fake_submit_ok(&waits);
    ck_assert_uint_eq(f.armed_us, f.now_us + 20);
    fake_submit_ok(&behind);
    ck_assert_uint_eq(f.armed_us, f.now_us + 10);
    fake_wait(&f, 9);
    ck_assert_uint_eq(f.n_settled, 0);
    fake_wait(&f, 1);
    ck_assert_uint_eq(behind.n_settled, 1);
    ck_assert_int_eq(behind.err.status, STATUS_DEADLINE);
    ck_assert_uint_eq(waits.n_settled, 0);
    fake_wait(&f, 10);
    ck_assert_uint_eq(waits.n_settled, 1);
    ck_assert_int_eq(waits.err.status, STATUS_DEADLINE);
    fake_step_done(&f);
    ck_assert_uint_eq(runs.n_settled, 0);
    f.now_us += 10;
    fake_step_done(&f);
    ck_assert_uint_eq(runs.n_settled, 1);
    ck_assert_int_eq(runs.err.status, STATUS_DEADLINE);
    fake_close(&f);
}
END_TEST

/* Postponing moves a request's deadline in any state, and never to an earlier time. */
START_TEST(test_postpone)
{
    struct fake f;
    struct fake_request runs, waits, behind, sooner;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    fake_open(&f);
    fake_request_init(&runs, &f, 1, 2);
    runs.request.deadline_us = f.now_us + 10;
    fake_submit_ok(&runs);
    fake_wait(&f, 0);
    fake_request_init(&waits, &f, 1, 1);
    fake_request_init(&behind, &f, 1, 1);
    fake_request_init(&sooner, &f, 1, 1);
    waits.request.deadline_us = f.now_us + 10;
    behind.request.deadline_us = f.now_us + 10;
    behind.request.flow = &waits.own;
    sooner.request.deadline_us = f.now_us + 10;
    fake_submit_ok(&waits);
    fake_submit_ok(&behind);
    fake_submit_ok(&sooner);
    batcher_postpone(f.b, &runs.request, f.now_us + 20);
    batcher_postpone(f.b, &waits.request, f.now_us + 20);
    batcher_postpone(f.b, &behind.request, 0);
    batcher_postpone(f.b, &behind.request, f.now_us + 5);
    batcher_postpone(f.b, &sooner.request, f.now_us + 5);
    fake_wait(&f, 10);
    ck_assert_uint_eq(f.n_settled, 1);
    ck_assert_int_eq(sooner.err.status, STATUS_DEADLINE);
    ck_assert_uint_eq(f.armed_us, f.now_us + 10);
    fake_step_done(&f);
    ck_assert_uint_eq(runs.n_settled, 0); /* it keeps running */
    fake_wait(&f, 10);
    ck_assert_uint_eq(waits.n_settled, 1);
    ck_assert_int_eq(waits.err.status, STATUS_DEADLINE);
    fake_step_done(&f);
    fake_run_out(&f);
    ck_assert_int_eq(runs.err.status, STATUS_OK);
    ck_assert_int_eq(behind.err.status, STATUS_OK);
    ck_assert_uint_eq(f.n_settled, 4);
    fake_close(&f);
}
END_TEST

/* No request starts at or after its deadline, however late the tick comes. */
START_TEST(test_late_tick_starts_nobody)
{
    struct fake f;
    struct fake_request a;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    fake_open(&f);
    fake_request_init(&a, &f, 1, 1);
    a.request.deadline_us = f.now_us + 10;
    fake_submit_ok(&a);
    fake_wait(&f, 10);
    ck_assert_ptr_null(f.step);
    ck_assert_int_eq(a.err.status, STATUS_DEADLINE);
    fake_close(&f);
}
END_TEST

/* The queue is bounded: one more is refused with a hint that follows the recent rate. */
START_TEST(test_queue_is_bounded)
{
    struct fake f;
    struct fake_request a[5], one_more;
    struct batcher_stats stats;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    f.config.max_waiting = 4;
    fake_open(&f);
    for (size_t i = 0; i < 5; i++)
        fake_request_init(&a[i], &f, 1, 1);
    fake_request_init(&one_more, &f, 1, 1);
    for (size_t i = 0; i < 4; i++)
        fake_submit_ok(&a[i]);
    ck_assert_int_eq(fake_submit(&one_more), STATUS_EXHAUSTED);
    ck_assert_uint_ge(one_more.err.retry_after_ms, 1);
    fake_wait(&f, 0);
    f.now_us += 8000; /* it completes one request in 8 ms */
    fake_step_done(&f);
    fake_submit_ok(&a[4]);
    ck_assert_int_eq(fake_submit(&one_more), STATUS_OK);
    fake_run_out(&f);
    batcher_stats(f.b, &stats);
    ck_assert_uint_eq(stats.n_refused, 1);
    ck_assert_uint_eq(stats.n_submitted, 6);
    ck_assert_uint_eq(stats.n_done, 6);
    fake_close(&f);
}
END_TEST

/* The hint is the time until the waiting requests have begun, at the rate of past requests; with
 * draws of 0 it is the least, half of that. */
START_TEST(test_hint_follows_rate)
{
    struct fake f;
    struct fake_request a[10], one_more;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    f.config.max_waiting = 8;
    fake_open(&f);
    for (size_t i = 0; i < 10; i++)
        fake_request_init(&a[i], &f, 1, 1);
    fake_submit_ok(&a[0]);
    fake_wait(&f, 0);
    for (size_t i = 1; i < 9; i++)
        fake_submit_ok(&a[i]);
    f.now_us += 8000;
    fake_step_done(&f); /* the first is done, the second runs, seven wait */
    fake_submit_ok(&a[9]);
    fake_request_init(&one_more, &f, 1, 1);
    ck_assert_int_eq(fake_submit(&one_more), STATUS_EXHAUSTED);
    ck_assert_uint_eq(one_more.err.retry_after_ms, (64 + 1) / 2); /* and an eighth of one */
    fake_close(&f);
}
END_TEST

/* Rows that run together end together: if four take 100 ms each, eight waiting requests have begun
 * after 200 ms, even if only the first row has ended. */
START_TEST(test_hint_counts_rows_together)
{
    struct fake f;
    struct fake_request a[12], one_more, refused;

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    f.config.max_waiting = 8;
    fake_open(&f);
    for (size_t i = 0; i < 12; i++)
        fake_request_init(&a[i], &f, 1, i == 0 ? 1 : 2);
    for (size_t i = 0; i < 4; i++)
        fake_submit_ok(&a[i]);
    fake_wait(&f, 0);
    for (size_t i = 4; i < 12; i++)
        fake_submit_ok(&a[i]);
    fake_request_init(&one_more, &f, 1, 1);
    ck_assert_int_eq(fake_submit(&one_more), STATUS_EXHAUSTED);
    ck_assert_uint_eq(one_more.err.retry_after_ms, 50); /* no request has ended: half of 100 */
    f.now_us += 100 * 1000;
    fake_step_done(&f); /* the first is done, another runs, seven wait */
    ck_assert_int_eq(fake_submit(&one_more), STATUS_OK);
    fake_request_init(&refused, &f, 1, 1);
    ck_assert_int_eq(fake_submit(&refused), STATUS_EXHAUSTED);
    ck_assert_uint_eq(refused.err.retry_after_ms, (200 + 12) / 2);
    fake_run_out(&f);
    fake_close(&f);
}
END_TEST

/* The queue is also bounded in cost; a request that would wait alone is accepted at any cost. */
START_TEST(test_queue_cost_is_bounded)
{
    struct fake f;
    struct fake_request large, a, b;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    f.config.max_waiting_cost = 10;
    fake_open(&f);
    fake_request_init(&large, &f, 50, 1);
    fake_request_init(&a, &f, 7, 1);
    fake_request_init(&b, &f, 4, 1);
    fake_submit_ok(&large);
    ck_assert_int_eq(fake_submit(&a), STATUS_EXHAUSTED);
    fake_wait(&f, 0); /* large runs, no request waits */
    fake_submit_ok(&a);
    ck_assert_int_eq(fake_submit(&b), STATUS_EXHAUSTED);
    b.cost = 3;
    fake_submit_ok(&b);
    fake_run_out(&f);
    ck_assert_uint_eq(f.n_settled, 3);
    fake_close(&f);
}
END_TEST

/* A row that fails settles with its own error; its neighbours go on. */
START_TEST(test_row_fails_alone)
{
    struct fake f;
    struct fake_request a, bad, c;

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    fake_open(&f);
    fake_request_init(&a, &f, 1, 2);
    fake_request_init(&bad, &f, 1, 2);
    fake_request_init(&c, &f, 1, 1);
    bad.breaks = true;
    fake_submit_ok(&a);
    fake_submit_ok(&bad);
    fake_submit_ok(&c);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 3);
    fake_run_out(&f);
    ck_assert_int_eq(a.err.status, STATUS_OK);
    ck_assert_int_eq(bad.err.status, STATUS_INTERNAL);
    ck_assert_str_eq(bad.err.text, "broke");
    ck_assert_int_eq(c.err.status, STATUS_OK);
    ck_assert_uint_eq(bad.n_settled, 1);
    fake_close(&f);
}
END_TEST

/* Out of pages: the newest running row is preempted, waits at the front and starts again when there
 * is room; the others are not affected. */
START_TEST(test_preemption)
{
    struct fake f;
    struct fake_request a[3], waits;
    struct batcher_stats stats;

    fake_init(&f, BATCH_CONTINUOUS, 3, 0);
    f.pages_free = 8;
    fake_open(&f);
    for (size_t i = 0; i < 3; i++) {
        fake_request_init(&a[i], &f, 2, 3);
        fake_submit_ok(&a[i]);
    }
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 3);
    fake_request_init(&waits, &f, 1, 1);
    fake_submit_ok(&waits);
    fake_step_done(&f); /* two pages are left for three rows */
    ck_assert_uint_eq(f.n_rows, 2);
    ck_assert_uint_eq(a[2].n_released, 1);
    ck_assert_uint_eq(a[0].n_released + a[1].n_released, 0);
    batcher_stats(f.b, &stats);
    ck_assert_uint_eq(stats.n_preempted, 1);
    ck_assert_uint_eq(stats.n_waiting, 2);
    ck_assert_uint_eq(stats.n_running, 2);
    fake_step_done(&f);
    ck_assert_uint_eq(f.n_rows, 2); /* no page is left: no other request begins */
    fake_step_done(&f);             /* it runs before the one that has waited all along */
    ck_assert_uint_eq(f.n_rows, 2);
    ck_assert_ptr_eq(f.rows[0], &a[2]);
    ck_assert_ptr_eq(f.rows[1], &waits);
    fake_run_out(&f);
    ck_assert_uint_eq(f.n_settled, 4);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(a[i].err.status, STATUS_OK);
    ck_assert_uint_eq(a[2].request.n_preempted, 1);
    ck_assert_uint_eq(f.pages_free, 8);
    fake_close(&f);
}
END_TEST

/* Priority, before arrival, decides which row is preempted. */
START_TEST(test_preempts_lowest_priority)
{
    struct fake f;
    struct fake_request low, high;

    fake_init(&f, BATCH_CONTINUOUS, 2, 0);
    f.pages_free = 3;
    fake_open(&f);
    fake_request_init(&low, &f, 1, 3);
    fake_request_init(&high, &f, 1, 3);
    low.request.priority = -1;
    fake_submit_ok(&low);
    fake_submit_ok(&high);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 2);
    fake_step_done(&f);
    ck_assert_uint_eq(f.n_rows, 1);
    ck_assert_ptr_eq(f.rows[0], &high);
    ck_assert_uint_eq(low.n_released, 1);
    fake_run_out(&f);
    ck_assert_int_eq(low.err.status, STATUS_OK);
    fake_close(&f);
}
END_TEST

/* A row that runs alone and still cannot reserve what it needs fails, waiting or running; the
 * requests behind it run. */
START_TEST(test_alone_and_exhausted)
{
    struct fake f;
    struct fake_request a, b, c;

    fake_init(&f, BATCH_CONTINUOUS, 3, 0);
    f.pages_free = 4;
    fake_open(&f);
    fake_request_init(&a, &f, 9, 1);
    fake_request_init(&b, &f, 3, 9);
    fake_request_init(&c, &f, 4, 1);
    fake_submit_ok(&a);
    fake_submit_ok(&b);
    fake_submit_ok(&c);
    fake_wait(&f, 0);
    ck_assert_int_eq(a.err.status, STATUS_EXHAUSTED);
    ck_assert_uint_eq(a.n_settled, 1);
    fake_step_done(&f);
    ck_assert_uint_eq(b.n_settled, 0);
    fake_step_done(&f);
    ck_assert_int_eq(b.err.status, STATUS_EXHAUSTED);
    ck_assert_ptr_eq(f.rows[0], &c);
    fake_run_out(&f);
    ck_assert_int_eq(c.err.status, STATUS_OK);
    fake_close(&f);
}
END_TEST

/* window: few requests wait for the oldest's delay, many begin at once. */
START_TEST(test_window)
{
    struct fake f;
    struct fake_request a[4];

    fake_init(&f, BATCH_WINDOW, 3, 0);
    f.config.max_delay_us = 100;
    fake_open(&f);
    for (size_t i = 0; i < 4; i++)
        fake_request_init(&a[i], &f, 1, 1);
    fake_submit_ok(&a[0]);
    fake_wait(&f, 0);
    ck_assert_ptr_null(f.step);
    ck_assert_uint_eq(f.armed_us, 1100);
    fake_wait(&f, 60);
    fake_submit_ok(&a[1]);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.armed_us, 1100);
    fake_wait(&f, 40);
    ck_assert_uint_eq(f.n_rows, 2);
    fake_submit_ok(&a[2]); /* its delay runs while compute is busy */
    f.now_us += 100;
    fake_submit_ok(&a[3]);
    fake_step_done(&f);
    ck_assert_ptr_nonnull(f.step);
    ck_assert_uint_eq(f.n_rows, 2);
    fake_run_out(&f);
    for (size_t i = 0; i < 3; i++)
        fake_request_init(&a[i], &f, 1, 1), fake_submit_ok(&a[i]);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 3);
    fake_run_out(&f);
    fake_close(&f);
}
END_TEST

/* fixed: the last request to arrive starts the batch of exactly max_rows. */
START_TEST(test_fixed)
{
    struct fake f;
    struct fake_request a[4], second;

    fake_init(&f, BATCH_FIXED, 3, 0);
    fake_open(&f);
    for (size_t i = 0; i < 4; i++)
        fake_request_init(&a[i], &f, 1, 1);
    fake_request_init(&second, &f, 1, 1);
    second.request.flow = &a[0].own;
    fake_submit_ok(&a[0]);
    fake_submit_ok(&second); /* of the same flow: does not count for the batch */
    fake_submit_ok(&a[1]);
    fake_wait(&f, 1000000);
    ck_assert_ptr_null(f.step);
    ck_assert_uint_eq(f.armed_us, 0);
    fake_submit_ok(&a[2]);
    fake_submit_ok(&a[3]);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 3);
    fake_step_done(&f);
    ck_assert_ptr_null(f.step); /* a[3] and second wait for a third */
    ck_assert_uint_eq(f.n_settled, 3);
    fake_close(&f);
    ck_assert_int_eq(second.err.status, STATUS_UNAVAILABLE);
}
END_TEST

/* fixed: a batch that costs more than a step runs in several steps, before the next batch. */
START_TEST(test_fixed_above_cost)
{
    struct fake f;
    struct fake_request a[4];

    fake_init(&f, BATCH_FIXED, 2, 5);
    fake_open(&f);
    for (size_t i = 0; i < 4; i++) {
        fake_request_init(&a[i], &f, 4, 1);
        fake_submit_ok(&a[i]);
    }
    fake_wait(&f, 0);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(f.n_rows, 1);
        ck_assert_ptr_eq(f.rows[0], &a[i]);
        fake_step_done(&f);
    }
    ck_assert_uint_eq(f.n_settled, 4);
    fake_close(&f);
}
END_TEST

/* fixed: a batch that is not full in time ends as a whole, even while a step runs; with a quorum it
 * runs with fewer rows. */
START_TEST(test_fixed_gives_up)
{
    struct fake f;
    struct fake_request a[5];

    fake_init(&f, BATCH_FIXED, 3, 0);
    f.config.max_delay_us = 100;
    f.config.min_rows = 2;
    fake_open(&f);
    for (size_t i = 0; i < 5; i++)
        fake_request_init(&a[i], &f, 1, 1);
    fake_submit_ok(&a[0]);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.armed_us, 1100);
    fake_wait(&f, 99);
    ck_assert_uint_eq(a[0].n_settled, 0);
    fake_wait(&f, 1);
    ck_assert_uint_eq(a[0].n_settled, 1);
    ck_assert_int_eq(a[0].err.status, STATUS_ABORTED);
    ck_assert_str_eq(a[0].err.text, "1 of 3 requests of the fixed batch arrived within 100 us");
    ck_assert_uint_eq(f.armed_us, 0);

    fake_submit_ok(&a[1]);
    fake_wait(&f, 60);
    fake_submit_ok(&a[2]);
    fake_wait(&f, 0);
    ck_assert_ptr_null(f.step);
    fake_wait(&f, 40);
    ck_assert_uint_eq(f.n_rows, 2);
    fake_submit_ok(&a[3]); /* its delay runs while compute is busy */
    ck_assert_uint_eq(f.armed_us, f.now_us + 100);
    fake_wait(&f, 100);
    ck_assert_int_eq(a[3].err.status, STATUS_ABORTED);
    ck_assert_uint_eq(a[1].n_settled, 0);
    fake_run_out(&f);
    ck_assert_int_eq(a[1].err.status, STATUS_OK);
    ck_assert_int_eq(a[2].err.status, STATUS_OK);
    fake_close(&f);
}
END_TEST

/* window: min_rows begin at once, with all that already wait. */
START_TEST(test_window_enough)
{
    struct fake f;
    struct fake_request a[4];

    fake_init(&f, BATCH_WINDOW, 4, 0);
    f.config.max_delay_us = 100;
    f.config.min_rows = 2;
    fake_open(&f);
    for (size_t i = 0; i < 4; i++)
        fake_request_init(&a[i], &f, 1, 1);
    fake_submit_ok(&a[0]);
    fake_wait(&f, 0);
    ck_assert_ptr_null(f.step);
    fake_submit_ok(&a[1]);
    fake_submit_ok(&a[2]);
    fake_wait(&f, 0);
    ck_assert_uint_eq(f.n_rows, 3);
    fake_run_out(&f);
    fake_close(&f);
}
END_TEST

/* A new policy is in force once the old policy's batch has ended; no request is lost. */
START_TEST(test_configure)
{
    struct fake f;
    struct fake_request a[6];
    struct error err;

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    fake_open(&f);
    for (size_t i = 0; i < 6; i++)
        fake_request_init(&a[i], &f, 1, i == 0 ? 2 : 1);
    fake_submit_ok(&a[0]);
    fake_wait(&f, 0);
    f.config.policy = BATCH_FIXED;
    f.config.max_rows = 3;
    ck_assert_int_eq(batcher_configure(f.b, &f.config, &err), STATUS_OK);
    for (size_t i = 1; i < 5; i++)
        fake_submit_ok(&a[i]);
    fake_step_done(&f); /* a[0] needs another step, and no request joins it */
    ck_assert_uint_eq(f.n_rows, 1);
    ck_assert_ptr_eq(f.rows[0], &a[0]);
    fake_step_done(&f);
    ck_assert_uint_eq(f.n_rows, 3);
    ck_assert(!fake_is_in_step(&f, &a[4]));
    f.config.policy = BATCH_CONTINUOUS;
    f.config.max_rows = 4;
    ck_assert_int_eq(batcher_configure(f.b, &f.config, &err), STATUS_OK);
    fake_step_done(&f);
    ck_assert_uint_eq(f.n_rows, 1);
    ck_assert_ptr_eq(f.rows[0], &a[4]);
    fake_run_out(&f);
    f.config.policy = BATCH_FIXED; /* while nothing runs: at the next tick */
    ck_assert_int_eq(batcher_configure(f.b, &f.config, &err), STATUS_OK);
    fake_submit_ok(&a[5]);
    fake_wait(&f, 0);
    ck_assert_ptr_null(f.step);
    f.config.policy = BATCH_CONTINUOUS;
    ck_assert_int_eq(batcher_configure(f.b, &f.config, &err), STATUS_OK);
    fake_wait(&f, 0);
    ck_assert_ptr_nonnull(f.step);
    fake_run_out(&f);
    for (size_t i = 0; i < 6; i++)
        ck_assert_int_eq(a[i].err.status, STATUS_OK);
    fake_close(&f);
}
END_TEST

/* An invalid configuration is refused by name and changes nothing. */
START_TEST(test_configure_refuses)
{
    struct fake f;
    struct fake_request a;
    struct error err;
    static const struct batcher_config bad[] = {
        {.max_rows = 5, .max_waiting = 10},
        {.max_rows = 4, .max_waiting = 101},
        {.max_rows = 4, .max_waiting = 10, .min_rows = 5},
        {.max_rows = 4, .max_waiting = 3, .policy = BATCH_FIXED},
    };
    static const char *const fields[] = {"max_rows", "max_waiting", "min_rows", "max_waiting"};

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    fake_open(&f);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(batcher_configure(f.b, &bad[i], &err), STATUS_INVALID);
        ck_assert_str_eq(err.field, fields[i]);
    }
    fake_request_init(&a, &f, 1, 1);
    fake_submit_ok(&a);
    fake_run_out(&f);
    ck_assert_int_eq(a.err.status, STATUS_OK);
    fake_close(&f);
}
END_TEST

/* Closing settles waiting requests with UNAVAILABLE, refuses new ones, lets the step end, and calls
 * closed. */
START_TEST(test_close)
{
    struct fake f;
    struct fake_request done, more, waits, behind, late;

    fake_init(&f, BATCH_CONTINUOUS, 2, 0);
    fake_open(&f);
    fake_request_init(&done, &f, 1, 1);
    fake_request_init(&more, &f, 1, 2);
    fake_request_init(&waits, &f, 1, 1);
    fake_request_init(&behind, &f, 1, 1);
    fake_request_init(&late, &f, 1, 1);
    behind.request.flow = &more.own;
    fake_submit_ok(&done);
    fake_submit_ok(&more);
    fake_wait(&f, 0);
    fake_submit_ok(&waits);
    fake_submit_ok(&behind);
    batcher_close(f.b, fake_closed, &f);
    ck_assert_uint_eq(f.n_settled, 0);
    ck_assert_int_eq(fake_submit(&late), STATUS_UNAVAILABLE);
    fake_wait(&f, 0);
    ck_assert_int_eq(waits.err.status, STATUS_UNAVAILABLE);
    ck_assert_uint_eq(f.n_settled, 1);
    ck_assert_uint_eq(f.n_closed, 0);
    fake_step_done(&f);
    ck_assert_int_eq(done.err.status, STATUS_OK);
    ck_assert_int_eq(more.err.status, STATUS_UNAVAILABLE);
    ck_assert_int_eq(behind.err.status, STATUS_UNAVAILABLE);
    ck_assert_uint_eq(f.n_settled, 4);
    ck_assert_uint_eq(f.n_closed, 1);
    ck_assert_uint_eq(f.armed_us, 0);
}
END_TEST

static struct fake_request *next_of;

static void submit_next(struct fake_request *a)
{
    fake_submit_ok(next_of);
}

/* A continuation may submit again: it joins the step that is formed after it. */
START_TEST(test_continuation_asks)
{
    struct fake f;
    struct fake_request a, b;

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    fake_open(&f);
    fake_request_init(&a, &f, 1, 1);
    fake_request_init(&b, &f, 1, 1);
    b.request.flow = &a.own;
    a.then = submit_next;
    next_of = &b;
    fake_submit_ok(&a);
    fake_wait(&f, 0);
    fake_step_done(&f);
    ck_assert_uint_eq(a.n_settled, 1);
    ck_assert_ptr_nonnull(f.step);
    ck_assert_ptr_eq(f.rows[0], &b);
    fake_run_out(&f);
    ck_assert_uint_eq(b.n_settled, 1);
    fake_close(&f);
}
END_TEST

static void cancel_next(struct fake_request *a)
{
    batcher_cancel(a->fake->b, &next_of->request);
    ck_assert_uint_eq(next_of->n_settled, 0);
}

/* A continuation may cancel a neighbour of the same step. */
START_TEST(test_continuation_cancels)
{
    struct fake f;
    struct fake_request a, b;

    fake_init(&f, BATCH_CONTINUOUS, 4, 0);
    fake_open(&f);
    fake_request_init(&a, &f, 1, 1);
    fake_request_init(&b, &f, 1, 5);
    a.then = cancel_next;
    next_of = &b;
    fake_submit_ok(&a);
    fake_submit_ok(&b);
    fake_wait(&f, 0);
    fake_step_done(&f);
    ck_assert_int_eq(b.err.status, STATUS_CANCELLED);
    ck_assert_uint_eq(b.n_settled, 1);
    ck_assert_uint_eq(b.n_more, 0);
    ck_assert_ptr_null(f.step);
    fake_close(&f);
}
END_TEST

static void close_all(struct fake_request *a)
{
    batcher_close(a->fake->b, fake_closed, a->fake);
    ck_assert_uint_eq(a->fake->n_closed, 0);
}

/* A continuation may close the batcher. */
START_TEST(test_continuation_closes)
{
    struct fake f;
    struct fake_request a, b;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    fake_open(&f);
    fake_request_init(&a, &f, 1, 1);
    fake_request_init(&b, &f, 1, 1);
    a.then = close_all;
    fake_submit_ok(&a);
    fake_submit_ok(&b);
    fake_wait(&f, 0);
    fake_step_done(&f);
    ck_assert_int_eq(b.err.status, STATUS_UNAVAILABLE);
    ck_assert_uint_eq(f.n_closed, 1);
}
END_TEST

/* If an agent does not set a row's outcome, that row fails with a message. */
static void forgets(struct fake *f, struct row *const *rows, size_t n)
{
}

START_TEST(test_no_outcome_is_a_failure)
{
    struct fake f;
    struct fake_request a;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    f.act = forgets;
    fake_open(&f);
    fake_request_init(&a, &f, 1, 1);
    fake_submit_ok(&a);
    fake_run_out(&f);
    ck_assert_int_eq(a.err.status, STATUS_INTERNAL);
    ck_assert_str_ne(a.err.text, "");
    fake_close(&f);
}
END_TEST

/* The histogram counts the rows of steps. */
START_TEST(test_histogram)
{
    struct fake f;
    struct fake_request a[17];
    struct batcher_stats stats;
    static const size_t sizes[] = {1, 2, 3, 4, 5, 8, 9, 16, 17};

    fake_init(&f, BATCH_CONTINUOUS, 32, 0);
    fake_open(&f);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t i = 0; i < sizes[s]; i++) {
            fake_request_init(&a[i], &f, 2, 1);
            fake_submit_ok(&a[i]);
        }
        fake_run_out(&f);
    }
    batcher_stats(f.b, &stats);
    ck_assert_uint_eq(stats.n_steps, 9);
    ck_assert_uint_eq(stats.n_rows, 65);
    ck_assert_uint_eq(stats.n_cost, 130);
    ck_assert_uint_eq(stats.max_rows_seen, 17);
    ck_assert_uint_eq(stats.last_rows, 17);
    ck_assert_uint_eq(stats.rows_histogram[0], 1);
    ck_assert_uint_eq(stats.rows_histogram[1], 1);
    ck_assert_uint_eq(stats.rows_histogram[2], 2);
    ck_assert_uint_eq(stats.rows_histogram[3], 2);
    ck_assert_uint_eq(stats.rows_histogram[4], 2);
    ck_assert_uint_eq(stats.rows_histogram[5], 1);
    fake_close(&f);
}
END_TEST

/* 65,536 requests of all priorities wait, with deadlines that pass in any order: a tick's cost
 * depends on what it settles, not on what waits (a quadratic one would exceed the test's time
 * limit). */
START_TEST(test_many_wait)
{
    enum { N = 1 << 16 };
    struct fake f;
    struct fake_request *a = xalloc(N * sizeof(*a));
    struct batcher_stats stats;
    struct fake_request blocker;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    f.config.max_waiting = N;
    fake_open(&f);
    fake_request_init(&blocker, &f, 1, 1);
    fake_submit_ok(&blocker);
    fake_wait(&f, 0);
    for (size_t i = 0; i < N; i++) {
        fake_request_init(&a[i], &f, 1, 1);
        a[i].request.priority = (int)(i * 7919 % 201) - 100;
        if (i % 2 == 0)
            a[i].request.deadline_us = f.now_us + 1 + i * 40503 % N;
        fake_submit_ok(&a[i]);
    }
    for (size_t i = 0; i <= N; i++)
        fake_wait(&f, 1);
    batcher_stats(f.b, &stats);
    ck_assert_uint_eq(stats.n_expired, N / 2);
    for (size_t i = 1; i < N; i += 4)
        batcher_cancel(f.b, &a[i].request);
    fake_wait(&f, 0);
    fake_run_out(&f);
    batcher_stats(f.b, &stats);
    ck_assert_uint_eq(stats.n_cancelled, N / 4);
    ck_assert_uint_eq(stats.n_done, N / 4 + 1);
    for (size_t i = 0; i < N; i++)
        ck_assert_uint_eq(a[i].n_settled, 1);
    fake_close(&f);
    free(a);
}
END_TEST

/* An invalid config is refused by name, and nothing is opened. */
START_TEST(test_config)
{
    struct fake f;
    struct error err;
    static const struct batcher_config bad[] = {
        {.max_rows = 0, .max_waiting = 4, .policy = BATCH_CONTINUOUS},
        {.max_rows = 5, .max_waiting = 0},
        {.max_rows = 5, .max_waiting = 4, .policy = BATCH_FIXED},
        {.max_rows = 1, .max_waiting = 4, .max_delay_us = UINT64_MAX, .policy = BATCH_WINDOW},
        {.max_rows = 1, .max_waiting = 4, .ageing_us = UINT64_MAX},
        {.max_rows = 4, .max_waiting = 4, .min_rows = 5, .policy = BATCH_FIXED},
    };
    static const char *const fields[] = {"max_rows",     "max_waiting", "max_waiting",
                                         "max_delay_us", "ageing_us",   "min_rows"};

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(batcher_open(&f.b, &bad[i], &f.agent, &f.compute, &f.timer, &f.env, &err),
                         STATUS_INVALID);
        ck_assert_str_eq(err.field, fields[i]);
        ck_assert_ptr_null(f.b);
    }
}
END_TEST

/* A bound that no memory can hold is EXHAUSTED, not a crash. */
START_TEST(test_config_beyond_memory)
{
    struct fake f;
    struct error err;

    fake_init(&f, BATCH_CONTINUOUS, 1, 0);
    f.config.max_waiting = SIZE_MAX;
    ck_assert_int_eq(batcher_open(&f.b, &f.config, &f.agent, &f.compute, &f.timer, &f.env, &err),
                     STATUS_EXHAUSTED);
    ck_assert_ptr_null(f.b);
}
END_TEST

SUITE_MAIN("batching/batcher", test_one_ask, test_continuous_joins, test_more_overlaps, test_budget,
           test_rotation, test_too_large_runs_alone, test_priority_ages, test_priority_is_clamped,
           test_asker_keeps_order, test_cancel, test_deadline, test_postpone,
           test_late_tick_starts_nobody, test_queue_is_bounded, test_hint_follows_rate,
           test_hint_counts_rows_together, test_queue_cost_is_bounded, test_row_fails_alone,
           test_preemption, test_preempts_lowest_priority, test_alone_and_exhausted, test_window,
           test_fixed, test_fixed_above_cost, test_fixed_gives_up, test_window_enough,
           test_configure, test_configure_refuses, test_close, test_continuation_asks,
           test_continuation_cancels, test_continuation_closes, test_no_outcome_is_a_failure,
           test_histogram, test_many_wait, test_config, test_config_beyond_memory)
