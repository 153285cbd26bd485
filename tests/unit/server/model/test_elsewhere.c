/* Steps that are computed elsewhere and complete later: the loop runs meanwhile, and any operation
 * on a row in such a step waits for the step, or for its abort. */
#include "agents/turn.h"
#include "server/model/model.h"

#include <check.h>
#include <string.h>

#include "tests/support/fake_remote.h"
#include "tests/unit/base/suite.h"

enum { N_TURNS = 3 };

struct asked {
    struct agent_turn turn;
    struct clone *clone;
    unsigned n_ended;
    struct error err;
};

static struct {
    uv_loop_t loop;
    struct fake_remote remote;
    struct model *model;
    struct asked asked[N_TURNS];
    bool is_loaded, is_stopped;
    struct error err;
} s;

static void on_loaded(struct model *m, void *arg)
{
    ck_assert_int_eq(m->state, MODEL_READY);
    s.is_loaded = true;
}

static void on_stopped(void *arg)
{
    s.is_stopped = true;
}

static void setup(void)
{
    const struct model_config config = {.name = "m",
                                        .type = &fake_remote_agent,
                                        .spec = &s.remote,
                                        .options = {.backend = ""},
                                        .env = &env_real};

    memset(&s, 0, sizeof(s));
    ck_assert_int_eq(uv_loop_init(&s.loop), 0);
    fake_remote_open(&s.remote, &s.loop);
    ck_assert_int_eq(model_start(&s.model, &s.loop, &config, on_loaded, NULL, &s.err), STATUS_OK);
    while (!s.is_loaded)
        (void)uv_run(&s.loop, UV_RUN_NOWAIT);
    for (size_t i = 0; i < N_TURNS; i++)
        ck_assert_int_eq(
            clone_open(&s.asked[i].clone, s.model->agent, &(struct clone_config){0}, &s.err),
            STATUS_OK);
}

static void teardown(void)
{
    if (!s.is_stopped)
        model_stop(s.model, on_stopped, NULL);
    while (!s.is_stopped)
        (void)uv_run(&s.loop, UV_RUN_NOWAIT);
    for (size_t i = 0; i < N_TURNS; i++) {
        agent_turn_deinit(&s.asked[i].turn);
        clone_close(s.asked[i].clone);
    }
    fake_remote_close(&s.remote, &s.loop);
    ck_assert_int_eq(uv_run(&s.loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&s.loop), 0);
}

static void on_ended(struct agent_turn *t, const struct error *err)
{
    struct asked *a = container_of(t, struct asked, turn);

    a->n_ended++;
    a->err = *err;
    if (err->status == STATUS_OK)
        agent_turn_keep(t);
    else
        agent_turn_drop(t);
}

static struct asked *ask(size_t i, uint32_t n_steps, float reward)
{
    const struct agent_turn_terms terms = {.ended = on_ended};
    struct asked *a = &s.asked[i];

    agent_turn_init(&a->turn, NULL, 100);
    a->turn.seen = (struct observation){.turn = n_steps, .reward = reward};
    ck_assert_int_eq(agent_turn_observe(&a->turn, a->clone, &s.err), STATUS_OK);
    ck_assert_int_eq(agent_turn_ask(&a->turn, s.model->batcher, &terms, &s.err), STATUS_OK);
    return a;
}

/* Polls without blocking: a timer may already have done it, and then the loop would block for
 * ever. */
static void until_ended(const struct asked *a)
{
    while (a->n_ended == 0)
        (void)uv_run(&s.loop, UV_RUN_NOWAIT);
}

static void until_begun(unsigned n)
{
    while (s.remote.n_begun < n)
        (void)uv_run(&s.loop, UV_RUN_NOWAIT);
}

/* A step is begun and completes later; new rows join the next one, and no row is in two steps at a
 * time. */
START_TEST(test_completes_later)
{
    struct batcher_stats stats;
    struct asked *a, *b, *late;

    setup();
    s.remote.is_held = true;
    a = ask(0, 1, 0);
    b = ask(1, 3, 0);
    until_begun(1);
    ck_assert_uint_eq(s.remote.n_rows, 2);
    late = ask(2, 1, 0);
    for (int i = 0; i < 10; i++)
        (void)uv_run(&s.loop, UV_RUN_NOWAIT);
    ck_assert(a->n_ended == 0 && b->n_ended == 0 && late->n_ended == 0);
    ck_assert_uint_eq(s.remote.n_begun, 1);
    fake_remote_release(&s.remote);
    until_ended(b);
    ck_assert(a->n_ended == 1 && late->n_ended == 1);
    ck_assert(a->err.status == STATUS_OK && b->err.status == STATUS_OK);
    ck_assert_int_eq(late->err.status, STATUS_OK);
    ck_assert_uint_eq(b->turn.n_steps, 3);
    ck_assert(!pthread_equal(s.remote.thread, pthread_self()));
    batcher_stats(s.model->batcher, &stats);
    ck_assert_uint_eq(stats.n_steps, 3);
    ck_assert_uint_eq(s.model->statistics.n_steps, 3);
    teardown();
}
END_TEST

/* A failing row fails alone. */
START_TEST(test_one_row_fails)
{
    struct asked *good, *bad, *other;

    setup();
    good = ask(0, 2, 0);
    bad = ask(1, 2, -1);
    other = ask(2, 1, 0);
    until_ended(good);
    ck_assert(bad->n_ended == 1 && other->n_ended == 1);
    ck_assert_int_eq(good->err.status, STATUS_OK);
    ck_assert_int_eq(bad->err.status, STATUS_INTERNAL);
    ck_assert_str_eq(bad->err.text, "failed, as ordered");
    ck_assert_int_eq(other->err.status, STATUS_OK);
    teardown();
}
END_TEST

/* A row that is cancelled in a step ends with the step: cancelled, or done if that was its last. A
 * queued one ends at once. */
START_TEST(test_cancel_in_a_step)
{
    struct asked *more, *last, *waiting;

    setup();
    s.remote.is_held = true;
    more = ask(0, 5, 0);
    last = ask(1, 1, 0);
    until_begun(1);
    waiting = ask(2, 1, 0);
    agent_turn_cancel(&more->turn);
    agent_turn_cancel(&last->turn);
    agent_turn_cancel(&waiting->turn);
    until_ended(waiting);
    ck_assert_int_eq(waiting->err.status, STATUS_CANCELLED);
    ck_assert(more->n_ended == 0 && last->n_ended == 0);
    fake_remote_release(&s.remote);
    until_ended(more);
    ck_assert_int_eq(more->err.status, STATUS_CANCELLED);
    ck_assert_uint_eq(more->turn.n_steps, 1);
    ck_assert_int_eq(last->err.status, STATUS_OK);
    ck_assert_uint_eq(s.remote.n_begun, 1);
    ck_assert_uint_eq(s.remote.n_aborts, 0);
    teardown();
}
END_TEST

/* A stop aborts the step, which may never return, and waits for the abort; unfinished rows fail,
 * also queued ones. */
START_TEST(test_stop_in_a_step)
{
    struct asked *running, *waiting;

    setup();
    s.remote.is_held = true;
    running = ask(0, 5, 0);
    until_begun(1);
    waiting = ask(1, 1, 0);
    model_stop(s.model, on_stopped, NULL);
    ck_assert_uint_eq(s.remote.n_aborts, 1);
    ck_assert(running->n_ended == 0 && waiting->n_ended == 0 && !s.is_stopped); /* never inside */
    while (!s.is_stopped)
        (void)uv_run(&s.loop, UV_RUN_NOWAIT);
    ck_assert(running->n_ended == 1 && waiting->n_ended == 1);
    ck_assert_int_eq(running->err.status, STATUS_UNAVAILABLE);
    ck_assert_str_eq(running->err.text, "the step was given up");
    ck_assert_int_eq(waiting->err.status, STATUS_UNAVAILABLE);
    ck_assert_uint_eq(s.remote.n_begun, 1);
    teardown();
}
END_TEST

/* A step that is returning when the model stops is done normally. */
START_TEST(test_stop_while_it_comes_back)
{
    struct asked *last;

    setup();
    s.remote.is_held = true;
    last = ask(0, 1, 0);
    until_begun(1);
    fake_remote_release(&s.remote);
    model_stop(s.model, on_stopped, NULL);
    while (!s.is_stopped)
        (void)uv_run(&s.loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(last->err.status, STATUS_OK);
    teardown();
}
END_TEST

/* An aborted model aborts the running step and every later one, and can be stopped when its turns
 * have ended. */
START_TEST(test_abort)
{
    struct asked *a, *b;

    setup();
    s.remote.is_held = true;
    a = ask(0, 5, 0);
    until_begun(1);
    model_abort(s.model);
    model_abort(s.model);
    ck_assert_uint_eq(s.remote.n_aborts, 1);
    until_ended(a);
    ck_assert_int_eq(a->err.status, STATUS_UNAVAILABLE);
    b = ask(1, 5, 0);
    until_ended(b);
    ck_assert_int_eq(b->err.status, STATUS_UNAVAILABLE);
    ck_assert_uint_eq(s.remote.n_aborts, 2);
    teardown();
}
END_TEST

SUITE_MAIN("server/model/elsewhere", test_completes_later, test_one_row_fails,
           test_cancel_in_a_step, test_stop_in_a_step, test_stop_while_it_comes_back, test_abort)
