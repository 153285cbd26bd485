/* parley.v1.Env: Open, Reset, Step and Close. A request whose environments are built in is answered
 * at once, one of attached workers' when all of them have answered; one whose caller goes away is
 * left. */
#include <stdlib.h>

#include "base/alloc.h"
#include "parley/v1/env.pb-c.h"
#include "server/api/parley/environment_wire.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire_tensor.h"
#include "server/call/error_details.h"
#include "server/environment/vectors.h"
#include "server/server.h"

struct env_call {
    struct vector_request request;
    struct call *call;
    struct environment_spaces spaces; /* the vector may be closed meanwhile */
};

static enum status env_find(struct vector **out, struct call *call, uint64_t handle,
                            struct error *err)
{
    return vectors_get(out, call_server(call)->vectors, call_principal(call)->id, handle, err);
}

static enum status env_open(struct call *call, const Parley__V1__EnvOpenRequest *m,
                            Parley__V1__EnvOpenResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    struct vector *v;
    enum status rc;

    if (server->state >= SERVER_DRAINING)
        rc = error_draining(err);
    else
        rc = vectors_open(&v, server->vectors, call_principal(call)->id, m->name, m->count,
                          m->seeds, m->n_seeds, err);
    if (rc != STATUS_OK)
        return rc;
    response->handle = v->by_id.hash;
    response->name = v->name;
    response->observations = (uint32_t)v->spaces.n_observation;
    response->actions = (uint32_t)v->spaces.n_actions;
    response->action_numbers = (uint32_t)v->spaces.n_action_numbers;
    if (v->spaces.described != NULL)
        response->spaces = (char *)v->spaces.described; /* only read */
    return STATUS_OK;
}

static enum status env_close(struct call *call, const Parley__V1__EnvCloseRequest *m,
                             Parley__V1__EnvCloseResponse *response, struct error *err)
{
    struct vector *v;

    if (env_find(&v, call, m->handle, err) != STATUS_OK)
        return err->status;
    vectors_close(v);
    return STATUS_OK;
}

/* --- answers --- */

/* The failures of a request in the order of its rows; NULL: no memory. */
static Parley__V1__EnvFailure **env_failures(const struct vector_request *r, struct arena *arena)
{
    Parley__V1__EnvFailure **list = arena_alloc(arena, r->n_failed + 1, sizeof(list[0]));
    Parley__V1__EnvFailure *failures = arena_alloc(arena, r->n_failed + 1, sizeof(failures[0]));
    Parley__V1__ErrorDetail *details = arena_alloc(arena, r->n_failed + 1, sizeof(details[0]));
    size_t n = 0;

    if (list == NULL || failures == NULL || details == NULL)
        return NULL;
    for (size_t row = 0; row < r->n; row++) {
        if (r->failed[row] == NULL)
            continue;
        parley__v1__env_failure__init(&failures[n]);
        error_details_fill(&details[n], r->failed[row]);
        failures[n].index = r->indices != NULL ? r->indices[row] : (uint32_t)row;
        failures[n].error = &details[n];
        list[n] = &failures[n];
        n++;
    }
    return list;
}

/* A tensor of [n], or of [n][n_each] if that is not 0. */
static struct tensor_view env_view(const char *name, enum tensor_type type, size_t n, size_t n_each,
                                   const void *data)
{
    struct tensor_view t = {.name = name,
                            .type = type,
                            .n_dims = n_each > 0 ? 2 : 1,
                            .dims = {(int64_t)n, (int64_t)n_each},
                            .data = data};

    t.size_bytes = n * (n_each > 0 ? n_each : 1) * tensor_type_size(type);
    return t;
}

/* What the environments of a request say, in the order of its rows; NULL: no memory. */
static Parley__V1__EnvInfo **env_infos(const struct vector_request *r, struct arena *arena)
{
    Parley__V1__EnvInfo **list = arena_alloc(arena, r->n_infos + 1, sizeof(list[0]));
    Parley__V1__EnvInfo *infos = arena_alloc(arena, r->n_infos + 1, sizeof(infos[0]));
    size_t n = 0;

    if (list == NULL || infos == NULL)
        return NULL;
    for (size_t row = 0; r->n_infos > 0 && row < r->n; row++) {
        if (r->infos[row] == NULL)
            continue;
        parley__v1__env_info__init(&infos[n]);
        infos[n].index = r->indices != NULL ? r->indices[row] : (uint32_t)row;
        infos[n].json = (char *)r->infos[row]; /* only read */
        list[n] = &infos[n];
        n++;
    }
    return list;
}

static void env_reply_reset(struct env_call *e, Parley__V1__EnvFailure **failures,
                            Parley__V1__EnvInfo **infos)
{
    Parley__V1__EnvResetResponse response = PARLEY__V1__ENV_RESET_RESPONSE__INIT;
    const struct vector_request *r = &e->request;
    const struct tensor_view seen =
        env_view("observation", TENSOR_F32, r->n, e->spaces.n_observation, r->observation);
    Parley__V1__Tensor observation;

    wire_tensor(&observation, &seen);
    response.observation = &observation;
    response.failures = failures;
    response.n_failures = r->n_failed;
    response.infos = infos;
    response.n_infos = r->n_infos;
    call_reply(e->call, &response.base);
}

static void env_reply_step(struct env_call *e, Parley__V1__EnvFailure **failures,
                           Parley__V1__EnvInfo **infos)
{
    Parley__V1__EnvStepResponse response = PARLEY__V1__ENV_STEP_RESPONSE__INIT;
    const struct vector_request *r = &e->request;
    const struct tensor_view views[] = {
        env_view("observation", TENSOR_F32, r->n, e->spaces.n_observation, r->observation),
        env_view("reward", TENSOR_F32, r->n, 0, r->reward),
        env_view("terminated", TENSOR_BOOL, r->n, 0, r->terminated),
        env_view("truncated", TENSOR_BOOL, r->n, 0, r->truncated),
    };
    Parley__V1__Tensor tensors[4];

    for (size_t i = 0; i < 4; i++)
        wire_tensor(&tensors[i], &views[i]);
    response.observation = &tensors[0];
    response.reward = &tensors[1];
    response.terminated = &tensors[2];
    response.truncated = &tensors[3];
    response.failures = failures;
    response.n_failures = r->n_failed;
    response.infos = infos;
    response.n_infos = r->n_infos;
    call_reply(e->call, &response.base);
}

static void env_reply(struct env_call *e)
{
    Parley__V1__EnvFailure **failures = env_failures(&e->request, call_arena(e->call));
    Parley__V1__EnvInfo **infos = env_infos(&e->request, call_arena(e->call));
    struct error err;

    if (failures == NULL || infos == NULL) {
        (void)error_no_memory(&err, e->request.n_failed * sizeof(failures[0]), "failures");
        call_finish(e->call, &err);
    } else if (e->request.is_reset) {
        env_reply_reset(e, failures, infos);
    } else {
        env_reply_step(e, failures, infos);
    }
}

static void on_env_done(struct vector_request *r)
{
    env_reply(container_of(r, struct env_call, request));
}

static void on_env_close(struct call *call, void *state, enum status why)
{
    struct env_call *e = state;

    vector_request_leave(&e->request);
}

/* --- requests --- */

static void env_ask(struct env_call *e, struct vector *v)
{
    static const struct call_handler handler = {.on_close = on_env_close};
    struct error err;

    e->spaces = v->spaces;
    e->request.done = on_env_done;
    if (vectors_ask(v, &e->request, call_arena(e->call), &err) != STATUS_OK)
        call_finish(e->call, &err);
    else if (e->request.is_done)
        env_reply(e);
    else
        call_set_handler(e->call, &handler, e);
}

/* NULL: the call has ended. */
static struct env_call *env_call_make(struct call *call, struct vector **out, uint64_t handle)
{
    struct env_call *e = arena_alloc(call_arena(call), 1, sizeof(*e));
    struct error err;
    enum status rc;

    if (e == NULL)
        rc = error_no_memory(&err, sizeof(*e), "a request");
    else
        rc = env_find(out, call, handle, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return NULL;
    }
    e->call = call;
    return e;
}

static void env_reset(struct call *call, const Parley__V1__EnvResetRequest *m)
{
    struct vector *v;
    struct env_call *e = env_call_make(call, &v, m->handle);
    struct error err;
    size_t n;

    if (e == NULL)
        return;
    n = m->n_indices > 0 ? m->n_indices : v->n;
    if (m->n_seeds > 0 && m->n_seeds != n) {
        (void)error_field(&err, "seeds", "has %zu, %zu environments are reset", m->n_seeds, n);
        call_finish(call, &err);
        return;
    }
    e->request = (struct vector_request){
        .is_reset = true,
        .n = m->n_indices,
        .indices = m->n_indices > 0 ? m->indices : NULL,
        .seeds = m->n_seeds > 0 ? m->seeds : NULL,
    };
    env_ask(e, v);
}

static enum status env_take_action(struct vector_request *r, const struct vector *v,
                                   Parley__V1__Tensor *m, size_t n, struct arena *arena,
                                   struct error *err)
{
    size_t n_numbers = v->spaces.n_action_numbers;
    const int64_t shape[2] = {(int64_t)n, (int64_t)n_numbers};
    struct tensor_view action;

    if (environment_wire_tensor(&action, m, "action", arena, err) != STATUS_OK)
        return err->status;
    if (tensor_expect(&action, n_numbers > 0 ? TENSOR_F32 : TENSOR_I64, shape,
                      n_numbers > 0 ? 2 : 1, err) != STATUS_OK)
        return error_name_field(err, "action");
    if (n_numbers > 0)
        r->action_numbers = action.data;
    else
        r->choices = action.data;
    return STATUS_OK;
}

static void env_step(struct call *call, const Parley__V1__EnvStepRequest *m)
{
    struct vector *v;
    struct env_call *e = env_call_make(call, &v, m->handle);
    struct error err;

    if (e == NULL)
        return;
    e->request = (struct vector_request){
        .resets_ended = m->auto_reset != 0,
        .n = m->n_indices,
        .indices = m->n_indices > 0 ? m->indices : NULL,
    };
    if (env_take_action(&e->request, v, m->action, m->n_indices > 0 ? m->n_indices : v->n,
                        call_arena(call), &err) != STATUS_OK)
        call_finish(call, &err);
    else
        env_ask(e, v);
}

#define ENV_SERVICE_METHODS(METHOD)                                                   \
    METHOD(ANSWER, KEY, "Env/Open", env_open_request, env_open_response, env_open)    \
    METHOD(UNARY, KEY, "Env/Reset", env_reset_request, env_reset_response, env_reset) \
    METHOD(UNARY, KEY, "Env/Step", env_step_request, env_step_response, env_step)     \
    METHOD(ANSWER, KEY, "Env/Close", env_close_request, env_close_response, env_close)

PARLEY_TABLE(env_service_methods, ENV_SERVICE_METHODS)
