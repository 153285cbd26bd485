/* parley.v1.Act: Configure, Step and Stream. A step's answer is encoded when its batch is back; on
 * a stream the shared reply waits until the transport is write-ready. A stream is not read while
 * STREAM_MAX_STEPS of its steps are unanswered. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"
#include "parley/v1/act.pb-c.h"
#include "server/act/mode.h"
#include "server/act/session.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire.h"
#include "server/api/parley/wire_tensor.h"
#include "server/call/error_details.h"
#include "server/call/multiplex.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

enum { STREAM_MAX_STEPS = 1024 };

static const enum act_mode act_modes[] = {
    [PARLEY__V1__ACT_MODE__ACT_MODE_UNSPECIFIED] = ACT_AUTO,
    [PARLEY__V1__ACT_MODE__ACT_MODE_AUTO] = ACT_AUTO,
    [PARLEY__V1__ACT_MODE__ACT_MODE_NONE] = ACT_NONE,
    [PARLEY__V1__ACT_MODE__ACT_MODE_LOCKSTEP] = ACT_LOCKSTEP,
    [PARLEY__V1__ACT_MODE__ACT_MODE_DYNAMIC] = ACT_DYNAMIC,
};

static enum status act_check_enums(const Parley__V1__ActConfigureRequest *r, struct error *err)
{
    if ((unsigned)r->mode >= sizeof(act_modes) / sizeof(act_modes[0]))
        return error_field(err, "mode", "is %d, which is not a mode", (int)r->mode);
    if ((unsigned)r->on_miss > PARLEY__V1__ACT_ON_MISS__ACT_ON_MISS_PARTIAL)
        return error_field(err, "on_miss", "is %d, which is not a value of the enum",
                           (int)r->on_miss);
    return STATUS_OK;
}

static enum status configure(struct call *call, const Parley__V1__ActConfigureRequest *r,
                             Parley__V1__ActConfigureResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    struct act_config config = {
        .n = r->n,
        .timeout_ms = r->timeout_ms,
        .is_partial = r->on_miss == PARLEY__V1__ACT_ON_MISS__ACT_ON_MISS_PARTIAL,
        .min = r->min,
        .max = r->max,
        .delay_us = r->delay_us,
    };
    struct model *m;
    enum status rc = models_get(&m, server->models, r->model, err);

    if (rc == STATUS_OK)
        rc = act_check_enums(r, err);
    if (rc == STATUS_OK) {
        config.mode = act_modes[r->mode];
        rc = act_configure(&server->sessions->modes, m, &config, err);
    }
    if (rc != STATUS_OK)
        return rc;
    response->model = m->name;
    response->mode = r->mode == PARLEY__V1__ACT_MODE__ACT_MODE_UNSPECIFIED
                         ? PARLEY__V1__ACT_MODE__ACT_MODE_AUTO
                         : r->mode;
    return STATUS_OK;
}

/* A step's answer as a message. */
struct wire_step {
    Parley__V1__ActStepResponse message;
    Parley__V1__Tensor tensors[STEP_MAX_TENSORS], *list[STEP_MAX_TENSORS];
};

static void wire_step(struct wire_step *out, const struct step_reply *reply)
{
    assert(reply->n_tensors <= STEP_MAX_TENSORS);
    parley__v1__act_step_response__init(&out->message);
    for (size_t i = 0; i < reply->n_tensors; i++) {
        wire_tensor(&out->tensors[i], &reply->tensors[i]);
        out->list[i] = &out->tensors[i];
    }
    out->message.output = out->list;
    out->message.n_output = reply->n_tensors;
    out->message.seq = reply->seq;
    out->message.params_version = reply->params_version;
    out->message.batch_size = reply->batch_rows;
    out->message.queue_us = reply->queue_us;
}

static enum status act_service_begin_step(const struct call *call,
                                          const Parley__V1__ActStepRequest *from,
                                          uint64_t deadline_us, struct arena *arena,
                                          struct step_wait *w, struct step_reply **ret_stored,
                                          struct error *err)
{
    struct server *server = call_server(call);
    struct step_request r = {
        .principal = call_principal(call)->id,
        .env_id = from->env_id,
        .run_id = from->run_id,
        .seq = from->seq,
        .n_observation = from->n_observation,
        .reward = from->reward,
        .done = from->done != 0,
        .row = from->row,
        .deadline_us = deadline_us,
    };
    enum status rc;

    models_request(server->models, from->model);
    rc = models_get(&r.model, server->models, from->model, err);

    if (rc == STATUS_OK)
        rc = wire_tensors(&r.observation, from->observation, from->n_observation, STEP_MAX_TENSORS,
                          "observation", arena, err);
    if (rc == STATUS_OK)
        rc = sessions_step(server->sessions, &r, arena, w, ret_stored, err);
    return rc;
}

/* --- Step --- */

struct step_call {
    struct step_wait wait;
    struct call *call;
};

static void reply_step(struct call *call, const struct step_reply *reply)
{
    struct wire_step w;

    wire_step(&w, reply);
    call_reply(call, &w.message.base);
}

static void act_service_step_done(struct step_wait *w, struct step_reply *reply,
                                  const struct error *err)
{
    struct step_call *s = container_of(w, struct step_call, wait);

    if (reply != NULL)
        reply_step(s->call, reply);
    else
        call_finish(s->call, err);
}

static void step_on_close(struct call *call, void *state, enum status why)
{
    struct step_call *s = state;

    step_wait_leave(&s->wait);
    free(s);
}

static void act_service_start_step(struct call *call, const Parley__V1__ActStepRequest *request)
{
    static const struct call_handler handler = {.on_close = step_on_close};
    struct step_call *s = try_alloc(1, sizeof(*s)); /* the session takes the call's arena */
    struct step_reply *stored;
    struct error err;
    enum status rc;

    if (s == NULL) {
        (void)error_no_memory(&err, sizeof(*s), "a step");
        call_finish(call, &err);
        return;
    }
    s->call = call;
    s->wait.done = act_service_step_done;
    rc = act_service_begin_step(call, request, call_deadline_us(call), call_arena(call), &s->wait,
                                &stored, &err);
    if (rc == STATUS_OK && stored == NULL) {
        call_set_handler(call, &handler, s);
        return;
    }
    free(s);
    if (rc != STATUS_OK)
        call_finish(call, &err);
    else
        reply_step(call, stored);
}

/* --- Stream --- */

struct step_item {
    struct multiplex_item base;
    struct step_wait wait;
    uint64_t tag, seq;
    struct step_reply *reply; /* NULL: it failed, with err */
    struct error err;
};

static struct step_item *act_service_stream_item_of(struct multiplex_item *base)
{
    return container_of(base, struct step_item, base);
}

static void stream_done(struct step_wait *w, struct step_reply *reply, const struct error *err)
{
    struct step_item *item = container_of(w, struct step_item, wait);

    item->reply = reply == NULL ? NULL : step_reply_ref(reply);
    item->err = *err;
    multiplex_notify(&item->base);
}

static void act_service_stream_begin(struct multiplex_item *base, const ProtobufCMessage *message,
                                     struct arena *arena)
{
    const Parley__V1__ActStepRequest *request = (const Parley__V1__ActStepRequest *)message;
    struct step_item *item = act_service_stream_item_of(base);
    struct call *call = multiplex_call(base);
    struct step_reply *stored;
    enum status rc;

    item->wait.done = stream_done;
    item->tag = request->tag;
    item->seq = request->seq;
    rc = act_service_begin_step(call, request, call_deadline_us(call), arena, &item->wait, &stored,
                                &item->err);
    if (rc == STATUS_OK && stored == NULL)
        return;
    if (rc == STATUS_OK)
        item->reply = step_reply_ref(stored);
    multiplex_notify(base);
}

static enum multiplex_written act_service_stream_write(struct multiplex_item *base)
{
    struct step_item *item = act_service_stream_item_of(base);
    Parley__V1__ErrorDetail detail;
    struct wire_step w;

    if (item->reply != NULL) {
        wire_step(&w, item->reply);
    } else {
        parley__v1__act_step_response__init(&w.message);
        w.message.seq = item->seq;
        error_details_fill(&detail, &item->err);
        w.message.error = &detail;
    }
    w.message.tag = item->tag;
    multiplex_write(base, &w.message.base, false);
    return WROTE_LAST;
}

static void act_service_stream_end(struct multiplex_item *base, enum status why)
{
    struct step_item *item = act_service_stream_item_of(base);

    step_wait_leave(&item->wait);
    step_reply_unref(item->reply);
}

static void start_stream(struct call *call)
{
    static const struct multiplex_type type = {
        .item_size = sizeof(struct step_item),
        .max_items = STREAM_MAX_STEPS,
        .item_name = "a step",
        .begin = act_service_stream_begin,
        .write = act_service_stream_write,
        .end = act_service_stream_end,
    };

    multiplex_start(call, &type);
}

#define ACT_SERVICE_METHODS(METHOD)                                                             \
    METHOD(ANSWER, ADMIN, "Act/Configure", act_configure_request, act_configure_response,       \
           configure)                                                                           \
    METHOD(UNARY, KEY, "Act/Step", act_step_request, act_step_response, act_service_start_step) \
    METHOD(BIDI, KEY, "Act/Stream", act_step_request, act_step_response, start_stream)

PARLEY_TABLE(act_service_methods, ACT_SERVICE_METHODS)
