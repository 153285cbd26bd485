#include "server/params/params.h"
#include "server/params/round.h"

#include "tests/support/params_rig.h"
#include "tests/unit/base/suite.h"

static const struct params_spec plain = {.schedule = {.rate = 1.0}, .round_size = 1};

/* A round changes the parameters; earlier steps are classified correctly. */
START_TEST(test_steps)
{
    struct params_spec spec = plain;
    enum params_step step;
    struct params_rig r;
    struct params_set *set;
    uint64_t version = 0;

    spec.dedupe = true;
    rig_open(&r, 1000);
    set = rig_make(&r, spec);
    ck_assert_ptr_nonnull(set);
    ck_assert_int_eq(rig_contribute(&r, set, "a", 5, 2.0f), STATUS_OK);
    ck_assert_uint_eq(r.end.counted_in, 1);
    ck_assert(params_current(set->model->agent)->values[0] == -2.0f);
    ck_assert_int_eq(params_look_up(&step, &version, set, "a", 6, 1, &r.err), STATUS_OK);
    ck_assert_int_eq(step, PARAMS_STEP_NEW);
    ck_assert_int_eq(params_look_up(&step, &version, set, "a", 5, 0, &r.err), STATUS_OK);
    ck_assert_int_eq(step, PARAMS_STEP_STORED);
    ck_assert_uint_eq(version, 1);
    ck_assert_int_eq(params_look_up(&step, &version, set, "a", 4, 0, &r.err), STATUS_EXISTS);
    ck_assert_int_eq(params_look_up(&step, &version, set, "b", 5, 0, &r.err), STATUS_OK);
    ck_assert_int_eq(step, PARAMS_STEP_NEW);
    rig_close(&r);
}
END_TEST

/* When pushes are faster than rounds, the oldest are dropped and counted. */
START_TEST(test_queue)
{
    struct params_spec spec = plain;
    struct params_rig r;
    struct params_set *set;

    spec.fan_in = 2;
    spec.max_queue = 4;
    rig_open(&r, 1000);
    set = rig_make(&r, spec);
    ck_assert_ptr_nonnull(set);
    for (uint64_t i = 1; i <= 7; i++) /* the loop does not run meanwhile: no round begins */
        params_push(set, rig_gradient(&r, set, "p", i, (float)i));
    ck_assert_uint_eq(set->counters.dropped, 4); /* two pairs: 1 and 2, then 3 and 4 */
    ck_assert_uint_eq(params_depth(set), 3);
    while (set->counters.rounds == 0)
        (void)uv_run(&r.loop, UV_RUN_NOWAIT);
    ck_assert(params_current(set->model->agent)->values[0] == -5.5f);
    ck_assert_uint_eq(params_depth(set), 1);
    rig_close(&r);
}
END_TEST

/* A waiter that leaves withdraws its update from the round; a closing set notifies its waiters. */
static void note_closing(struct params_subscriber *subscriber, const struct error *why)
{
    ck_assert_int_eq(why->status, STATUS_NOT_FOUND);
}

START_TEST(test_leave)
{
    struct params_subscriber subscriber = {.closing = note_closing};
    struct params_spec spec = plain;
    struct params_rig r;
    struct params_set *set;
    struct error why;

    spec.round_size = 2;
    rig_open(&r, 1000);
    set = rig_make(&r, spec);
    ck_assert_ptr_nonnull(set);
    r.waiter = (struct update_waiter){.settled = rig_settled};
    ck_assert_int_eq(params_submit(set, rig_gradient(&r, set, "a", 1, 1.0f), 0, &r.waiter, &r.err),
                     STATUS_OK);
    ck_assert_uint_eq(params_n_waiting(set), 1);
    params_leave(set, &r.waiter);
    while (params_n_waiting(set) > 0)
        (void)uv_run(&r.loop, UV_RUN_NOWAIT);
    ck_assert(!r.is_told);
    ck_assert_int_eq(params_submit(set, rig_gradient(&r, set, "a", 1, 1.0f), 0, &r.waiter, &r.err),
                     STATUS_OK);
    params_subscribe(set, &subscriber);
    (void)error_set(&why, STATUS_NOT_FOUND, "deleted");
    params_close(set, &why);
    rig_until_told(&r);
    ck_assert_int_eq(r.end.err.status, STATUS_UNAVAILABLE);
    ck_assert_int_eq(params_find(&set, &r.sets, &rig_owner, ACCESS_READ, "p", &r.err),
                     STATUS_NOT_FOUND);
    rig_close(&r);
}
END_TEST

/* Sets share one memory limit, and a name is unique. */
START_TEST(test_ceiling)
{
    struct params_rig r;

    rig_open(&r, 11);
    ck_assert_ptr_nonnull(rig_make(&r, plain));
    ck_assert_ptr_null(rig_make(&r, plain));
    ck_assert_int_eq(r.err.status, STATUS_EXISTS);
    ck_assert_int_eq(rig_contribute(&r, params_at(list_first(&r.sets.names.all)), "a", 1, 1.0f),
                     STATUS_OK);
    rig_close(&r);
    rig_open(&r, 3);
    ck_assert_ptr_null(rig_make(&r, plain));
    ck_assert_int_eq(r.err.status, STATUS_PRECONDITION);
    ck_assert_uint_eq(r.err.retry_after_ms, 0);
    rig_close(&r);
}
END_TEST

SUITE_MAIN("server/params", test_steps, test_queue, test_leave, test_ceiling)
