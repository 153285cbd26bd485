/* parley.v1.Agents, Attach: the stream of a worker that computes an agent, or hosts environments.
 * An offer of an agent is accepted once the model of its name is loaded. */
#include <stdlib.h>

#include "base/log.h"
#include "parley/v1/agents.pb-c.h"
#include "server/api/parley/agents_wire.h"
#include "server/api/parley/attach_stream.h"
#include "server/api/parley/environment_wire.h"
#include "server/api/parley/methods.h"
#include "server/environment/host.h"
#include "server/environment/vectors.h"
#include "server/model/attached.h"
#include "server/server.h"

enum { ORDER_MAX_BYTES = 64 << 20 }; /* of a step's message with all its pointers */

struct agents_call {
    struct attach_stream stream;
    struct attached_worker worker;
    struct environment_host host; /* open if it hosts environments instead of computing an agent */
};

static struct agents_call *agents_call_of(const struct attach_stream *s)
{
    return container_of(s, struct agents_call, stream);
}

static void on_agents_joined(struct attached_worker *w)
{
    attach_stream_accept(&container_of(w, struct agents_call, worker)->stream);
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
        .described = e->spaces[0] != '\0' ? e->spaces : NULL,
    };

    if (environment_host_open(&a->host, call_server(a->stream.call)->vectors, m->name, &spaces,
                              e->max_instances, err) != STATUS_OK)
        return err->status;
    a->worker.remote.peer.must_speak = false; /* its offer has come */
    a->stream.what = "environment";
    a->stream.name = a->host.name;
    log_info("attached", "environment=%s", a->host.name);
    attach_stream_accept(&a->stream);
    return STATUS_OK;
}

static enum status agents_take_offer(struct attach_stream *s, const ProtobufCMessage *m,
                                     struct error *err)
{
    const Parley__V1__AgentsAttachRequest *request = (const Parley__V1__AgentsAttachRequest *)m;
    struct agents_call *a = agents_call_of(s);
    struct remote_offer offer;

    if (!a->worker.remote.peer.must_speak)
        return error_field(err, "offer", "is not accepted yet, nothing may follow it before");
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

static enum status agents_take(struct attach_stream *s, const ProtobufCMessage *m,
                               struct arena *arena, struct error *err)
{
    const Parley__V1__AgentsAttachRequest *request = (const Parley__V1__AgentsAttachRequest *)m;
    struct agents_call *a = agents_call_of(s);
    struct host_answer answer;

    if (peer_is_open(&a->host.peer)) {
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

/* --- what it gets --- */

static void agents_write_accepted(struct attach_stream *s)
{
    Parley__V1__AgentsAttachResponse response = PARLEY__V1__AGENTS_ATTACH_RESPONSE__INIT;
    Parley__V1__AgentAccepted accepted = PARLEY__V1__AGENT_ACCEPTED__INIT;

    accepted.max_piece_bytes = REMOTE_MAX_PIECE_BYTES;
    accepted.max_state_bytes = REMOTE_MAX_STATE_BYTES;
    accepted.silence_ms = (uint32_t)(agents_call_of(s)->worker.remote.peer.all->silence_us / 1000);
    response.what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ACCEPTED;
    response.accepted = &accepted;
    call_write(s->call, &response.base, false);
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
        call_write(a->stream.call, &response.base, false); /* the next order may be recalled */
        remote_worker_taken(w);
    } else {
        attach_stream_finish(&a->stream, &err);
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
        call_write(a->stream.call, &response.base, false);
        environment_host_taken(&a->host);
    } else {
        attach_stream_finish(&a->stream, &err);
    }
    arena_deinit(&arena);
}

static void agents_write_orders(struct attach_stream *s)
{
    struct agents_call *a = agents_call_of(s);

    if (peer_is_open(&a->host.peer))
        agents_write_host_order(a);
    else
        agents_write_order(a);
}

static void agents_detach(struct attach_stream *s)
{
    struct agents_call *a = agents_call_of(s);

    attached_close(&a->worker);
    environment_host_close(&a->host);
}

static void agents_attach(struct call *call)
{
    static const struct attach_stream_kind kind = {.offer = agents_take_offer,
                                                   .take = agents_take,
                                                   .write_accepted = agents_write_accepted,
                                                   .write_orders = agents_write_orders,
                                                   .detach = agents_detach,
                                                   .release = agents_detach};
    struct server *server = call_server(call);
    struct agents_call *a = call_state(call, sizeof(*a));
    struct error err;

    if (a == NULL)
        return;
    a->worker.principal = call_principal(call)->id;
    a->worker.joined = on_agents_joined;
    a->stream.what = "model";
    a->stream.name = a->worker.name;
    attach_stream_adopt(&a->stream, &a->worker.remote.peer);
    attach_stream_adopt(&a->stream, &a->host.peer);
    if (attached_open(&a->worker, server->attached, &err) != STATUS_OK) {
        free(a);
        call_finish(call, &err);
        return;
    }
    attach_stream_begin(&a->stream, call, &kind);
}

#define AGENTS_SERVICE_METHODS(METHOD)                                                   \
    METHOD(BIDI, ATTACH, "Agents/Attach", agents_attach_request, agents_attach_response, \
           agents_attach)

PARLEY_TABLE(agents_service_methods, AGENTS_SERVICE_METHODS)
