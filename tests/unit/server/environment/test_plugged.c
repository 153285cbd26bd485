/* Vectors of an environment that is plugged in: faulty_environment.c, whose actions are two numbers
 * and whose observation is its seed, its episode and its steps. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "agents/plugin/environment.h"
#include "base/alarm.h"
#include "server/environment/plugged.h"
#include "server/environment/vectors.h"
#include "tests/unit/base/suite.h"

enum { N = 4 };

static struct vectors all;
static struct vector *vector;
static struct arena arena;
static uint64_t n_drawn;

static uint64_t plugged_now(void *self)
{
    return 1000;
}

static void plugged_random(void *self, void *out, size_t n_bytes)
{
    memset(out, 0, n_bytes);
    n_drawn++;
    memcpy(out, &n_drawn, n_bytes < sizeof(n_drawn) ? n_bytes : sizeof(n_drawn));
}

static const struct env fake_env = {.now_us = plugged_now, .random = plugged_random};

static enum status plug_in(const char *path, struct error *err)
{
    struct plugin_environment *kind;
    bool has_agent;

    ck_assert_int_eq(plugin_environment_open(&kind, &has_agent, path, err), STATUS_OK);
    return vectors_add_plugged(&all, kind, err);
}

static void begin(void)
{
    static struct alarm never;
    const struct vectors_config config = {.env = &fake_env, .is_allowed = true, .alarm = &never};
    struct error err;

    vectors_init(&all, &config);
    ck_assert_int_eq(plug_in(ENVIRONMENT_WHOLE, &err), STATUS_OK);
    arena_init(&arena, 1 << 20);
}

static void open_vector(const char *name, size_t n)
{
    static const uint64_t first = 10;
    struct error err = {0};

    ck_assert_msg(vectors_open(&vector, &all, 1, name, n, &first, 1, &err) == STATUS_OK, "%s",
                  err.text);
}

static void end(void)
{
    arena_deinit(&arena);
    vectors_deinit(&all);
}

static struct vector_request request;

static void reset(const uint64_t *seeds)
{
    struct error err = {0};

    request = (struct vector_request){.is_reset = true, .seeds = seeds};
    request.n = seeds == NULL ? 0 : N;
    ck_assert_int_eq(vectors_ask(vector, &request, &arena, &err), STATUS_OK);
    ck_assert(request.is_done);
}

static enum status step(const float *numbers, bool resets_ended, struct error *err)
{
    request = (struct vector_request){.action_numbers = numbers, .resets_ended = resets_ended};
    return vectors_ask(vector, &request, &arena, err);
}

static void row_is(size_t row, float seed, float episode, float n_steps, float reward)
{
    const float *seen = request.observation + 3 * row;

    ck_assert_ptr_null(request.failed[row]);
    ck_assert_msg(seen[0] == seed && seen[1] == episode && seen[2] == n_steps,
                  "row %zu is %g %g %g", row, (double)seen[0], (double)seen[1], (double)seen[2]);
    ck_assert_float_eq(request.reward[row], reward);
}

/* Those whose episode is over are reset and the others stepped, each group in one call; episodes
 * are numbered, and cut after max_steps. */
START_TEST(test_steps)
{
    const float go[2 * N] = {0, 0, 1, 1, 2, 2, 3, 0};
    struct error err = {0};

    begin();
    open_vector("faulty-v0", N);
    ck_assert_int_eq(step(go, false, &err), STATUS_PRECONDITION);
    ck_assert_str_eq(err.text, "environment 0 was not reset yet");
    reset(NULL);
    for (size_t i = 0; i < N; i++)
        row_is(i, (float)(10 + i), 0, 0, 0);
    ck_assert_int_eq(step(go, false, &err), STATUS_OK);
    for (size_t i = 0; i < N; i++)
        row_is(i, (float)(10 + i), 0, 1, (float)(i + N)); /* all four in one call */
    ck_assert(!request.terminated[0] && request.terminated[1] && !request.terminated[2]);
    ck_assert(!request.truncated[1] && request.truncated[2] && !request.truncated[3]);
    ck_assert_int_eq(step(go, false, &err), STATUS_PRECONDITION);
    ck_assert_str_eq(err.text, "the episode of environment 1 is over, reset it");
    ck_assert_int_eq(step(go, true, &err), STATUS_OK);
    row_is(0, 10, 0, 2, 2); /* two were stepped */
    row_is(1, 11, 1, 0, 0);
    row_is(2, 12, 1, 0, 0);
    row_is(3, 13, 0, 2, 5);
    for (int i = 3; i <= 5; i++)
        ck_assert_int_eq(step(go, true, &err), STATUS_OK);
    row_is(0, 10, 0, 5, request.reward[0]);
    ck_assert(request.truncated[0] && !request.terminated[0]); /* max_steps */
    end();
}
END_TEST

/* An environment that fails, or gives what is no number, fails alone until it is reset. */
START_TEST(test_failures)
{
    static const uint64_t seeds[N] = {1, 666, 3, 4};
    const float bad[2 * N] = {0, 3, 0, 0, 0, 4, 0, 5}, go[2 * N] = {0};
    struct error err = {0};

    begin();
    open_vector("faulty-v0", N);
    reset(seeds);
    ck_assert_uint_eq(request.n_failed, 1);
    ck_assert_str_eq(request.failed[1]->text, "'faulty-v0': it does not begin");
    ck_assert_int_eq(step(bad, false, &err), STATUS_OK);
    ck_assert_uint_eq(request.n_failed, 4);
    ck_assert_str_eq(request.failed[0]->text, "'faulty-v0': it was told to fail");
    ck_assert_str_eq(request.failed[1]->text, "environment 1 has failed, reset it");
    ck_assert_str_eq(request.failed[2]->text, "'faulty-v0' returned a number that is not finite");
    ck_assert_str_eq(request.failed[3]->text, "'faulty-v0' returned a number that is not finite");
    ck_assert_float_eq(request.observation[0], 0); /* of a row that failed */
    reset(NULL);
    ck_assert_uint_eq(request.n_failed, 0); /* the series' next episode */
    row_is(1, 666, 1, 0, 0);
    ck_assert_int_eq(step(go, false, &err), STATUS_OK);
    row_is(3, 4, 1, 1, 4);
    end();
}
END_TEST

/* A name is taken once; a vector whose environments cannot all be made is none; nothing leaks when
 * memory is short. */
START_TEST(test_refused)
{
    const float go[2 * N] = {0};
    struct error err = {0};
    struct vector *other;

    begin();
    ck_assert_int_eq(plug_in(ENVIRONMENT_WHOLE, &err), STATUS_EXISTS);
    ck_assert_str_eq(err.text, "an environment is called 'faulty-v0' already");
    ck_assert_int_eq(plug_in(ENVIRONMENT_BUILT_IN, &err), STATUS_EXISTS);
    ck_assert_int_eq(vectors_open(&other, &all, 1, "faulty", 1, NULL, 0, &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(vectors_open(&other, &all, 1, "faulty-v0", 100, NULL, 0, &err),
                     STATUS_EXHAUSTED); /* the 41st is NULL */
    ck_assert_ptr_nonnull(strstr(err.text, "of 'faulty-v0' could not be made"));
    open_vector("faulty-v0", N);
    reset(NULL);
    arena_deinit(&arena);
    arena_init(&arena, 600);
    ck_assert_int_eq(step(go, false, &err), STATUS_EXHAUSTED);
    arena_deinit(&arena);
    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(step(go, false, &err), STATUS_OK);
    row_is(0, 10, 0, 1, 4); /* the step before was none */
    end();
}
END_TEST

SUITE_MAIN("server/plugged", test_steps, test_failures, test_refused)
