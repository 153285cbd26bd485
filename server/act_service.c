/* parley.v1.Act: Configure, Step and Stream. A step's answer is encoded when its batch is back; on
 * a stream it waits, shared, until the transport has room. A stream is read no further while
 * STREAM_MAX_STEPS of its steps are unanswered. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "parley/v1/act.pb-c.h"
#include "server/daemon.h"
#include "server/services.h"
#include "server/session.h"
#include "server/wire.h"
#include "server/wire_tensor.h"

enum { STREAM_MAX_STEPS = 1024 };

_Static_assert((int)PARLEY__V1__ACT_MODE__LOCKSTEP == (int)ACT_LOCKSTEP, "a cast maps");
_Static_assert((int)PARLEY__V1__ACT_MODE__DYNAMIC == (int)ACT_DYNAMIC, "a cast maps");

static void configure(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    const Parley__V1__ActConfigureRequest *r = (const Parley__V1__ActConfigureRequest *)message;
    Parley__V1__ActConfigureResponse response = PARLEY__V1__ACT_CONFIGURE_RESPONSE__INIT;
    const struct act_config config = {
        .mode = (enum act_mode)r->mode,
        .n = r->n,
        .timeout_ms = r->timeout_ms,
        .is_partial = r->on_miss == PARLEY__V1__ON_MISS__PARTIAL,
        .min = r->min,
        .max = r->max,
        .delay_us = r->delay_us,
    };
    struct model *m;
    struct error err;
    enum status rc = daemon_model(&m, d, r->model, &err);

    if (rc == STATUS_OK)
        rc = model_check_ready(m, &err);
    if (rc == STATUS_OK)
        rc = act_configure(m, &config, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    response.model = m->name;
    response.mode = r->mode;
    call_reply(call, &response.base);
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

static enum status begin_step(struct daemon *d, const Parley__V1__ActStepRequest *from,
                              uint64_t deadline_us, struct arena *arena, struct step_wait *w,
                              const struct step_reply **ret_stored, struct error *err)
{
    struct step_request r = {
        .env_id = from->env_id,
        .run_id = from->run_id,
        .seq = from->seq,
        .n_observation = from->n_observation,
        .reward = from->reward,
        .done = from->done != 0,
        .row = from->row,
        .deadline_us = deadline_us,
    };
    enum status rc = daemon_model(&r.model, d, from->model, err);

    if (rc == STATUS_OK)
        rc = wire_tensors(&r.observation, from->observation, from->n_observation, STEP_MAX_TENSORS,
                          "observation", arena, err);
    if (rc == STATUS_OK)
        rc = sessions_step(&d->sessions, &r, arena, w, ret_stored, err);
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

static void step_done(struct step_wait *w, struct step_reply *reply, const struct error *err)
{
    struct step_call *s = container_of(w, struct step_call, wait);

    if (reply != NULL)
        reply_step(s->call, reply);
    else
        call_finish(s->call, err);
}

static void step_gone(struct call *call, void *state, enum status why)
{
    struct step_call *s = state;

    (void)call;
    (void)why; /* a step whose deadline passed leaves its batch by itself, too */
    step_wait_leave(&s->wait);
    free(s);
}

static void start_step(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    static const struct call_handler handler = {.gone = step_gone};
    struct step_call *s = try_alloc(1, sizeof(*s)); /* the session takes the call's arena */
    const struct step_reply *stored;
    struct error err;
    enum status rc;

    if (s == NULL) {
        (void)error_no_memory(&err, sizeof(*s), "a step");
        call_finish(call, &err);
        return;
    }
    s->call = call;
    s->wait.done = step_done;
    rc = begin_step(d, (const Parley__V1__ActStepRequest *)message, call_deadline_us(call),
                    call_arena(call), &s->wait, &stored, &err);
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

struct stream {
    struct call *call;
    struct daemon *daemon;
    struct list items; /* all, in order of arrival */
    struct list ready; /* those that have their answer */
    size_t n_items;
    struct endless endless;
    bool has_read;       /* the next message is asked for */
    bool is_half_closed; /* by the client */
    bool is_draining;
    bool is_finished;
};

struct stream_item {
    struct link link, in_ready;
    struct stream *stream;
    struct step_wait wait;
    uint64_t tag, seq;
    struct step_reply *reply; /* NULL: it failed, with err */
    struct error err;
};

static void stream_item_free(struct stream_item *item)
{
    step_wait_leave(&item->wait);
    step_reply_unref(item->reply);
    if (link_is_on(&item->in_ready))
        list_remove(&item->in_ready);
    list_remove(&item->link);
    item->stream->n_items--;
    free(item);
}

static void stream_finish(struct stream *s, const struct error *err)
{
    s->is_finished = true;
    call_finish(s->call, err);
}

/* Asks for a further message, or ends the stream, as things stand. */
static void stream_go_on(struct stream *s)
{
    bool is_empty = s->n_items == 0;
    struct error err;

    if (s->is_finished)
        return;
    if (is_empty && s->is_half_closed) {
        stream_finish(s, NULL);
    } else if (is_empty && s->is_draining) {
        (void)error_set(&err, STATUS_UNAVAILABLE, "the server is stopping");
        stream_finish(s, &err);
    } else if (!s->is_half_closed && !s->has_read && s->n_items < STREAM_MAX_STEPS) {
        s->has_read = true;
        call_read(s->call);
    }
}

static void stream_drain(struct endless *l)
{
    struct stream *s = container_of(l, struct stream, endless);

    s->is_draining = true;
    stream_go_on(s);
}

static void stream_item_answer(struct stream_item *item)
{
    list_push(&item->stream->ready, &item->in_ready);
    if (!item->stream->is_finished)
        call_wake(item->stream->call);
}

static void stream_item_done(struct step_wait *w, struct step_reply *reply, const struct error *err)
{
    struct stream_item *item = container_of(w, struct stream_item, wait);

    item->reply = reply == NULL ? NULL : step_reply_ref(reply);
    item->err = *err;
    stream_item_answer(item);
}

static void stream_message(struct call *call, void *state, const ProtobufCMessage *message,
                           struct arena *arena)
{
    const Parley__V1__ActStepRequest *request = (const Parley__V1__ActStepRequest *)message;
    const struct step_reply *stored;
    struct stream *s = state;
    struct stream_item *item;
    struct error err;
    enum status rc;

    s->has_read = false;
    if (request == NULL) {
        s->is_half_closed = true;
        stream_go_on(s);
        return;
    }
    item = try_alloc(1, sizeof(*item));
    if (item == NULL) {
        (void)error_no_memory(&err, sizeof(*item), "a step");
        stream_finish(s, &err);
        return;
    }
    item->stream = s;
    item->wait.done = stream_item_done;
    item->tag = request->tag;
    item->seq = request->seq;
    list_push(&s->items, &item->link);
    s->n_items++;
    rc = begin_step(s->daemon, request, call_deadline_us(call), arena, &item->wait, &stored,
                    &item->err);
    if (rc == STATUS_OK && stored != NULL)
        item->reply = step_reply_ref((struct step_reply *)stored);
    if (rc != STATUS_OK || stored != NULL)
        stream_item_answer(item);
    stream_go_on(s);
}

static void stream_room(struct call *call, void *state)
{
    struct stream *s = state;
    struct link *first = s->is_finished ? NULL : list_first(&s->ready);
    Parley__V1__ErrorDetail detail;
    struct stream_item *item;
    struct wire_step w;

    if (first == NULL)
        return;
    item = container_of(first, struct stream_item, in_ready);
    if (item->reply != NULL) {
        wire_step(&w, item->reply);
    } else {
        parley__v1__act_step_response__init(&w.message);
        w.message.seq = item->seq;
        wire_error(&detail, &item->err);
        w.message.error = &detail;
    }
    w.message.tag = item->tag;
    call_write(call, &w.message.base, list_first(&s->ready) != list_last(&s->ready));
    stream_item_free(item);
    stream_go_on(s);
}

static void stream_gone(struct call *call, void *state, enum status why)
{
    struct stream *s = state;
    struct link *first;

    (void)call;
    (void)why;
    s->is_finished = true;
    while ((first = list_first(&s->items)) != NULL)
        stream_item_free(container_of(first, struct stream_item, link));
    endless_end(&s->endless);
    free(s);
}

static void start_stream(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    static const struct call_handler handler = {
        .room = stream_room,
        .message = stream_message,
        .gone = stream_gone,
    };
    struct stream *s = try_alloc(1, sizeof(*s));
    struct error err;

    (void)message;
    if (s == NULL) {
        (void)error_no_memory(&err, sizeof(*s), "a stream");
        call_finish(call, &err);
        return;
    }
    s->call = call;
    s->daemon = d;
    list_init(&s->items);
    list_init(&s->ready);
    call_set_handler(call, &handler, s);
    endless_begin(&s->endless, d, stream_drain);
    stream_go_on(s);
}

const struct rpc act_rpcs[N_ACT_RPCS] = {
    {"/parley.v1.Act/Configure", RPC_UNARY, &parley__v1__act_configure_request__descriptor,
     &parley__v1__act_configure_response__descriptor, configure},
    {"/parley.v1.Act/Step", RPC_UNARY, &parley__v1__act_step_request__descriptor,
     &parley__v1__act_step_response__descriptor, start_step},
    {"/parley.v1.Act/Stream", RPC_BIDI, &parley__v1__act_step_request__descriptor,
     &parley__v1__act_step_response__descriptor, start_stream},
};
