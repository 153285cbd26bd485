/* parley.v1.Work, Attach: the stream of a worker that computes functions. It gets tasks and sends
 * their results; large ones come and go in parts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "parley/v1/work.pb-c.h"
#include "server/api/parley/attach_stream.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/api/parley/work_wire.h"
#include "server/server.h"
#include "server/work/work.h"
#include "server/work/worker.h"

enum { WORK_MAX_TYPE_BYTES = 256 };

struct work_attach_call {
    struct attach_stream stream;
    struct work_worker worker;
    bool is_leaving;
    /* The end of an order that is sent in parts. */
    struct work_wire_rest rest;
    uint64_t rest_of;
    /* An answer that is not whole yet. */
    struct work_bytes bytes;
    uint64_t answers;     /* which task; 0: none */
    uint64_t skip_bytes;  /* of one for which there is no room: to come */
    struct error no_room; /* how it fails then */
};

static struct work_attach_call *work_attach_of(const struct attach_stream *s)
{
    return container_of(s, struct work_attach_call, stream);
}

static struct work_table *work_attach_table(const struct work_attach_call *a)
{
    return call_server(a->stream.call)->work;
}

/* --- what the worker sends --- */

static enum status work_attach_offer(struct attach_stream *s, const ProtobufCMessage *message,
                                     struct error *err)
{
    const Parley__V1__WorkAttachRequest *m = (const Parley__V1__WorkAttachRequest *)message;
    const struct principal *p = call_principal(s->call);
    struct work_attach_call *a = work_attach_of(s);
    struct work_offer offer;

    if (m->offer == NULL)
        return error_field(err, "offer", "is missing, it must be sent first");
    if (!m->offer->is_private && call_server(s->call)->access != NULL &&
        (p->roles & ACCESS_ROLE_ATTACH) == 0)
        return error_because(err, STATUS_DENIED, REASON_ROLE_MISSING, NULL,
                             "the key's principal lacks the role attach, which a worker for "
                             "others needs");
    offer = (struct work_offer){
        .name = m->offer->name,
        .principal = p->id,
        .is_private = m->offer->is_private != 0,
        .functions = (const char *const *)m->offer->functions,
        .n_functions = m->offer->n_functions,
        .room = m->offer->room,
        .n_at_once = m->offer->at_once,
    };
    if (work_worker_open(&a->worker, work_attach_table(a), &offer, err) != STATUS_OK)
        return err->status;
    attach_stream_accept(s);
    return STATUS_OK;
}

static enum status work_attach_find(struct work_task **out, const struct work_attach_call *a,
                                    uint64_t id, struct error *err)
{
    if (a->rest.left_bytes > 0 && a->rest_of == id)
        return error_field(err, "task", "is %016" PRIx64 ", which was not sent whole yet", id);
    return work_worker_find(out, &a->worker, id, err);
}

static enum status work_attach_exception(struct work_failure *out,
                                         const Parley__V1__WorkException *m, struct error *err)
{
    if (strlen(m->type) > WORK_MAX_TYPE_BYTES || strlen(m->message) > WORK_MAX_TRACE_BYTES ||
        strlen(m->trace) > WORK_MAX_TRACE_BYTES)
        return error_field(err, "exception",
                           "is larger than it may be (type %d bytes, message and trace %d)",
                           WORK_MAX_TYPE_BYTES, WORK_MAX_TRACE_BYTES);
    *out = (struct work_failure){
        .is_exception = true, .type = m->type, .message = m->message, .trace = m->trace};
    (void)error_set(&out->err, STATUS_UNKNOWN, "%s: %s", m->type, m->message);
    return STATUS_OK;
}

static enum status work_attach_answer(struct work_attach_call *a, const Parley__V1__WorkAnswer *m,
                                      struct error *err)
{
    struct work_failure failure;
    struct work_task *t;

    if (a->answers != 0)
        return error_field(err, "answers",
                           "has one behind an answer whose payload is not whole, which is last");
    if (work_attach_find(&t, a, m->task, err) != STATUS_OK)
        return err->status;
    if (m->exception != NULL && m->size_bytes != 0)
        return error_field(err, "size_bytes", "is set, an exception comes in one message");
    if (m->exception != NULL && work_attach_exception(&failure, m->exception, err) != STATUS_OK)
        return err->status;
    if (work_wire_begin(&a->bytes, work_attach_table(a), work_task_principal(t), &m->payload,
                        m->size_bytes, err) != STATUS_OK) {
        if (err->status != STATUS_EXHAUSTED)
            return err->status;
        failure = (struct work_failure){.err = *err}; /* not the worker's fault */
        (void)error_prefix(&failure.err, "the result has no room");
        if (m->size_bytes != 0) {
            a->answers = m->task;
            a->skip_bytes = m->size_bytes - m->payload.len;
            a->no_room = failure.err;
            return STATUS_OK;
        }
        work_worker_result(&a->worker, t, &a->bytes, &failure);
    } else if (work_bytes_is_whole(&a->bytes)) {
        work_worker_result(&a->worker, t, &a->bytes, m->exception == NULL ? NULL : &failure);
    } else {
        a->answers = m->task;
    }
    return STATUS_OK;
}

static enum status work_attach_rest(struct work_attach_call *a,
                                    const Parley__V1__WorkAttachRequest *m, struct error *err)
{
    struct work_failure failure = {0};
    struct work_task *t;
    bool is_skipped;

    if (a->answers == 0)
        return error_field(err, "rest", "belongs to no answer");
    is_skipped = a->skip_bytes > 0;
    if (!is_skipped && work_bytes_append(&a->bytes, m->rest.data, m->rest.len, err) != STATUS_OK)
        return err->status;
    if (is_skipped && m->rest.len > a->skip_bytes)
        return error_field(err, "rest", "has more than the bytes that were announced");
    a->skip_bytes -= is_skipped ? m->rest.len : 0;
    if (is_skipped ? a->skip_bytes > 0 : !work_bytes_is_whole(&a->bytes))
        return STATUS_OK;
    if (work_worker_find(&t, &a->worker, a->answers, err) != STATUS_OK)
        return err->status;
    a->answers = 0;
    failure.err = a->no_room;
    work_worker_result(&a->worker, t, &a->bytes, is_skipped ? &failure : NULL);
    return STATUS_OK;
}

static enum status work_attach_take(struct attach_stream *s, const ProtobufCMessage *message,
                                    struct arena *arena, struct error *err)
{
    const Parley__V1__WorkAttachRequest *m = (const Parley__V1__WorkAttachRequest *)message;
    struct work_attach_call *a = work_attach_of(s);
    struct work_task *t;

    if (m->offer != NULL)
        return error_field(err, "offer", "comes once");
    peer_heard(&a->worker.peer);
    if (m->rest.len > 0 && work_attach_rest(a, m, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < m->n_answers; i++)
        if (work_attach_answer(a, m->answers[i], err) != STATUS_OK)
            return err->status;
    if ((m->room != 0 || m->is_leaving) &&
        work_worker_set_room(&a->worker, m->is_leaving ? 0 : m->room, err) != STATUS_OK)
        return err->status;
    a->is_leaving = a->is_leaving || m->is_leaving;
    for (size_t i = 0; i < m->n_returned; i++) {
        if (work_attach_find(&t, a, m->returned[i], err) != STATUS_OK)
            return err->status;
        if (m->returned[i] == a->answers)
            return error_field(err, "returned", "has a task whose answer was begun");
        work_worker_return(&a->worker, t);
    }
    return STATUS_OK;
}

static void work_attach_half_close(struct attach_stream *s)
{
    struct work_attach_call *a = work_attach_of(s);

    if (a->is_leaving)
        a->worker.n_at_once = 0; /* what it has not answered it has not begun */
}

/* --- what it gets --- */

static void work_attach_write_accepted(struct attach_stream *s)
{
    Parley__V1__WorkAttachResponse response = PARLEY__V1__WORK_ATTACH_RESPONSE__INIT;
    Parley__V1__WorkAccepted accepted = PARLEY__V1__WORK_ACCEPTED__INIT;
    const struct work_table *work = call_server(s->call)->work;

    accepted.silence_ms = (uint32_t)(work->config.silence_us / 1000);
    accepted.max_payload_bytes = work->config.max_bytes / 4;
    response.accepted = &accepted;
    call_write(s->call, &response.base, false);
}

/* Orders and recalls in one message. They are encoded before the tasks are taken. */
static void work_attach_write_orders(struct attach_stream *s)
{
    struct work_attach_call *a = work_attach_of(s);
    Parley__V1__WorkAttachResponse response = PARLEY__V1__WORK_ATTACH_RESPONSE__INIT;
    Parley__V1__WorkOrder orders[WORK_WIRE_MAX_TASKS], *list[WORK_WIRE_MAX_TASKS];
    uint64_t recalled[WORK_WIRE_MAX_TASKS];
    size_t room_bytes = WORK_WIRE_PART_BYTES;
    struct work_task *t;

    if (a->rest.left_bytes > 0) {
        work_wire_rest(&response.rest, &a->rest);
        call_write(s->call, &response.base, false);
        return;
    }
    while (response.n_cancelled < WORK_WIRE_MAX_TASKS &&
           work_worker_recall(&a->worker, &recalled[response.n_cancelled]))
        response.n_cancelled++;
    while (response.n_orders < WORK_WIRE_MAX_TASKS && room_bytes > 0 && a->rest.left_bytes == 0 &&
           (t = work_worker_order(&a->worker)) != NULL) {
        Parley__V1__WorkOrder *o = &orders[response.n_orders];

        parley__v1__work_order__init(o);
        o->task = a->rest_of = t->by_id.hash;
        o->function = (char *)(uintptr_t)work_task_function(t);
        work_wire_payload(&o->payload, &o->size_bytes, &a->rest, &t->payload, &room_bytes);
        list[response.n_orders++] = o;
        work_worker_taken(&a->worker);
    }
    if (response.n_cancelled == 0 && response.n_orders == 0)
        return;
    response.cancelled = recalled;
    response.orders = list;
    call_write(s->call, &response.base, false);
}

static void work_attach_detach(struct attach_stream *s)
{
    work_worker_close(&work_attach_of(s)->worker);
}

static void work_attach_release(struct attach_stream *s)
{
    struct work_attach_call *a = work_attach_of(s);

    work_worker_close(&a->worker);
    work_bytes_free(&a->bytes, work_attach_table(a));
}

static void work_attach_start(struct call *call)
{
    static const struct attach_stream_kind kind = {.offer = work_attach_offer,
                                                   .take = work_attach_take,
                                                   .half_close = work_attach_half_close,
                                                   .write_accepted = work_attach_write_accepted,
                                                   .write_orders = work_attach_write_orders,
                                                   .detach = work_attach_detach,
                                                   .release = work_attach_release};
    struct work_attach_call *a = call_state(call, sizeof(*a));

    if (a == NULL)
        return;
    a->stream.what = "worker";
    a->stream.name = a->worker.name;
    attach_stream_adopt(&a->stream, &a->worker.peer);
    attach_stream_begin(&a->stream, call, &kind);
}

#define WORK_ATTACH_METHODS(METHOD) \
    METHOD(BIDI, KEY, "Work/Attach", work_attach_request, work_attach_response, work_attach_start)

#define PARLEY_PLACE JOURNAL_PLACE_WORK
PLACED_TABLE(work_attach_methods, WORK_ATTACH_METHODS)
