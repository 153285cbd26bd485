/* Vectors of environments under random schedules: clients open, reset, step, leave and close while
 * hosts come, answer late, fail instances, fall silent and go, and memory is short now and then. An
 * environment of these hosts counts its actions, so that each row that does not fail must have the
 * count that its instance has; every request ends once. PARLEY_SEEDS=10000 runs so many schedules.
 */
#include "server/environment/host.h"
#include "server/environment/vectors.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "tests/support/sim.h"
#include "tests/unit/base/suite.h"

enum {
    N_SEEDS = 300,
    N_EVENTS = 1500,
    N_HOSTS = 3,
    N_CLIENTS = 3,
    MAX_COUNT = 5,
    N_NUMBERS = 8192
};

struct fake_host {
    struct environment_host host;
    bool is_attached;
    float *counts; /* [N_NUMBERS] of its instances; -1: not made */
    /* Orders that it has taken. */
    struct taken {
        enum host_order_kind kind;
        uint64_t id;
        size_t n;
        float counts[MAX_COUNT]; /* after it */
    } taken[256];
    size_t n_taken;
};

struct client {
    struct vector *vector; /* NULL: closed */
    uint64_t handle;
    size_t n;
    float counts[MAX_COUNT];
    bool is_known[MAX_COUNT]; /* counts is what its instance has */
    bool is_asked;
    struct vector_request request;
    uint32_t indices[MAX_COUNT];
    int64_t choices[MAX_COUNT];
    struct arena arena;
};

static struct {
    struct vectors all;
    struct alarm alarm;
    struct fake_host hosts[N_HOSTS];
    struct client clients[N_CLIENTS];
    size_t n_done, n_failed, n_rows, n_ended;
} s;

/* --- hosts --- */

static void on_notify(struct peer *p)
{
}

static void on_ended(struct peer *p, const struct error *err)
{
    struct fake_host *f = container_of(p, struct fake_host, host.peer);

    ck_assert(f->is_attached && err->text[0] != '\0');
    environment_host_close(&f->host);
    f->is_attached = false;
    s.n_ended++;
}

static void host_come_or_go(struct fake_host *f)
{
    static const struct environment_spaces spaces = {.n_observation = 1, .n_actions = 4};
    float *counts = f->counts;
    struct error err;

    if (f->is_attached) {
        environment_host_close(&f->host);
        f->is_attached = false;
        return;
    }
    *f = (struct fake_host){.counts = counts};
    f->host.peer.notify = on_notify;
    f->host.peer.ended = on_ended;
    for (size_t i = 0; i < N_NUMBERS; i++)
        counts[i] = -1;
    ck_assert_int_eq(environment_host_open(&f->host, &s.all, "counts", &spaces, 4, &err),
                     STATUS_OK);
    f->is_attached = true;
}

static void host_take_orders(struct fake_host *f)
{
    const struct host_order *o;

    while (f->n_taken < 256 && (o = environment_host_order(&f->host)) != NULL) {
        struct taken *t = &f->taken[f->n_taken];

        *t = (struct taken){.kind = o->kind, .id = o->id, .n = o->n};
        for (size_t i = 0; i < o->n; i++) {
            float *count = &f->counts[o->numbers[i] % N_NUMBERS];

            ck_assert(o->kind == HOST_RESET || *count >= 0);
            if (o->kind == HOST_RESET)
                *count = 0;
            else if (o->kind == HOST_STEP)
                *count += (float)o->choices[i];
            else
                *count = -1;
            if (o->kind != HOST_CLOSE)
                t->counts[i] = *count;
        }
        f->n_taken += o->kind != HOST_CLOSE;
        environment_host_taken(&f->host);
    }
}

/* The oldest order, now and then with a failure, or wrong. */
static void host_answer(struct fake_host *f)
{
    const struct taken t = f->taken[0];
    float observation[MAX_COUNT], reward[MAX_COUNT] = {0};
    bool terminated[MAX_COUNT] = {0}, truncated[MAX_COUNT] = {0};
    struct host_failure failure = {.place = pick((unsigned)t.n), .text = "it broke"};
    struct host_answer a = {.order = t.id, .failures = &failure, .n_failures = pick(16) == 0};
    const int64_t n = (int64_t)t.n;
    struct error err;

    for (size_t i = 0; i < t.n; i++) {
        observation[i] = t.counts[i];
        terminated[i] = t.kind == HOST_STEP && pick(12) == 0;
    }
    a.observation = (struct tensor_view){"o", TENSOR_F32, 2, {n, 1}, observation, t.n * 4};
    a.reward = (struct tensor_view){"r", TENSOR_F32, 1, {n}, reward, t.n * 4};
    a.terminated = (struct tensor_view){"t", TENSOR_BOOL, 1, {n}, terminated, t.n};
    a.truncated = (struct tensor_view){"c", TENSOR_BOOL, 1, {n}, truncated, t.n};
    if (pick(200) == 0) { /* the next one's before its turn, or the one before again */
        a.order += pick(2) == 0 ? 1 : -1;
        ck_assert_int_eq(environment_host_answer(&f->host, &a, &err), STATUS_INVALID);
        host_come_or_go(f);
        return;
    }
    memmove(f->taken, f->taken + 1, --f->n_taken * sizeof(f->taken[0]));
    ck_assert_int_eq(environment_host_answer(&f->host, &a, &err), STATUS_OK);
}

/* --- clients --- */

static void client_end(struct client *c)
{
    const struct vector_request *r = &c->request;

    for (size_t row = 0; row < r->n; row++) {
        uint32_t i = c->indices[row];

        c->is_known[i] = c->is_known[i] && r->failed[row] == NULL;
        s.n_failed += r->failed[row] != NULL;
        s.n_rows++;
        if (r->failed[row] == NULL && c->is_known[i])
            ck_assert_float_eq(r->observation[row], c->counts[i]);
    }
    c->is_asked = false;
    arena_deinit(&c->arena);
    s.n_done++;
}

static void on_done(struct vector_request *r)
{
    struct client *c = container_of(r, struct client, request);

    ck_assert(c->is_asked);
    client_end(c);
}

static void client_open(struct client *c)
{
    const uint64_t seed = 5;
    struct error err;

    c->n = 1 + pick(MAX_COUNT);
    memset(c->is_known, 0, sizeof(c->is_known));
    if (vectors_open(&c->vector, &s.all, 1, "counts", c->n, &seed, 1, &err) == STATUS_OK)
        c->handle = c->vector->by_id.hash;
    else
        c->vector = NULL;
}

static void client_ask(struct client *c)
{
    bool is_reset = pick(3) == 0, resets_ended = pick(2) == 0;
    size_t n = 0;
    struct error err;
    enum status rc;

    for (uint32_t i = 0; i < c->n; i++)
        if (pick(3) > 0)
            c->indices[n++] = i;
    if (n == 0)
        return;
    arena_init(&c->arena, 1 << 16);
    c->request = (struct vector_request){.is_reset = is_reset,
                                         .resets_ended = resets_ended,
                                         .n = n,
                                         .indices = c->indices,
                                         .choices = c->choices,
                                         .done = on_done};
    for (size_t row = 0; row < n; row++) {
        c->choices[row] = pick(4);
        if (pick(50) == 0)
            c->indices[row] = (uint32_t)c->n; /* refused */
    }
    fault_after = pick(10) == 0 ? (long)pick(8) : -1;
    c->is_asked = true;
    {
        /* What each will be, before anything completes. */
        float counts[MAX_COUNT];
        bool is_known[MAX_COUNT];

        memcpy(counts, c->counts, sizeof(counts));
        memcpy(is_known, c->is_known, sizeof(is_known));
        for (size_t row = 0; row < n; row++) {
            uint32_t i = c->indices[row];
            bool resets;

            if (i >= c->n)
                continue;
            resets = is_reset || (resets_ended && c->vector->instances[i].state != VECTOR_RUNNING);
            counts[i] = resets ? 0 : counts[i] + (float)c->choices[row];
            is_known[i] = resets || is_known[i];
        }
        rc = vectors_ask(c->vector, &c->request, &c->arena, &err);
        fault_after = -1;
        if (rc == STATUS_OK) {
            memcpy(c->counts, counts, sizeof(counts));
            memcpy(c->is_known, is_known, sizeof(is_known));
        }
    }
    if (rc != STATUS_OK) {
        ck_assert_ptr_null(c->request.vector);
        c->is_asked = false;
        arena_deinit(&c->arena);
    } else if (c->request.is_done) {
        client_end(c);
    }
}

static void client_act(struct client *c)
{
    struct vector *found;
    struct error err;

    if (c->vector != NULL && vectors_get(&found, &s.all, 1, c->handle, &err) != STATUS_OK)
        c->vector = NULL; /* it was idle for too long */
    if (c->is_asked && pick(8) == 0) {
        vector_request_leave(&c->request);
        for (size_t row = 0; row < c->request.n; row++)
            c->is_known[c->indices[row]] = false;
        c->is_asked = false;
        arena_deinit(&c->arena);
    } else if (c->vector == NULL && !c->is_asked) {
        client_open(c);
    } else if (c->vector != NULL && pick(40) == 0) {
        ck_assert_int_eq(vectors_get(&found, &s.all, 2, c->handle, &err), STATUS_NOT_FOUND);
        vectors_close(c->vector);
        c->vector = NULL;
    } else if (c->vector != NULL && !c->is_asked) {
        client_ask(c);
    }
}

static void happen(void)
{
    struct fake_host *f = &s.hosts[pick(N_HOSTS)];
    unsigned what = pick(100);

    sim.now_us += pick(100);
    if (what < 2)
        host_come_or_go(f);
    else if (what < 40)
        client_act(&s.clients[pick(N_CLIENTS)]);
    else if (what < 60 && f->is_attached)
        host_take_orders(f);
    else if (what < 98 && f->is_attached && f->n_taken > 0)
        host_answer(f);
    else if (what == 98)
        alarm_ring(&s.alarm); /* a tick may come at any time */
    else if (what == 99 && pick(20) == 0)
        sim.now_us += pick(2) == 0 ? 2000000 : (uint64_t)VECTOR_TTL_MS * 1000;
}

static void run_seed(uint64_t seed)
{
    const struct vectors_config config = {
        .env = &sim_env, .silence_us = 1000000, .is_allowed = true, .alarm = &s.alarm};

    sim_start(seed);
    s.alarm = (struct alarm){.tick = vectors_tick, .owner = &s.all};
    vectors_init(&s.all, &config);
    host_come_or_go(&s.hosts[0]);
    for (unsigned i = 0; i < N_EVENTS; i++)
        happen();
    vectors_end(&s.all);
    for (size_t i = 0; i < N_CLIENTS; i++) {
        ck_assert_msg(!s.clients[i].is_asked, "a request hangs, seed %u", (unsigned)seed);
        s.clients[i].vector = NULL;
    }
    vectors_deinit(&s.all);
}

START_TEST(test_schedules)
{
    const char *n_seeds = getenv("PARLEY_SEEDS");
    const uint64_t last = n_seeds == NULL ? N_SEEDS : strtoull(n_seeds, NULL, 10);

    for (size_t i = 0; i < N_HOSTS; i++)
        s.hosts[i].counts = calloc(N_NUMBERS, sizeof(float));
    for (uint64_t seed = 1; seed <= last; seed++)
        run_seed(seed);
    for (size_t i = 0; i < N_HOSTS; i++)
        free(s.hosts[i].counts);
    /* All of it happened. */
    ck_assert_uint_gt(s.n_done, 10000);
    ck_assert_uint_gt(s.n_rows - s.n_failed, 10000);
    ck_assert_uint_gt(s.n_failed, 1000);
    ck_assert_uint_gt(s.n_ended, 100);
}
END_TEST

SUITE_MAIN("server/environment", test_schedules)
