#include "server/model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static uv_loop_t loop;
static size_t n_loaded, n_stopped;

static void on_stopped(void *arg)
{
    (void)arg;
    n_stopped++;
}

static void on_loaded(struct model *m, void *arg)
{
    n_loaded++;
    *(enum model_state *)arg = m->state;
}

static struct model *start(const char *path, enum model_state *ret_state)
{
    struct model_config config = {
        .name = "m", .path = path, .backend = "ref", .max_waiting = 3, .env = &env_real};
    struct model *m;
    struct error err;

    n_loaded = n_stopped = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(model_start(&m, &loop, &config, on_loaded, ret_state, &err), STATUS_OK);
    ck_assert_int_eq(m->state, MODEL_LOADING);
    ck_assert_int_eq(model_check_ready(m, &err), STATUS_UNAVAILABLE);
    ck_assert_uint_gt(err.retry_after_ms, 0);
    while (n_loaded == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    return m;
}

static void stop(struct model *m)
{
    model_stop(m, on_stopped, NULL);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_uint_eq(n_stopped, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    (void)f;
    ck_assert_int_eq(err->status, STATUS_OK);
    *(bool *)arg = true;
}

/* echo loads, takes an ask by the road of timer, thread and loop, and stops leaving nothing. */
START_TEST(test_ask)
{
    struct message said = {ROLE_USER, "hello", 5};
    struct clone_config clone_config = {0};
    enum model_state state;
    struct model *m = start(NULL, &state);
    struct agent_turn turn = {0};
    struct ask ask = {0};
    struct clone *c;
    struct arena arena;
    struct error err;
    bool is_settled = false;

    ck_assert_int_eq(state, MODEL_READY);
    ck_assert_int_eq(model_check_ready(m, &err), STATUS_OK);
    ck_assert_uint_eq(m->batching.max_waiting, 3);
    ck_assert_uint_gt(m->batching.max_rows, 3); /* a short queue may feed a wide step */
    ck_assert_int_eq(clone_open(&c, m->agent, &clone_config, &err), STATUS_OK);
    arena_init(&arena, 10000);
    agent_turn_init(&turn, &arena, 1000);
    turn.seen = (struct observation){.messages = &said, .n_messages = 1, .turn = 1};
    sampling_init(&turn.seen.sampling);
    ck_assert_int_eq(m->agent->type->observe(c, &turn, &err), STATUS_OK);
    ask.row = &turn.row;
    ask.asker = &c->asker;
    future_init(&ask.reply, on_settled, &is_settled);
    ck_assert_int_eq(batcher_ask(m->batcher, &ask, &err), STATUS_OK);
    while (!is_settled)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_str_eq(turn.reply.text.data, "hello");
    m->agent->type->self_observe(c, &turn);
    agent_turn_deinit(&turn);
    arena_deinit(&arena);
    clone_close(c);
    stop(m);
}
END_TEST

/* A file that cannot be loaded: the model says why, and stops all the same. */
START_TEST(test_load_fails)
{
    enum model_state state;
    struct model *m = start("/nowhere/x.gguf", &state);
    struct error err;

    ck_assert_int_eq(state, MODEL_FAILED);
    ck_assert_ptr_nonnull(strstr(m->err.text, "model 'm'"));
    ck_assert_ptr_nonnull(strstr(m->err.text, "/nowhere/x.gguf"));
    ck_assert_int_eq(model_check_ready(m, &err), STATUS_UNAVAILABLE);
    ck_assert_uint_eq(err.retry_after_ms, 0);
    stop(m);
}
END_TEST

SUITE_MAIN("server/model", test_ask, test_load_fails)
