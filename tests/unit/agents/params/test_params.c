/* The agent, round by round, without a batcher. */
#include "agents/params/params.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/unit/base/suite.h"

enum { MAX_ROWS = 6 };

struct server {
    struct params_budget budget;
    struct params_memory *memory;
    struct params_spec spec;
    struct tensor_view tensor;
    struct agent *agent;
};

static void server_open(struct server *s, const struct params_spec *spec, const float *values,
                        size_t n)
{
    struct params_open open;
    struct agent_config config = {.name = "p", .spec = &open, .env = &env_real};
    struct error err;
    float *block;

    *s = (struct server){.spec = *spec};
    s->tensor = (struct tensor_view){
        .name = "w", .n_dims = 1, .dims = {(int64_t)n}, .size_bytes = n * sizeof(float)};
    s->spec.name = "p";
    s->spec.tensors = &s->tensor;
    s->spec.n_tensors = 1;
    ck_assert_int_eq(params_spec_check(&s->spec, &err), STATUS_OK);
    params_budget_init(&s->budget, 1 << 20, NULL);
    ck_assert_int_eq(params_memory_open(&s->memory, &s->budget, n, 8, &err), STATUS_OK);
    open = (struct params_open){&s->spec, s->memory, &s->budget};
    ck_assert_int_eq(agent_open_type(&s->agent, &params_agent, &config, &err), STATUS_OK);
    ck_assert_int_eq(params_memory_take(&block, s->memory, &err), STATUS_OK);
    memcpy(block, values, n * sizeof(float));
    ck_assert_int_eq(params_begin(s->agent, block, NULL, &err), STATUS_OK);
    params_publish(s->agent);
}

static void server_close(struct server *s)
{
    agent_unref(s->agent);
    params_memory_unref(s->memory);
    ck_assert_uint_eq(s->budget.held_bytes, 0);
}

/* A row of n_gradients equal ones, from their own client. */
struct part {
    struct params_client *client;
    struct params_gradient own[MAX_ROWS];
    struct params_gradient *gradients[MAX_ROWS];
    struct tensor_view views[MAX_ROWS];
    struct params_turn turn;
};

static enum status part_open(struct part *p, struct server *s, struct params_client *client,
                             uint64_t step_id, const float *gradient, size_t n_gradients,
                             struct error *err)
{
    *p = (struct part){.client = client};
    for (size_t i = 0; i < n_gradients; i++) {
        p->own[i] =
            (struct params_gradient){.client = client->id, .step_id = step_id, .base_version = 0};
        ck_assert_int_eq(params_memory_take(&p->own[i].values, s->memory, err), STATUS_OK);
        memcpy(p->own[i].values, gradient, s->spec.n * sizeof(float));
        p->gradients[i] = &p->own[i];
        p->views[i] = s->tensor;
        p->views[i].data = p->own[i].values;
    }
    agent_turn_init(&p->turn.base, NULL, 0);
    p->turn.gradients = p->gradients;
    p->turn.n_gradients = n_gradients;
    p->turn.base.seen.tensors = p->views;
    p->turn.base.seen.n_tensors = n_gradients;
    return params_agent.observe(&client->base, &p->turn.base, err);
}

static void part_close(struct part *p, struct server *s)
{
    for (size_t i = 0; i < p->turn.n_gradients; i++)
        params_memory_give(s->memory, p->own[i].values);
    agent_turn_deinit(&p->turn.base);
}

/* One round of all parts, in the order given. */
static void round_of(struct server *s, struct part *const *parts, size_t n)
{
    struct row *rows[MAX_ROWS];
    struct batch_agent batch;

    for (size_t i = 0; i < n; i++)
        rows[i] = &parts[i]->turn.base.row;
    agent_batch_adapter(s->agent, &batch);
    agent_compute(s->agent, rows, n);
    for (size_t i = 0; i < n; i++) {
        batch.stepped(batch.self, rows[i]);
        ck_assert_int_eq(rows[i]->outcome, ROW_DONE);
        params_agent.self_observe(rows[i]->clone, &parts[i]->turn.base);
    }
}

static struct params_client *client_open(struct server *s, const char *id)
{
    struct params_client *c;
    struct error err;

    ck_assert_int_eq(params_client_open(&c, s->agent, id, &err), STATUS_OK);
    return c;
}

/* SGD with momentum: gradient 1, rate .001, momentum .9 give -.001, -.0029, -.00561, computed in
 * f32, to the last bit. */
START_TEST(test_sgd_vector)
{
    const struct params_spec spec = {.optim = {.kind = OPTIM_SGD, .momentum = 0.9f},
                                     .schedule = {.rate = 0.001},
                                     .round_size = 1};
    static const float want[] = {-0x1.0624dep-10f, -0x1.7c1bdcp-9f, -0x1.6fa83p-8f};
    const float zero = 0.0f, one = 1.0f;
    struct params_client *c;
    struct error err;
    struct server s;

    server_open(&s, &spec, &zero, 1);
    c = client_open(&s, "a");
    for (uint64_t i = 0; i < 3; i++) {
        struct part p, *parts[] = {&p};

        ck_assert_int_eq(part_open(&p, &s, c, i, &one, 1, &err), STATUS_OK);
        round_of(&s, parts, 1);
        ck_assert(params_current(s.agent)->values[0] == want[i]);
        ck_assert_uint_eq(params_current(s.agent)->version, i + 1);
        ck_assert_uint_eq(p.turn.counted_in, i + 1);
        part_close(&p, &s);
    }
    ck_assert_uint_eq(c->last_step, 2);
    ck_assert_uint_eq(c->last_version, 3);
    clone_close(&c->base);
    server_close(&s);
}
END_TEST

/* Weights 1 2 3 and their product at x = 1: gradients of two that count as one, twice. */
static void check_fan_in(bool is_sum, const float want[3])
{
    const struct params_spec spec = {
        .schedule = {.rate = 1.0}, .is_sum = is_sum, .round_size = 2, .fan_in = 2};
    const float weights[] = {1.0f, 2.0f, 3.0f}, gradient[] = {6.0f, 3.0f, 2.0f};
    struct part a, b, *parts[] = {&a, &b};
    struct params_client *x, *y;
    struct error err;
    struct server s;

    server_open(&s, &spec, weights, 3);
    x = client_open(&s, "x");
    y = client_open(&s, "y");
    ck_assert_int_eq(part_open(&a, &s, x, 1, gradient, 2, &err), STATUS_OK);
    ck_assert_int_eq(part_open(&b, &s, y, 1, gradient, 2, &err), STATUS_OK);
    round_of(&s, parts, 2);
    ck_assert_mem_eq(params_current(s.agent)->values, want, 3 * sizeof(float));
    ck_assert_uint_eq(params_current(s.agent)->n_contributors, 4);
    part_close(&a, &s);
    part_close(&b, &s);
    clone_close(&x->base);
    clone_close(&y->base);
    server_close(&s);
}

START_TEST(test_fan_in)
{
    check_fan_in(false, (const float[]){-5.0f, -1.0f, 1.0f});
    check_fan_in(true, (const float[]){-23.0f, -10.0f, -5.0f});
}
END_TEST

/* Numbers whose sum depends on the order: they are added in the order of clients, not of arrival,
 * and contributors are listed in that order. */
START_TEST(test_order)
{
    static const size_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                       {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const char *const names[] = {"a", "b", "c"};
    const struct params_spec spec = {.schedule = {.rate = 1.0}, .is_sum = true, .round_size = 3};
    const float gradients[] = {1e8f, -1e8f, 0.3f}, zero = 0.0f;

    for (size_t k = 0; k < 6; k++) {
        struct params_client *clients[3];
        struct part p[3], *parts[3];
        struct snapshot *made;
        struct error err;
        struct server s;

        server_open(&s, &spec, &zero, 1);
        for (size_t i = 0; i < 3; i++) {
            clients[i] = client_open(&s, names[i]);
            ck_assert_int_eq(part_open(&p[i], &s, clients[i], 1, &gradients[i], 1, &err),
                             STATUS_OK);
        }
        for (size_t i = 0; i < 3; i++)
            parts[i] = &p[orders[k][i]];
        round_of(&s, parts, 3);
        made = params_current(s.agent);
        ck_assert(made->values[0] == -0.3f);
        for (size_t i = 0; i < 3; i++) {
            ck_assert_str_eq(made->contributors[i], names[i]);
            part_close(&p[i], &s);
            clone_close(&clients[i]->base);
        }
        server_close(&s);
    }
}
END_TEST

/* A step counts once; a gradient that is too old, or newer than the parameters, is refused with
 * both versions. */
START_TEST(test_refused)
{
    const struct params_spec spec = {
        .schedule = {.rate = 1.0}, .round_size = 1, .dedupe = true, .max_staleness = 2};
    const float zero = 0.0f;
    struct params_client *c, *late;
    struct error err;
    struct server s;
    struct part p, *parts[] = {&p};

    server_open(&s, &spec, &zero, 1);
    c = client_open(&s, "a");
    late = client_open(&s, "late");
    for (uint64_t i = 1; i <= 2; i++) {
        ck_assert_int_eq(part_open(&p, &s, c, i * 10, &zero, 1, &err), STATUS_OK);
        round_of(&s, parts, 1);
        part_close(&p, &s);
    }
    ck_assert_int_eq(part_open(&p, &s, c, 20, &zero, 1, &err), STATUS_EXISTS);
    ck_assert_ptr_nonnull(strstr(err.text, "version 2"));
    part_close(&p, &s);
    ck_assert_int_eq(part_open(&p, &s, c, 10, &zero, 1, &err), STATUS_EXISTS);
    part_close(&p, &s);
    ck_assert_int_eq(part_open(&p, &s, late, 1, &zero, 1, &err), STATUS_OK);
    round_of(&s, parts, 1);
    part_close(&p, &s);
    ck_assert_int_eq(part_open(&p, &s, late, 2, &zero, 1, &err), STATUS_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(err.text, "version 0, but 'p' is at version 3"));
    ck_assert_uint_eq(err.have_version, 0);
    ck_assert_uint_eq(err.want_version, 3);
    part_close(&p, &s);
    ck_assert_int_eq(params_check_fresh(s.agent, 4, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "base_version");
    clone_close(&c->base);
    clone_close(&late->base);
    server_close(&s);
}
END_TEST

/* If any allocation fails, the round leaves parameters and optimiser unchanged, and the same
 * gradients give the right step when retried. */
START_TEST(test_fault)
{
    const struct params_spec spec = {
        .optim = {.momentum = 0.5f}, .schedule = {.rate = 1.0}, .round_size = 1};
    const float zero = 0.0f, one = 1.0f;
    struct row *rows[1];
    struct params_client *c;
    struct error err;
    struct server s;
    struct part p;
    long n = 0;

    server_open(&s, &spec, &zero, 1);
    c = client_open(&s, "a");
    ck_assert_int_eq(part_open(&p, &s, c, 1, &one, 1, &err), STATUS_OK);
    rows[0] = &p.turn.base.row;
    for (;; n++) {
        fault_after = n;
        params_agent.batch_act(s.agent, rows, 1);
        fault_after = -1;
        params_agent.stepped(s.agent, rows[0]);
        if (rows[0]->outcome == ROW_DONE)
            break;
        ck_assert_int_eq(rows[0]->outcome, ROW_FAILED);
        ck_assert_int_eq(rows[0]->err.status, STATUS_EXHAUSTED);
        ck_assert_uint_eq(params_current(s.agent)->version, 0);
    }
    ck_assert_int_ge(n, 4);
    ck_assert(params_current(s.agent)->values[0] == -1.0f);
    part_close(&p, &s);
    clone_close(&c->base);
    server_close(&s);
}
END_TEST

/* The batcher's config asks for whole rounds, or partial ones if allowed. */
START_TEST(test_batching)
{
    struct params_spec spec = {
        .schedule = {.rate = 1.0}, .round_size = 4, .quorum = {.min = 2, .timeout_ms = 30}};
    const float zero = 0.0f;
    struct batcher_config config;
    struct server s;

    server_open(&s, &spec, &zero, 1);
    agent_batching(s.agent, &config);
    ck_assert_int_eq(config.policy, BATCH_FIXED);
    ck_assert_uint_eq(config.max_rows, 4);
    ck_assert_uint_eq(config.min_rows, 4);
    ck_assert_uint_eq(config.max_delay_us, 30000);
    server_close(&s);
    spec.quorum.may_be_partial = true;
    server_open(&s, &spec, &zero, 1);
    agent_batching(s.agent, &config);
    ck_assert_uint_eq(config.min_rows, 2);
    server_close(&s);
}
END_TEST

SUITE_MAIN("agents/params/params", test_sgd_vector, test_fan_in, test_order, test_refused,
           test_fault, test_batching)
