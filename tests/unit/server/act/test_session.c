#include <check.h>
#include <math.h>

#include "tests/support/fake_actor.h"
#include "tests/unit/base/suite.h"

static void open_actor(struct fake_actor *f, const struct sessions_config *config)
{
    static const struct sessions_config none;
    struct error err;

    ck_assert_int_eq(fake_actor_open(f, config == NULL ? &none : config, &err), STATUS_OK);
}

/* Runs a step that must succeed, with this action. */
static void acts(struct fake_actor *f, const struct fake_request *r, float action)
{
    struct fake_step s;
    struct error err;

    ck_assert_int_eq(fake_step(f, &s, r, &err), STATUS_OK);
    fake_actor_run(f);
    ck_assert_uint_eq(s.n_done, 1);
    ck_assert_int_eq(s.err.status, STATUS_OK);
    ck_assert_uint_eq(s.seq, r->seq);
    ck_assert_float_eq(s.action, action);
}

static void refused(struct fake_actor *f, const struct fake_request *r, enum status status,
                    const char *text)
{
    struct fake_step s;
    struct error err;

    ck_assert_int_eq(fake_step(f, &s, r, &err), status);
    ck_assert_str_eq(err.text, text);
    fake_actor_run(f);
    ck_assert_uint_eq(s.n_done, 0);
}

/* Steps of one run use one clone in order; another environment has its own. */
START_TEST(test_steps)
{
    struct fake_actor f;

    open_actor(&f, NULL);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 10, .b = 1}, 11);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = 10, .b = 1}, 12);
    acts(&f, &(struct fake_request){.env_id = "b", .run_id = 1, .seq = 1, .a = 20, .b = 1}, 21);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 3, .a = 10, .b = 1}, 13);
    ck_assert_uint_eq(f.all.limit.held, 2);
    ck_assert_uint_gt(f.n_idle, 0);
    fake_actor_close(&f);
}
END_TEST

/* Repeating the last number returns its stored answer, without acting; others are out of range. */
START_TEST(test_numbers)
{
    struct fake_actor f;

    open_actor(&f, NULL);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 10}, 10);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = 10}, 11);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = 10}, 11);
    refused(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 10}, STATUS_RANGE,
            "seq is 1, the session has 2: the next is 3");
    refused(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 4, .a = 10}, STATUS_RANGE,
            "seq is 4, the session has 2: the next is 3");
    refused(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = UINT64_MAX, .a = 10},
            STATUS_RANGE, "seq is 18446744073709551615, the session has 2: the next is 3");
    refused(&f, &(struct fake_request){.env_id = "c", .run_id = 1, .seq = 2, .a = 10}, STATUS_RANGE,
            "seq is 2, the session has 0: the next is 1");
    refused(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 0, .a = 10},
            STATUS_INVALID, "seq is 0, steps count from 1");
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 3, .a = 10}, 12);
    ck_assert_uint_eq(f.all.limit.held, 1);
    fake_actor_close(&f);
}
END_TEST

/* The number of a step that is done, or in flight, is refused with another observation, reward or
 * end of the episode; the step goes on. One that failed has no observation any more. */
START_TEST(test_another_observation)
{
    const struct fake_request r = {.env_id = "a", .run_id = 1, .seq = 2, .a = 5, .b = 1};
    struct fake_request others[] = {r, r, r, r};
    struct fake_actor f;
    struct fake_step s, again;
    struct error err;

    others[0].a = 6;
    others[1].b = 2;
    others[2].reward = 1;
    others[3].done = true;
    open_actor(&f, NULL);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 5, .b = 1}, 6);
    for (int is_done = 0; is_done < 2; is_done++) {
        if (is_done == 0)
            ck_assert_int_eq(fake_step(&f, &s, &r, &err), STATUS_OK);
        for (size_t i = 0; i < 4; i++) {
            ck_assert_int_eq(fake_step(&f, &again, &others[i], &err), STATUS_EXISTS);
            ck_assert_str_eq(err.field, "seq");
            ck_assert_str_eq(err.text, "seq 2 was sent before with another observation");
        }
        fake_actor_run(&f);
        ck_assert_uint_eq(s.n_done, 1);
        ck_assert_float_eq(s.action, 7);
        ck_assert_uint_eq(again.n_done, 0);
        acts(&f, &r, 7);
    }
    ck_assert_int_eq(
        fake_step(&f, &s,
                  &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 3, .a = INFINITY},
                  &err),
        STATUS_OK);
    fake_actor_run(&f);
    ck_assert_int_eq(s.err.status, STATUS_INVALID);
    acts(&f, &r, 7);
    refused(&f, &others[0], STATUS_EXISTS, "seq 2 was sent before with another observation");
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 3, .a = 5}, 7);
    fake_actor_close(&f);
}
END_TEST

/* The running number is joined; a waiter that leaves is not notified, and the step goes on for the
 * others. */
START_TEST(test_join)
{
    struct fake_actor f;
    struct fake_step one, two;
    const struct fake_request r = {.env_id = "a", .run_id = 1, .seq = 1, .a = 5};
    struct error err;

    open_actor(&f, NULL);
    ck_assert_int_eq(fake_step(&f, &one, &r, &err), STATUS_OK);
    ck_assert_int_eq(fake_step(&f, &two, &r, &err), STATUS_OK);
    step_wait_leave(&one.wait);
    fake_actor_run(&f);
    ck_assert_uint_eq(one.n_done, 0);
    ck_assert_uint_eq(two.n_done, 1);
    ck_assert_float_eq(two.action, 5);
    fake_actor_close(&f);
}
END_TEST

/* Sends r, lets every waiter leave, and sends it again during the cancel; is_computed: the compute
 * thread has it already. */
static void cancel_and_send(struct fake_actor *f, const struct fake_request *r, bool is_computed,
                            struct fake_step *again)
{
    struct fake_step gone;
    struct error err;

    ck_assert_int_eq(fake_step(f, &gone, r, &err), STATUS_OK);
    if (is_computed)
        batcher_tick(f->model.batcher);
    step_wait_leave(&gone.wait);
    ck_assert_int_eq(fake_step(f, again, r, &err), STATUS_OK);
    ck_assert_uint_eq(gone.n_done + again->n_done, 0);
}

/* A step that is sent again while it is being cancelled is done once, whether it waited or was in a
 * step; the new waiter may leave again, and has its own deadline. */
START_TEST(test_cancelled_and_sent_again)
{
    struct fake_request r = {.env_id = "a", .run_id = 1, .seq = 1, .a = 5};
    struct fake_actor f;
    struct fake_step again;
    struct error err;

    open_actor(&f, NULL);
    for (int is_computed = 0; is_computed < 2; is_computed++, r.seq++) {
        cancel_and_send(&f, &r, is_computed != 0, &again);
        fake_actor_run(&f);
        ck_assert_uint_eq(again.n_done, 1);
        ck_assert_int_eq(again.err.status, STATUS_OK);
        ck_assert_float_eq(again.action, 5 + (float)(r.seq - 1)); /* it acted once */
    }
    cancel_and_send(&f, &r, false, &again);
    step_wait_leave(&again.wait);
    fake_actor_run(&f);
    ck_assert_uint_eq(again.n_done, 0);
    acts(&f, &r, 7);
    ck_assert_int_eq(act_configure(&f.all.modes, &f.model,
                                   &(struct act_config){.mode = ACT_LOCKSTEP, .n = 2}, &err),
                     STATUS_OK);
    r.seq++;
    fake_actor_run(&f);
    cancel_and_send(&f, &r, false, &again);
    fake_actor_run(&f);
    ck_assert_uint_eq(again.n_done, 0); /* it waits for the other row */
    acts(&f, &(struct fake_request){.env_id = "b", .run_id = 1, .seq = 1, .a = 1, .row = 1}, 1);
    ck_assert_uint_eq(again.batch_rows, 2);
    fake_actor_close(&f);
}
END_TEST

/* The second attempt meets the new state: its own deadline, the mode's rows, another run. */
START_TEST(test_sent_again_too_late)
{
    const struct act_config two = {.mode = ACT_LOCKSTEP, .n = 2},
                            one = {.mode = ACT_LOCKSTEP, .n = 1};
    struct fake_request r = {.env_id = "a", .run_id = 1, .seq = 1, .a = 5, .row = 1};
    struct fake_step again, other;
    struct fake_actor f;
    struct error err;

    open_actor(&f, NULL);
    ck_assert_int_eq(act_configure(&f.all.modes, &f.model, &two, &err), STATUS_OK);
    fake_actor_run(&f);
    r.deadline_us = f.now_us + 100;
    cancel_and_send(&f, &r, false, &again);
    fake_actor_run(&f);
    f.now_us += 100;
    fake_actor_run(&f);
    ck_assert_int_eq(again.err.status, STATUS_DEADLINE);

    r.deadline_us = 0;
    cancel_and_send(&f, &r, false, &again);
    ck_assert_int_eq(act_configure(&f.all.modes, &f.model, &one, &err), STATUS_OK);
    fake_actor_run(&f);
    ck_assert_uint_eq(again.n_done, 1);
    ck_assert_int_eq(again.err.status, STATUS_INVALID);
    ck_assert_str_eq(again.err.text, "row is 1, under lock-step there are 1, from 0");

    ck_assert_int_eq(act_configure(&f.all.modes, &f.model, &two, &err), STATUS_OK);
    fake_actor_run(&f);
    cancel_and_send(&f, &r, false, &again);
    r.run_id = 2;
    ck_assert_int_eq(fake_step(&f, &other, &r, &err), STATUS_OK);
    fake_actor_run(&f);
    ck_assert_int_eq(again.err.status, STATUS_ABORTED);
    step_wait_leave(&other.wait);
    fake_actor_close(&f);
}
END_TEST

/* Each waiter has its own deadline: the first one's ends the wait of the first only, the last one's
 * that of all remaining waiters. */
START_TEST(test_joined_deadlines)
{
    static const struct act_config lockstep = {.mode = ACT_LOCKSTEP, .n = 2};
    static const uint64_t later_us[] = {0, 5000, 1500}; /* 0: none */
    struct fake_actor f;
    struct error err;

    open_actor(&f, NULL);
    ck_assert_int_eq(act_configure(&f.all.modes, &f.model, &lockstep, &err), STATUS_OK);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        uint64_t for_us = later_us[seq - 1];
        struct fake_request r = {
            .env_id = "a", .run_id = 1, .seq = seq, .a = 5, .deadline_us = f.now_us + 1000};
        struct fake_step first, joined, again, other;

        ck_assert_int_eq(fake_step(&f, &first, &r, &err), STATUS_OK);
        r.deadline_us = for_us == 0 ? 0 : f.now_us + for_us;
        ck_assert_int_eq(fake_step(&f, &joined, &r, &err), STATUS_OK);
        r.deadline_us = f.now_us + 500; /* before its current deadline: changes nothing */
        ck_assert_int_eq(fake_step(&f, &again, &r, &err), STATUS_OK);
        fake_actor_run(&f);
        f.now_us += 1200;
        step_wait_leave(&first.wait); /* as a call does at its deadline */
        step_wait_leave(&again.wait);
        fake_actor_run(&f);
        ck_assert_uint_eq(joined.n_done, 0);
        if (seq == 3) { /* no other row comes */
            f.now_us += 300;
            fake_actor_run(&f);
            ck_assert_uint_eq(joined.n_done, 1);
            ck_assert_int_eq(joined.err.status, STATUS_DEADLINE);
            break;
        }
        ck_assert_int_eq(fake_step(&f, &other,
                                   &(struct fake_request){
                                       .env_id = "b", .run_id = 1, .seq = seq, .a = 5, .row = 1},
                                   &err),
                         STATUS_OK);
        fake_actor_run(&f);
        ck_assert_int_eq(joined.err.status, STATUS_OK);
        ck_assert_uint_eq(joined.batch_rows, 2);
        ck_assert_uint_eq(first.n_done + again.n_done, 0);
    }
    fake_actor_close(&f);
}
END_TEST

/* A failed step does not count: its number is free, and the clone is unchanged. */
START_TEST(test_failure)
{
    struct fake_actor f;
    struct fake_step s;
    struct error err;

    open_actor(&f, NULL);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 1}, 1);
    ck_assert_int_eq(
        fake_step(&f, &s,
                  &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = INFINITY},
                  &err),
        STATUS_OK);
    fake_actor_run(&f);
    ck_assert_int_eq(s.err.status, STATUS_INVALID);
    ck_assert_str_eq(s.err.text, "no number");
    refused(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = -1},
            STATUS_INVALID, "observation is -1");
    refused(&f, &(struct fake_request){.env_id = "a", .run_id = 2, .seq = 1, .a = -1},
            STATUS_INVALID, "observation is -1");
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = 1},
         2); /* the earlier run has not ended */
    ck_assert_int_eq(
        fake_step(&f, &s,
                  &(struct fake_request){
                      .env_id = "a", .run_id = 1, .seq = 3, .a = 1, .deadline_us = f.now_us},
                  &err),
        STATUS_DEADLINE);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 3, .a = 1}, 3);
    fake_actor_close(&f);
}
END_TEST

/* Another run begins at step 1; waiters of the earlier run are notified. */
START_TEST(test_another_run)
{
    struct fake_actor f;
    struct fake_step old, next;
    struct error err;

    open_actor(&f, NULL);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 1}, 1);
    ck_assert_int_eq(fake_step(&f, &old,
                               &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = 1},
                               &err),
                     STATUS_OK);
    ck_assert_int_eq(fake_step(&f, &next,
                               &(struct fake_request){.env_id = "a", .run_id = 2, .seq = 1, .a = 1},
                               &err),
                     STATUS_OK);
    ck_assert_uint_eq(old.n_done, 0); /* never inside */
    fake_actor_run(&f);
    ck_assert_int_eq(old.err.status, STATUS_ABORTED);
    ck_assert_str_eq(old.err.text, "the session has ended: another run has replaced it");
    ck_assert_float_eq(next.action, 1);
    refused(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = 1}, STATUS_RANGE,
            "seq is 2, the session has 0: the next is 1");
    ck_assert_uint_eq(f.all.limit.held, 1);
    fake_actor_close(&f);
}
END_TEST

/* Sessions are bounded, and end after too long an idle time, the longest idle first. */
START_TEST(test_bound_and_expiry)
{
    const struct sessions_config config = {.max_sessions = 2, .ttl_ms = 10};
    struct fake_actor f;

    open_actor(&f, &config);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 1}, 1);
    ck_assert_uint_eq(f.expiry.at_us, f.now_us + 10000);
    f.now_us += 4000;
    acts(&f, &(struct fake_request){.env_id = "b", .run_id = 1, .seq = 1, .a = 1}, 1);
    refused(&f, &(struct fake_request){.env_id = "c", .run_id = 1, .seq = 1, .a = 1},
            STATUS_EXHAUSTED,
            "the limit of 2 sessions of Act (--max-sessions) is reached: there are 2, 1 more are "
            "asked for");
    acts(&f, &(struct fake_request){.env_id = "b", .run_id = 2, .seq = 1, .a = 1},
         1); /* replaces another one */
    f.now_us += 2000;
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = 1},
         2); /* now the more recently used one */
    f.now_us += 8000;
    sessions_tick(&f.all);
    ck_assert_uint_eq(f.all.limit.held, 1);
    ck_assert_uint_eq(f.expiry.at_us, f.now_us + 2000);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 3, .a = 1}, 3);
    acts(&f, &(struct fake_request){.env_id = "c", .run_id = 1, .seq = 1, .a = 1}, 1);
    f.now_us += 10000;
    sessions_tick(&f.all);
    ck_assert_uint_eq(f.all.limit.held, 0);
    fake_actor_close(&f);
}
END_TEST

static unsigned n_lost;

static void on_lost(struct session_lease *h)
{
    n_lost++;
}

/* A leased session does not expire, takes no step while frozen, and exists until it is released. */
START_TEST(test_hold)
{
    const struct sessions_config config = {.ttl_ms = 10};
    struct session_lease h = {.lost = on_lost}, other = {.lost = on_lost};
    struct fake_actor f;
    struct error err;

    n_lost = 0;
    open_actor(&f, &config);
    ck_assert_int_eq(sessions_lease(&f.all, 0, &f.model, "a", 1, 7, &h, &err), STATUS_OK);
    ck_assert_int_eq(sessions_lease(&f.all, 0, &f.model, "a", 1, 7, &other, &err),
                     STATUS_PRECONDITION);
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 1}, 1);
    f.now_us += 1000000;
    sessions_tick(&f.all);
    ck_assert_uint_eq(f.all.limit.held, 1);
    h.is_frozen = true;
    refused(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = 1},
            STATUS_PRECONDITION, "the episode of env_id 'a' is over");
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 2, .seq = 1, .a = 1}, 1);
    ck_assert_uint_eq(n_lost, 1);
    ck_assert_ptr_nonnull(session_clone(h.session));
    session_release(&h);
    session_release(&h);
    f.now_us += 1000000;
    sessions_tick(&f.all);
    ck_assert_uint_eq(f.all.limit.held, 0);
    fake_actor_close(&f);
}
END_TEST

static void leased(struct fake_actor *f, uint64_t seed, uint64_t seq, float action)
{
    struct session_lease h = {.lost = on_lost};
    struct error err;

    ck_assert_int_eq(sessions_lease(&f->all, 0, &f->model, "a", 1, seed, &h, &err), STATUS_OK);
    acts(f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = seq, .a = 1}, action);
    session_release(&h);
}

/* A seed names a series: another one begins the clone anew, the same one goes on with it. */
START_TEST(test_seeds)
{
    struct fake_actor f;

    open_actor(&f, NULL);
    leased(&f, 7, 1, 1);
    leased(&f, 7, 2, 2);
    leased(&f, 8, 3, 1);
    leased(&f, 8, 4, 2);
    leased(&f, 7, 5, 1);
    fake_actor_close(&f);
}
END_TEST

/* Lock-step: a session has its row until its step is over or it leaves. */
START_TEST(test_rows)
{
    const struct act_config lockstep = {.mode = ACT_LOCKSTEP, .n = 2, .timeout_ms = 5};
    struct fake_actor f;
    struct fake_step one, two;
    struct error err;

    open_actor(&f, NULL);
    ck_assert_int_eq(act_configure(&f.all.modes, &f.model, &lockstep, &err), STATUS_OK);
    refused(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 1, .row = 2},
            STATUS_INVALID, "row is 2, under lock-step there are 2, from 0");
    ck_assert_int_eq(
        fake_step(&f, &one,
                  &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 1, .row = 1},
                  &err),
        STATUS_OK);
    refused(&f, &(struct fake_request){.env_id = "b", .run_id = 1, .seq = 1, .a = 1, .row = 1},
            STATUS_PRECONDITION,
            "row 1 has another's observation already, env_id 'b' cannot have it");
    ck_assert_int_eq(act_configure(&f.all.modes, &f.model, &lockstep, &err),
                     STATUS_OK); /* its observation keeps the row */
    refused(&f, &(struct fake_request){.env_id = "b", .run_id = 1, .seq = 1, .a = 1, .row = 1},
            STATUS_PRECONDITION,
            "row 1 has another's observation already, env_id 'b' cannot have it");
    ck_assert_uint_eq(one.n_done, 0);
    f.now_us += 5000;
    fake_actor_run(&f);
    ck_assert_int_eq(one.err.status, STATUS_ABORTED);
    ck_assert_int_eq(
        fake_step(&f, &one,
                  &(struct fake_request){.env_id = "b", .run_id = 1, .seq = 1, .a = 1, .row = 1},
                  &err),
        STATUS_OK);
    step_wait_leave(&one.wait);
    fake_actor_run(&f);
    ck_assert_int_eq(
        fake_step(&f, &one,
                  &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 1, .row = 1},
                  &err),
        STATUS_OK);
    ck_assert_int_eq(fake_step(&f, &two,
                               &(struct fake_request){.env_id = "b", .run_id = 1, .seq = 1, .a = 1},
                               &err),
                     STATUS_OK);
    fake_actor_run(&f);
    ck_assert_uint_eq(one.batch_rows, 2);
    ck_assert_uint_eq(two.batch_rows, 2);
    fake_actor_close(&f);
}
END_TEST

/* Impossible modes are refused with the name of the request's field. */
START_TEST(test_modes)
{
    static const struct act_config bad[] = {
        {.mode = ACT_LOCKSTEP},
        {.mode = ACT_LOCKSTEP, .n = ACTOR_MAX_ROWS + 1},
        {.mode = ACT_LOCKSTEP, .n = 1, .timeout_ms = 86400001},
        {.mode = ACT_DYNAMIC, .max = ACTOR_MAX_ROWS + 1},
        {.mode = ACT_DYNAMIC, .min = 3, .max = 2},
        {.mode = ACT_DYNAMIC, .min = ACTOR_MAX_ROWS + 1},
        {.mode = (enum act_mode)9},
    };
    static const char *const fields[] = {"n", "n", "timeout_ms", "max", "min", "min", "mode"};
    struct fake_actor f;
    struct error err;

    open_actor(&f, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(act_configure(&f.all.modes, &f.model, &bad[i], &err), STATUS_INVALID);
        ck_assert_str_eq(err.field, fields[i]);
    }
    acts(&f, &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 1}, 1);
    fake_actor_close(&f);
}
END_TEST

/* A drain takes no new step, and close_all notifies the waiters. */
START_TEST(test_drain)
{
    struct fake_actor f;
    struct fake_step s;
    struct error err;

    open_actor(&f, NULL);
    ck_assert_int_eq(fake_step(&f, &s,
                               &(struct fake_request){.env_id = "a", .run_id = 1, .seq = 1, .a = 1},
                               &err),
                     STATUS_OK);
    sessions_drain(&f.all);
    refused(&f, &(struct fake_request){.env_id = "b", .run_id = 1, .seq = 1, .a = 1},
            STATUS_UNAVAILABLE, "the server is shutting down");
    ck_assert_uint_eq(s.n_done, 1); /* the step in flight went on */
    fake_actor_close(&f);
}
END_TEST

SUITE_MAIN("server/session", test_steps, test_numbers, test_another_observation, test_join,
           test_cancelled_and_sent_again, test_sent_again_too_late, test_joined_deadlines,
           test_failure, test_another_run, test_bound_and_expiry, test_hold, test_seeds, test_rows,
           test_modes, test_drain)
