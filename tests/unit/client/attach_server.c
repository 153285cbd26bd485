#include "tests/unit/client/attach_server.h"

#include <assert.h>
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

struct server world;
struct rig rig;

void note(char *text, size_t size, const char *what)
{
    size_t len = strlen(text);

    (void)snprintf(text + len, size - len, "%s; ", what);
}

static void hear_offer(struct server *s, const Parley__V1__AgentOffer *o)
{
    char line[200], can[40] = "";

    for (size_t i = 0; i < o->n_capabilities; i++)
        (void)snprintf(can + strlen(can), sizeof(can) - strlen(can), " %d",
                       (int)o->capabilities[i]);
    (void)snprintf(line, sizeof(line), "offer %s %s %u %u %u %u %d%s", o->name, o->version,
                   o->max_rows, o->slots, o->save_every, o->max_cost, (int)o->cost_unit, can);
    note(s->heard, sizeof(s->heard), line);
    if (o->environment != NULL) {
        (void)snprintf(line, sizeof(line), "environment %u %u %u %u", o->environment->observations,
                       o->environment->actions, o->environment->action_numbers,
                       o->environment->max_instances);
        note(s->heard, sizeof(s->heard), line);
    }
    if (o->tensors != NULL) {
        (void)snprintf(line, sizeof(line), "tensors %u %u %u %d%d", o->tensors->observations,
                       o->tensors->actions, o->tensors->action_numbers, o->tensors->has_logp,
                       o->tensors->has_value);
        note(s->heard, sizeof(s->heard), line);
    }
}

static void hear_environments(struct server *s, const Parley__V1__AgentEnvResult *r)
{
    const Parley__V1__Tensor *const tensors[] = {r->observation, r->reward, r->terminated,
                                                 r->truncated};
    char line[300];

    (void)snprintf(line, sizeof(line), "result %d", (int)r->order);
    for (size_t i = 0; i < 4 && tensors[i] != NULL; i++) {
        const Parley__V1__Tensor *t = tensors[i];

        (void)snprintf(line + strlen(line), sizeof(line) - strlen(line), " %d:", (int)t->dtype);
        for (size_t k = 0; k < t->n_shape; k++)
            (void)snprintf(line + strlen(line), sizeof(line) - strlen(line), "[%d]",
                           (int)t->shape[k]);
        for (size_t at = 0; at < t->data.len; at += i < 2 ? sizeof(float) : 1) {
            float number = t->data.data[at];

            if (i < 2)
                memcpy(&number, t->data.data + at, sizeof(number));
            (void)snprintf(line + strlen(line), sizeof(line) - strlen(line), " %g", (double)number);
        }
    }
    note(s->heard, sizeof(s->heard), line);
    for (size_t i = 0; i < r->n_failures; i++) {
        (void)snprintf(line, sizeof(line), "%u failed: %s", r->failures[i]->place,
                       r->failures[i]->message);
        note(s->heard, sizeof(s->heard), line);
    }
}

static void hear_result(struct server *s, const Parley__V1__AgentStepResult *r)
{
    char line[300];

    for (size_t i = 0; i < r->n_rows; i++) {
        const Parley__V1__AgentRowResult *row = r->rows[i];

        (void)snprintf(line, sizeof(line), "%d.%u '%s' %d %d %u", (int)r->step, row->row, row->text,
                       (int)row->outcome, (int)row->finish_reason, row->prompt_tokens);
        note(s->heard, sizeof(s->heard), line);
        if (row->error != NULL) {
            (void)snprintf(line, sizeof(line), "error %u %s", row->error->code,
                           row->error->message);
            note(s->heard, sizeof(s->heard), line);
        }
        if (row->n_output > 0) {
            (void)snprintf(line, sizeof(line), "%s %d %zu %d", row->output[0]->name,
                           (int)row->output[0]->dtype, row->output[0]->data.len,
                           (int)row->params_version);
            note(s->heard, sizeof(s->heard), line);
        }
    }
}

static void attach_advance(struct call *call, struct server *s)
{
    struct error err;

    if (s->is_finished)
        return;
    if (s->n_sent < s->n_orders) {
        call_write(call, &s->orders[s->n_sent++].base, false);
    } else if (s->end != STATUS_OK && s->n_answers == s->n_awaited) {
        (void)error_set(&err, s->end, "model 'm' was unloaded");
        s->is_finished = true;
        call_finish(call, &err);
    }
}

static void attach_message(struct call *call, void *state, const ProtobufCMessage *m,
                           struct arena *arena)
{
    const Parley__V1__AgentsAttachRequest *request = (const Parley__V1__AgentsAttachRequest *)m;
    struct server *s = state;
    char line[100];

    if (m == NULL) {
        call_finish(call, NULL);
        return;
    }
    if (request->what_case == PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_OFFER) {
        hear_offer(s, request->offer);
        attach_advance(call, s);
    } else if (request->what_case == PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_STATE) {
        (void)snprintf(line, sizeof(line), "state %d %.*s", (int)request->state->clone,
                       (int)request->state->state.len, (const char *)request->state->state.data);
        note(s->heard, sizeof(s->heard), line);
        s->n_answers++;
    } else if (request->what_case == PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_ENV_RESULT) {
        hear_environments(s, request->env_result);
        s->n_answers++;
    } else {
        hear_result(s, request->result);
        s->n_answers++;
    }
    if (s->n_sent == s->n_orders && s->n_answers == s->n_awaited && s->n_awaited > 0)
        attach_advance(call, s);
    if (!s->is_finished)
        call_read(call);
}

static void attach_write_ready(struct call *call, void *state)
{
    struct server *s = state;

    if (s->n_sent > 0)
        attach_advance(call, s);
}

static void attach_close(struct call *call, void *state, enum status why)
{
}

static void fake_attach(struct call *call)
{
    static const struct call_handler handler = {
        .on_write_ready = attach_write_ready, .message = attach_message, .on_close = attach_close};
    struct server *server = call_server(call);
    struct error err;

    if (server->n_streams++ == 0 && server->end == STATUS_UNAVAILABLE) { /* it restarts */
        (void)error_set(&err, STATUS_UNAVAILABLE, "it is being stopped");
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, server);
    call_read(call);
}

void serve(void)
{
    static const struct call_method rpcs[] = {
        {"/parley.v1.Agents/Attach", CALL_BIDI, &parley__v1__agents_attach_request__descriptor,
         &parley__v1__agents_attach_response__descriptor, fake_attach, ACCESS_KEY},
    };
    static const struct call_table service = {rpcs, 1};
    static const struct call_table *const services[] = {&service};
    const struct port_config config = {.services = services, .n_services = 1, .server = &world};

    rig_start(&rig, &config);
    assert(rig.rc == STATUS_OK);
}

Parley__V1__AgentsAttachResponse *order(Parley__V1__AgentsAttachResponse__WhatCase kind,
                                        ProtobufCMessage *what)
{
    Parley__V1__AgentsAttachResponse *o = &world.orders[world.n_orders++];

    assert(world.n_orders <= MAX_ORDERS);
    parley__v1__agents_attach_response__init(o);
    o->what_case = kind;
    o->open = (Parley__V1__AgentCloneOpen *)what; /* all members of the union are pointers */
    return o;
}

void serve_with_faults(struct parley_call *(*start)(struct parley_channel *channel, void *arg),
                       bool (*answer)(struct parley_call *call), void *arg)
{
    struct parley_channel *channel;
    struct parley_call *call = NULL;
    bool is_sent = false;
    long n;

    serve();
    channel = parley_channel_open(rig.address);
    for (n = 0; call == NULL; n++) {
        fault_after = n;
        call = start(channel, arg);
        fault_after = -1;
    }
    ck_assert_int_gt(n, 1);
    for (n = 0; !is_sent && n < 20; n++) {
        fault_after = n;
        is_sent = answer(call);
        fault_after = -1;
    }
    ck_assert(is_sent ||
              n == 20); /* the server's thread may have met a fault, and ended the call */
    ck_assert_int_gt(n, 1);
    parley_call_cancel(call);
    parley_call_unref(call);
    parley_channel_close(channel);
    rig_stop(&rig);
}
