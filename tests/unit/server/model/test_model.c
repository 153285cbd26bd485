#include "agents/turn.h"
#include "server/model/model.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static uv_loop_t loop;
static size_t n_loaded, n_stopped;

static void on_stopped(void *arg)
{
    n_stopped++;
}

static void on_loaded(struct model *m, void *arg)
{
    n_loaded++;
    *(enum model_state *)arg = m->state;
}

static struct model *start(const char *path, enum model_state *ret_state)
{
    struct model_config config = {.name = "m",
                                  .path = path,
                                  .options = {.backend = "ref", .max_waiting = 3},
                                  .env = &env_real};
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
    ck_assert_int_eq(err->status, STATUS_OK);
    *(bool *)arg = true;
}

/* echo loads, runs a request through timer, thread and loop, and stops without leaks. */
START_TEST(test_ask)
{
    struct message said = {.role = ROLE_USER, .text = "hello", .len = 5};
    struct clone_config clone_config = {0};
    enum model_state state;
    struct model *m = start(NULL, &state);
    struct agent_turn turn = {0};
    struct batch_request ask = {0};
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
    ask.flow = &c->flow;
    future_init(&ask.reply, on_settled, &is_settled);
    ck_assert_int_eq(batcher_submit(m->batcher, &ask, &err), STATUS_OK);
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

/* A file that cannot be loaded: the model has the error, and can be stopped. */
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

/* --- where a step runs --- */

/* A light agent that records the thread of each act, and its place in the order. */
struct spy {
    struct agent base;
};

static atomic_size_t n_ran; /* acts run on the loop and on a model's thread */

struct ran {
    pthread_t thread;
    size_t place; /* from 1; 0: not yet */
};

static void note(struct ran *r)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* models that end share a place */

    (void)pthread_mutex_lock(&lock);
    r->thread = pthread_self();
    r->place = atomic_fetch_add(&n_ran, 1) + 1;
    (void)pthread_mutex_unlock(&lock);
}

static enum status spy_open(struct agent *a, const struct agent_config *config, struct error *err)
{
    return STATUS_OK;
}

static struct ran settled, closed; /* of the last spy */

static void spy_settle(struct agent *a)
{
    note(&settled);
}

static void spy_close(struct agent *a)
{
    note(&closed);
}

static void spy_info(const struct agent *a, struct agent_info *out)
{
    *out = (struct agent_info){.name = a->name, .kind = "spy", .version = "1", .is_light = true};
}

static void spy_batching(const struct agent *a, struct batcher_config *out)
{
    *out = (struct batcher_config){.policy = BATCH_CONTINUOUS, .max_rows = 8, .max_waiting = 8};
}

static enum status spy_clone_open(struct clone *c, const struct clone_config *config,
                                  struct error *err)
{
    return STATUS_OK;
}

static void spy_clone_close(struct clone *c)
{
}

static void spy_act(struct agent *a, struct row *row)
{
    note(row->turn);
    row->outcome = ROW_DONE;
}

static const struct agent_type spy_type = {
    .name = "spy",
    .agent_size = sizeof(struct spy),
    .clone_size = sizeof(struct clone),
    .open = spy_open,
    .close = spy_close,
    .settle = spy_settle,
    .info = spy_info,
    .batching = spy_batching,
    .clone_open = spy_clone_open,
    .clone_close = spy_clone_close,
    .act = spy_act,
};

struct errand {
    struct job job;
    struct ran ran;
    bool is_back;
};

static void run_errand(struct job *job)
{
    note(&container_of(job, struct errand, job)->ran);
}

static void errand_back(struct job *job)
{
    container_of(job, struct errand, job)->is_back = true;
}

static void ask_spy(struct model *m, struct clone *c, struct row *row, struct batch_request *ask,
                    bool *is_settled)
{
    struct error err;

    *is_settled = false;
    row->clone = c;
    *ask = (struct batch_request){.row = row, .flow = &c->flow};
    future_init(&ask->reply, on_settled, is_settled);
    ck_assert_int_eq(batcher_submit(m->batcher, ask, &err), STATUS_OK);
}

/* A light step runs on the loop. A step that waits when a job comes runs before it, and one that
 * comes during the job runs after it: both on the thread. */
START_TEST(test_light_steps)
{
    const struct model_config config = {
        .name = "m", .type = &spy_type, .options = {.backend = "ref"}, .env = &env_real};
    struct clone_config clone_config = {0};
    struct errand errand = {.job = {.run = run_errand, .done = errand_back}};
    struct ran alone = {0}, before = {0}, after = {0};
    struct row rows[3] = {{.turn = &alone}, {.turn = &before}, {.turn = &after}};
    struct clone *clones[3];
    struct batch_request asks[3];
    bool is_settled[3];
    enum model_state state;
    struct model *m;
    struct error err;

    n_loaded = n_stopped = 0;
    atomic_store(&n_ran, 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(model_start(&m, &loop, &config, on_loaded, &state, &err), STATUS_OK);
    while (n_loaded == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(clone_open(&clones[i], m->agent, &clone_config, &err), STATUS_OK);

    ask_spy(m, clones[0], &rows[0], &asks[0], &is_settled[0]);
    while (!is_settled[0])
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert(pthread_equal(alone.thread, pthread_self()));

    ask_spy(m, clones[1], &rows[1], &asks[1], &is_settled[1]);
    batcher_tick(m->batcher);
    ck_assert(uv_is_active((uv_handle_t *)&m->inline_step));
    model_run(m, &errand.job);
    ask_spy(m, clones[2], &rows[2], &asks[2], &is_settled[2]);
    while (!is_settled[1] || !is_settled[2] || !errand.is_back)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert(!pthread_equal(before.thread, pthread_self()));
    ck_assert_uint_eq(before.place, 2);
    ck_assert_uint_eq(errand.ran.place, 3);
    ck_assert_uint_eq(after.place, 4);

    for (size_t i = 0; i < 3; i++)
        clone_close(clones[i]);
    stop(m);
    ck_assert_uint_eq(settled.place, 5); /* which may wait for a disk: not on the loop */
    ck_assert(!pthread_equal(settled.thread, pthread_self()));
    ck_assert_uint_eq(closed.place, 6);
    ck_assert(pthread_equal(closed.thread, pthread_self()));
}
END_TEST

/* A kind whose steps can be computed together: how many of them each call had. */
static size_t group_sizes[8], n_groups_run;

static bool pair_groups_with(const struct agent *a, const struct agent *b)
{
    return strcmp(a->name, "other") != 0 && strcmp(b->name, "other") != 0;
}

static void pair_group_act(const struct agent_step *steps, size_t n)
{
    group_sizes[n_groups_run++] = n;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < steps[i].n_rows; k++)
            spy_act(steps[i].agent, steps[i].rows[k]);
}

static struct agent_type pair_type(void)
{
    struct agent_type type = spy_type;

    type.groups_with = pair_groups_with;
    type.group_act = pair_group_act;
    return type;
}

/* Light steps of several models that wait on the loop are computed in one call, but not with those
 * of a model that does not group with them; one that leaves for the thread, since a job comes, is
 * not among them. */
START_TEST(test_steps_together)
{
    enum { MODELS = 4 };
    static const char *const names[MODELS] = {"a", "b", "other", "c"};
    const struct agent_type type = pair_type();
    struct errand errand = {.job = {.run = run_errand, .done = errand_back}};
    struct list light_steps;
    struct ran ran[MODELS] = {0};
    struct row rows[MODELS] = {0};
    struct clone *clones[MODELS];
    struct batch_request asks[MODELS];
    bool is_settled[MODELS];
    enum model_state states[MODELS];
    struct model *m[MODELS];
    struct error err;

    list_init(&light_steps);
    n_loaded = n_stopped = n_groups_run = 0;
    atomic_store(&n_ran, 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    for (size_t i = 0; i < MODELS; i++) {
        const struct model_config config = {.name = names[i],
                                            .type = &type,
                                            .options = {.backend = "ref"},
                                            .env = &env_real,
                                            .light_steps = &light_steps};

        ck_assert_int_eq(model_start(&m[i], &loop, &config, on_loaded, &states[i], &err),
                         STATUS_OK);
    }
    while (n_loaded < MODELS)
        (void)uv_run(&loop, UV_RUN_ONCE);
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < MODELS; i++) {
            if (round == 0)
                ck_assert_int_eq(
                    clone_open(&clones[i], m[i]->agent, &(struct clone_config){0}, &err),
                    STATUS_OK);
            rows[i] = (struct row){.turn = &ran[i]};
            ask_spy(m[i], clones[i], &rows[i], &asks[i], &is_settled[i]);
            batcher_tick(m[i]->batcher);
        }
        if (round == 1)
            model_run(m[0], &errand.job);
        for (size_t i = 0; i < MODELS; i++)
            while (!is_settled[i] || (round == 1 && !errand.is_back))
                (void)uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert(list_is_empty(&light_steps));
    ck_assert_uint_eq(n_groups_run, 2); /* the other model's steps, and a's second, are single */
    ck_assert_uint_eq(group_sizes[0], 3);
    ck_assert_uint_eq(group_sizes[1], 2);
    ck_assert(!pthread_equal(ran[0].thread, pthread_self()));
    ck_assert(pthread_equal(ran[1].thread, pthread_self()));
    for (size_t i = 0; i < MODELS; i++) {
        clone_close(clones[i]);
        model_stop(m[i], on_stopped, NULL);
    }
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_uint_eq(n_stopped, MODELS);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

SUITE_MAIN("server/model", test_ask, test_load_fails, test_light_steps, test_steps_together)
