/* parley.v1.Agents, Attach: a worker's stream. It sends its offer first, which is accepted once the
 * model of its name is loaded; then it gets orders and sends answers. The end of the stream
 * detaches it; so does a message that is wrong, with one sentence. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "parley/v1/agents.pb-c.h"
#include "server/api/parley/agents_wire.h"
#include "server/api/parley/environment_wire.h"
#include "server/api/services.h"
#include "server/environment/vectors.h"
#include "server/model/attached.h"
#include "server/server.h"

enum { ORDER_MAX_BYTES = 64 << 20 }; /* of a step's message with all its pointers */

struct agents_call {
    struct call *call;
    struct attached_worker worker;
    struct environment_host host; /* open where is_hosting */
    bool is_hosting;              /* environments, instead of computing an agent */
    bool is_accepted_due, is_joined, is_finished;
};

static void agents_finish(struct agents_call *a, const struct error *err)
{
    attached_close(&a->worker);
    environment_host_close(&a->host);
    if (a->is_finished)
        return;
    a->is_finished = true;
    if (err != NULL && err->status != STATUS_UNAVAILABLE)
        log_warn("worker", "%s=%s error=\"%s\"", a->is_hosting ? "environment" : "model",
                 a->is_hosting ? a->host.name : a->worker.name, err->text);
    call_finish(a->call, err);
}

static void on_agents_notify(struct peer *p)
{
    const struct agents_call *a = container_of(p, struct agents_call, worker.remote.peer);

    if (!a->is_finished)
        call_notify(a->call);
}

static void on_agents_joined(struct attached_worker *w)
{
    struct agents_call *a = container_of(w, struct agents_call, worker);

    a->is_joined = a->is_accepted_due = true;
    call_notify(a->call);
}

static void on_agents_ended(struct peer *p, const struct error *err)
{
    agents_finish(container_of(p, struct agents_call, worker.remote.peer), err);
}

static void on_host_notify(struct peer *p)
{
    const struct agents_call *a = container_of(p, struct agents_call, host.peer);

    if (!a->is_finished)
        call_notify(a->call);
}

static void on_host_ended(struct peer *p, const struct error *err)
{
    agents_finish(container_of(p, struct agents_call, host.peer), err);
}

/* --- what the worker sends --- */

static enum status agents_take_environment(struct agents_call *a, const Parley__V1__AgentOffer *m,
                                           struct error *err)
{
    const Parley__V1__AgentEnvironment *e = m->environment;
    const struct environment_spaces spaces = {
        .n_observation = e->observations,
        .n_actions = e->actions,
        .n_action_numbers = e->action_numbers,
    };

    if (environment_host_open(&a->host, call_server(a->call)->vectors, m->name, &spaces,
                              e->max_instances, err) != STATUS_OK)
        return err->status;
    a->worker.remote.peer.must_speak = false; /* its offer has come */
    a->is_hosting = a->is_joined = a->is_accepted_due = true;
    log_info("attached", "environment=%s", a->host.name);
    call_notify(a->call);
    return STATUS_OK;
}

static enum status agents_take_offer(struct agents_call *a,
                                     const Parley__V1__AgentsAttachRequest *request,
                                     struct error *err)
{
    struct remote_offer offer;

    if (request->what_case != PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_OFFER)
        return error_field(err, "offer", "is missing, it must be sent first");
    if (request->offer->environment != NULL)
        return agents_take_environment(a, request->offer, err);
    if (agents_wire_offer(&offer, request->offer, err) != STATUS_OK)
        return err->status;
    if (attached_offer(&a->worker, request->offer->name, &offer, err) != STATUS_OK)
        return err->status;
    return STATUS_OK;
}

static enum status agents_take_result(struct agents_call *a, const Parley__V1__AgentStepResult *m,
                                      struct arena *arena, struct error *err)
{
    struct remote_answer *answers;

    if (agents_wire_result(&answers, m, arena, err) != STATUS_OK)
        return err->status;
    return remote_worker_answer(&a->worker.remote, m->step, answers, m->n_rows, err);
}

static enum status agents_take(struct agents_call *a,
                               const Parley__V1__AgentsAttachRequest *request, struct arena *arena,
                               struct error *err)
{
    struct host_answer answer;

    if (a->is_hosting) {
        if (request->what_case != PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_ENV_RESULT)
            return error_field(err, "env_result", "is missing");
        if (environment_wire_answer(&answer, request->env_result, arena, err) != STATUS_OK)
            return err->status;
        return environment_host_answer(&a->host, &answer, err);
    }
    switch (request->what_case) {
    case PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_RESULT:
        return agents_take_result(a, request->result, arena, err);
    case PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_STATE:
        return remote_worker_state(&a->worker.remote, request->state->clone,
                                   request->state->state.data, request->state->state.len, err);
    default:
        return error_field(err, "result", "is missing, and so is state; an offer comes once");
    }
}

static void on_agents_message(struct call *call, void *state, const ProtobufCMessage *message,
                              struct arena *arena)
{
    struct agents_call *a = state;
    struct error err;
    enum status rc;

    if (a->is_finished)
        return;
    if (message == NULL) {
        agents_finish(a, NULL);
        return;
    }
    if (a->is_joined)
        rc = agents_take(a, (const Parley__V1__AgentsAttachRequest *)message, arena, &err);
    else if (!a->worker.remote.peer.must_speak)
        rc = error_field(&err, "offer", "is not accepted yet, nothing may follow it before");
    else
        rc = agents_take_offer(a, (const Parley__V1__AgentsAttachRequest *)message, &err);
    if (rc != STATUS_OK)
        agents_finish(a, &err);
    else if (!a->is_finished)
        call_read(call);
}

/* --- what it gets --- */

static void agents_write_accepted(struct agents_call *a)
{
    Parley__V1__AgentsAttachResponse response = PARLEY__V1__AGENTS_ATTACH_RESPONSE__INIT;
    Parley__V1__AgentAccepted accepted = PARLEY__V1__AGENT_ACCEPTED__INIT;

    accepted.max_piece_bytes = REMOTE_MAX_PIECE_BYTES;
    accepted.max_state_bytes = REMOTE_MAX_STATE_BYTES;
    accepted.silence_ms = (uint32_t)(a->worker.remote.peer.all->silence_us / 1000);
    response.what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ACCEPTED;
    response.accepted = &accepted;
    call_write(a->call, &response.base, false);
}

static void agents_write_order(struct agents_call *a)
{
    Parley__V1__AgentsAttachResponse response = PARLEY__V1__AGENTS_ATTACH_RESPONSE__INIT;
    struct remote_worker *w = &a->worker.remote;
    const struct remote_order *order = remote_worker_order(w);
    struct arena arena;
    struct error err;

    if (order == NULL)
        return;
    arena_init(&arena, ORDER_MAX_BYTES);
    if (agents_wire_order(&response, w, order, &arena, &err) == STATUS_OK) {
        call_write(a->call, &response.base, false); /* the next order may be recalled */
        remote_worker_taken(w);
    } else {
        agents_finish(a, &err);
    }
    arena_deinit(&arena);
}

static void agents_write_host_order(struct agents_call *a)
{
    Parley__V1__AgentsAttachResponse response = PARLEY__V1__AGENTS_ATTACH_RESPONSE__INIT;
    const struct host_order *order = environment_host_order(&a->host);
    struct arena arena;
    struct error err;

    if (order == NULL)
        return;
    arena_init(&arena, ORDER_MAX_BYTES);
    if (environment_wire_order(&response, &a->host, order, &arena, &err) == STATUS_OK) {
        call_write(a->call, &response.base, false);
        environment_host_taken(&a->host);
    } else {
        agents_finish(a, &err);
    }
    arena_deinit(&arena);
}

static void on_agents_write_ready(struct call *call, void *state)
{
    struct agents_call *a = state;

    (void)call;
    if (a->is_finished || !a->is_joined)
        return;
    if (a->is_accepted_due) {
        a->is_accepted_due = false;
        agents_write_accepted(a);
    } else if (a->is_hosting) {
        agents_write_host_order(a);
    } else {
        agents_write_order(a);
    }
}

static void on_agents_close(struct call *call, void *state, enum status why)
{
    struct agents_call *a = state;

    (void)call;
    (void)why;
    a->is_finished = true;
    attached_close(&a->worker);
    environment_host_close(&a->host);
    free(a);
}

static void agents_attach(struct call *call, const ProtobufCMessage *request, struct server *server)
{
    /* Turns in flight need it while the server drains. */
    static const struct call_handler handler = {.on_write_ready = on_agents_write_ready,
                                                .message = on_agents_message,
                                                .on_close = on_agents_close,
                                                .is_unawaited = true};
    struct agents_call *a = call_state(call, sizeof(*a));
    struct error err;

    (void)request;
    if (a == NULL)
        return;
    a->call = call;
    a->worker.principal = call_principal(call)->id;
    a->worker.remote.peer.notify = on_agents_notify;
    a->worker.remote.peer.ended = on_agents_ended;
    a->worker.joined = on_agents_joined;
    a->host.peer.notify = on_host_notify;
    a->host.peer.ended = on_host_ended;
    if (attached_open(&a->worker, server->attached, &err) != STATUS_OK) {
        free(a);
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, a);
    call_read(call);
}

static const struct rpc rows[] = {
    {"/parley.v1.Agents/Attach", RPC_BIDI, &parley__v1__agents_attach_request__descriptor,
     &parley__v1__agents_attach_response__descriptor, agents_attach, ACCESS_ATTACH},
};

const struct rpc_table agents_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
