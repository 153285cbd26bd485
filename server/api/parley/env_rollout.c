/* parley.v1.Env, Rollout: answered when the rollout is over. A call that closes before cancels it;
 * their shared memory is freed when both are over. */
#include <stdlib.h>

#include "parley/v1/env.pb-c.h"
#include "server/act/mode.h"
#include "server/act/session.h"
#include "server/api/parley/environment_wire.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire_tensor.h"
#include "server/call/error_details.h"
#include "server/model/models.h"
#include "server/rollout/rollout.h"
#include "server/server.h"

struct rollout_call {
    struct call *call;             /* NULL: closed */
    bool is_finished;              /* the call was given its end */
    struct vector_rollout rollout; /* done NULL: over */
};

/* A tensor of [n][n_steps], or [n][n_steps][n_each] if that is not 0. */
static struct tensor_view rollout_view(const char *name, enum tensor_type type, size_t n,
                                       size_t n_steps, size_t n_each, const void *data)
{
    struct tensor_view t = {.name = name,
                            .type = type,
                            .n_dims = n_each > 0 ? 3 : 2,
                            .dims = {(int64_t)n, (int64_t)n_steps, (int64_t)n_each},
                            .data = data};

    t.size_bytes = n * n_steps * (n_each > 0 ? n_each : 1) * tensor_type_size(type);
    return t;
}

/* The losses of environments; NULL: no memory. */
static Parley__V1__EnvFailure **rollout_failures(const struct vector_rollout *r, size_t *ret_n,
                                                 struct arena *arena)
{
    struct lost_environment {
        Parley__V1__EnvFailure failure;
        Parley__V1__ErrorDetail detail;
    };
    Parley__V1__EnvFailure **list;
    struct lost_environment *parts;
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++)
        n += r->lost[i] != NULL;
    list = arena_alloc(arena, n + 1, sizeof(list[0]));
    parts = arena_alloc(arena, n + 1, sizeof(parts[0]));
    if (list == NULL || parts == NULL)
        return NULL;
    *ret_n = 0;
    for (size_t i = 0; i < r->n; i++) {
        struct lost_environment *p = &parts[*ret_n];

        if (r->lost[i] == NULL)
            continue;
        parley__v1__env_failure__init(&p->failure);
        error_details_fill(&p->detail, r->lost[i]);
        p->failure.index = (uint32_t)i;
        p->failure.error = &p->detail;
        list[(*ret_n)++] = &p->failure;
    }
    return list;
}

static void rollout_reply(struct call *call, const struct vector_rollout *r)
{
    Parley__V1__EnvRolloutResponse response = PARLEY__V1__ENV_ROLLOUT_RESPONSE__INIT;
    size_t n = r->n, n_steps = r->config.n_steps, n_numbers = r->spaces.n_action_numbers;
    const struct tensor_view views[] = {
        rollout_view("observation", TENSOR_F32, n, n_steps + 1, r->spaces.n_observation,
                     r->observation),
        n_numbers > 0 ? rollout_view("action", TENSOR_F32, n, n_steps, n_numbers, r->numbers)
                      : rollout_view("action", TENSOR_I64, n, n_steps, 0, r->choices),
        rollout_view("logp", TENSOR_F32, n, n_steps, 0, r->logp),
        rollout_view("value", TENSOR_F32, n, n_steps, 0, r->value),
        rollout_view("reward", TENSOR_F32, n, n_steps, 0, r->reward),
        rollout_view("terminated", TENSOR_BOOL, n, n_steps, 0, r->terminated),
        rollout_view("truncated", TENSOR_BOOL, n, n_steps, 0, r->truncated),
        rollout_view("reset", TENSOR_BOOL, n, n_steps, 0, r->reset),
        rollout_view("state", TENSOR_F32, n, r->n_state, 0, r->state),
        rollout_view("last_state", TENSOR_F32, n, r->n_state, 0, r->last_state),
    };
    enum { N_VIEWS = sizeof(views) / sizeof(views[0]) };
    Parley__V1__Tensor tensors[N_VIEWS];
    Parley__V1__Tensor **const fields[N_VIEWS] = {
        &response.observation, &response.action,     &response.logp,      &response.value,
        &response.reward,      &response.terminated, &response.truncated, &response.reset,
        &response.state,       &response.last_state};

    /* the last two are of recurrent policies */
    for (size_t i = 0; i < N_VIEWS - (r->n_state > 0 ? 0 : 2); i++) {
        wire_tensor(&tensors[i], &views[i]);
        *fields[i] = &tensors[i];
    }
    response.first_params_version = r->first_version;
    response.last_params_version = r->last_version;
    response.failures = rollout_failures(r, &response.n_failures, call_arena(call));
    if (response.failures == NULL) {
        struct error err;

        (void)error_no_memory(&err, r->n * sizeof(void *), "failures");
        call_finish(call, &err);
        return;
    }
    call_reply(call, &response.base);
}

static void on_rollout_done(struct vector_rollout *r, const struct error *err)
{
    struct rollout_call *c = container_of(r, struct rollout_call, rollout);

    if (c->call == NULL) {
        free(c);
        return;
    }
    r->done = NULL;
    if (c->is_finished)
        return;
    c->is_finished = true;
    if (err->status == STATUS_OK)
        rollout_reply(c->call, r);
    else
        call_finish(c->call, err);
}

static void on_rollout_close(struct call *call, void *state, enum status why)
{
    struct rollout_call *c = state;

    c->call = NULL;
    if (c->rollout.done == NULL)
        free(c);
    else
        rollout_cancel(&c->rollout);
}

static void on_rollout_drain(struct call *call, void *state)
{
    struct rollout_call *c = state;
    struct error err;

    if (c->is_finished)
        return;
    c->is_finished = true;
    (void)error_draining(&err);
    call_finish(call, &err);
}

/* The states that a recurrent policy begins with, in the call's arena. */
static enum status rollout_take_states(struct vector_rollout_config *to, struct call *call,
                                       Parley__V1__Tensor *m, struct error *err)
{
    struct tensor_view view;

    if (m == NULL)
        return STATUS_OK;
    if (environment_wire_tensor(&view, m, "state", call_arena(call), err) != STATUS_OK)
        return err->status;
    if (view.type != TENSOR_F32)
        return error_field(err, "state", "is not of type F32");
    to->states = view.data;
    to->n_states = view.size_bytes / sizeof(float);
    return STATUS_OK;
}

static void start_rollout(struct call *call, const Parley__V1__EnvRolloutRequest *m)
{
    static const struct call_handler handler = {.on_close = on_rollout_close,
                                                .drain = on_rollout_drain};
    struct server *server = call_server(call);
    struct rollout_call *c = call_state(call, sizeof(*c));
    struct model *model;
    struct error err;
    enum status rc;

    if (c == NULL)
        return;
    rc = models_get(&model, server->models, m->model, &err);
    if (rc == STATUS_OK) {
        c->call = call;
        c->rollout.done = on_rollout_done;
        c->rollout.config = (struct vector_rollout_config){
            .all = server->rollouts,
            .vectors = server->vectors,
            .principal = call_principal(call)->id,
            .handle = m->handle,
            .model = model,
            .n_steps = m->n_steps,
            .seed = m->seed,
            .resets = m->reset != 0,
            .is_greedy = m->greedy != 0,
            .epsilons = m->epsilon, /* in the call's arena */
            .n_epsilons = m->n_epsilon,
            .row_multiple = act_lockstep_n(&server->sessions->modes, model),
            .deadline_us = call_deadline_us(call),
        };
        rc = rollout_take_states(&c->rollout.config, call, m->state, &err);
    }
    if (rc == STATUS_OK)
        rc = rollout_start(&c->rollout, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        free(c);
        return;
    }
    call_set_handler(call, &handler, c);
}

#define ENV_ROLLOUT_METHODS(METHOD) \
    METHOD(UNARY, KEY, "Env/Rollout", env_rollout_request, env_rollout_response, start_rollout)

PARLEY_TABLE(env_rollout_methods, ENV_ROLLOUT_METHODS)
