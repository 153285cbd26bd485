#include "server/api/parley/attach_stream.h"

#include <stdlib.h>

#include "base/log.h"

void attach_stream_finish(struct attach_stream *s, const struct error *err)
{
    if (s->kind->detach != NULL)
        s->kind->detach(s);
    if (s->is_finished)
        return;
    s->is_finished = true;
    if (s->what != NULL && err != NULL && err->status != STATUS_UNAVAILABLE)
        log_warn("worker", "%s=%s error=\"%s\"", s->what, s->name, err->text);
    call_finish(s->call, err);
}

static void on_attach_stream_message(struct call *call, void *state,
                                     const ProtobufCMessage *message, struct arena *arena)
{
    struct attach_stream *s = state;
    struct error err;
    enum status rc;

    if (s->is_finished)
        return;
    if (message == NULL) {
        if (s->kind->half_close != NULL)
            s->kind->half_close(s);
        attach_stream_finish(s, NULL);
        return;
    }
    rc = s->is_accepted ? s->kind->take(s, message, arena, &err) : s->kind->offer(s, message, &err);
    if (rc != STATUS_OK)
        attach_stream_finish(s, &err);
    else if (!s->is_finished)
        call_read(call);
}

static void on_attach_stream_write_ready(struct call *call, void *state)
{
    struct attach_stream *s = state;

    if (s->is_finished || !s->is_accepted)
        return;
    if (s->is_accepted_due) {
        s->is_accepted_due = false;
        s->kind->write_accepted(s);
    } else {
        s->kind->write_orders(s);
    }
}

static void on_attach_stream_drain(struct call *call, void *state)
{
    struct error err;

    (void)error_draining(&err);
    attach_stream_finish(state, &err);
}

static void on_attach_stream_close(struct call *call, void *state, enum status why)
{
    struct attach_stream *s = state;

    s->is_finished = true;
    s->kind->release(s);
    free(s);
}

static void on_attach_stream_notify(struct peer *p)
{
    const struct attach_stream *s = p->stream;

    if (!s->is_finished)
        call_notify(s->call);
}

static void on_attach_stream_ended(struct peer *p, const struct error *err)
{
    attach_stream_finish(p->stream, err);
}

void attach_stream_begin(struct attach_stream *s, struct call *call,
                         const struct attach_stream_kind *kind)
{
    static const struct call_handler handlers[] = {
        {.on_write_ready = on_attach_stream_write_ready,
         .message = on_attach_stream_message,
         .on_close = on_attach_stream_close,
         .is_unawaited = true},
        {.on_write_ready = on_attach_stream_write_ready,
         .message = on_attach_stream_message,
         .drain = on_attach_stream_drain,
         .on_close = on_attach_stream_close},
    };

    s->call = call;
    s->kind = kind;
    call_set_handler(call, &handlers[kind->ends_when_draining], s);
    call_read(call);
}

void attach_stream_adopt(struct attach_stream *s, struct peer *p)
{
    p->stream = s;
    p->notify = on_attach_stream_notify;
    p->ended = on_attach_stream_ended;
}

void attach_stream_accept(struct attach_stream *s)
{
    s->is_accepted = s->is_accepted_due = true;
    call_notify(s->call);
}
