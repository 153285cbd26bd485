#include "server/call/call.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "proto/codec.h"
#include "server/call/transport.h"

void call_bytes_free(struct call_bytes *bytes)
{
    if (bytes != NULL)
        bytes->release(bytes);
}

enum status call_bytes_decode(ProtobufCMessage **out, const struct call_bytes *bytes,
                              const ProtobufCMessageDescriptor *type, size_t max_fields,
                              struct arena *arena, struct error *err)
{
    uint8_t *whole = arena_alloc(arena, bytes->size_bytes + 1, 1);
    size_t at = 0;

    if (whole == NULL)
        return error_no_memory(err, bytes->size_bytes, "a message");
    for (size_t i = 0; i < bytes->n_pieces; i++) {
        memcpy(whole + at, bytes->pieces[i].iov_base, bytes->pieces[i].iov_len);
        at += bytes->pieces[i].iov_len;
    }
    return codec_decode(out, type, whole, at, max_fields, arena, err);
}

const void *call_request(const struct call *call)
{
    return call->request;
}

struct arena *call_arena(struct call *call)
{
    return &call->arena;
}

uint64_t call_deadline_us(const struct call *call)
{
    return call->deadline_us;
}

const char *call_header(struct call *call, const char *key)
{
    return call->transport->header(call, key);
}

const struct principal *call_principal(const struct call *call)
{
    return call->principal;
}

bool call_is_passed_on(const struct call *call)
{
    return call->is_passed_on;
}

struct server *call_server(const struct call *call)
{
    return call->server;
}

struct health *call_health(const struct call *call)
{
    return call->health;
}

void *call_state(struct call *call, size_t size_bytes)
{
    void *state = try_alloc(1, size_bytes);
    struct error err;

    if (state == NULL) {
        (void)error_no_memory(&err, size_bytes, "a call");
        call_finish(call, &err);
    }
    return state;
}

void call_set_handler(struct call *call, const struct call_handler *handler, void *state)
{
    ASSERT_OWNER(call->owner);
    assert(handler->on_close != NULL && call->handler == NULL);
    call->handler = handler;
    call->handler_state = state;
    *call->n_unawaited += handler->is_unawaited;
}

void call_clear_handler(struct call *call)
{
    ASSERT_OWNER(call->owner);
    assert(call->handler != NULL);
    *call->n_unawaited -= call->handler->is_unawaited;
    call->handler = NULL;
    call->handler_state = NULL;
}

void call_tell_write_ready(struct call *call)
{
    if (call->handler != NULL && call->handler->on_write_ready != NULL)
        call->handler->on_write_ready(call, call->handler_state);
}

void call_tell_drain(struct call *call)
{
    if (call->handler != NULL && call->handler->drain != NULL)
        call->handler->drain(call, call->handler_state);
}

void call_tell_close(struct call *call, enum status why)
{
    const struct call_handler *handler = call->handler;
    void *state = call->handler_state;

    if (handler == NULL)
        return;
    call_clear_handler(call);
    handler->on_close(call, state, why);
}

bool call_is_write_ready(const struct call *call)
{
    return call->transport->is_write_ready(call);
}

void call_write(struct call *call, const ProtobufCMessage *message, bool more)
{
    ASSERT_OWNER(call->owner);
    assert(call_is_write_ready(call));
    call->transport->write(call, message, more);
}

void call_write_pieces(struct call *call, const struct call_piece *pieces, size_t n_pieces,
                       bool more)
{
    ASSERT_OWNER(call->owner);
    assert(call_is_write_ready(call));
    call->transport->write_pieces(call, pieces, n_pieces, more);
}

void call_notify(struct call *call)
{
    ASSERT_OWNER(call->owner);
    call->transport->notify(call);
}

void call_read(struct call *call)
{
    ASSERT_OWNER(call->owner);
    assert(call_method_is_client_stream(call->method));
    call->transport->read(call, false);
}

void call_read_behind(struct call *call)
{
    ASSERT_OWNER(call->owner);
    assert(call_method_is_client_stream(call->method));
    call->transport->read(call, true);
}

void call_finish(struct call *call, const struct error *err)
{
    ASSERT_OWNER(call->owner);
    call->transport->finish(call, err, NULL);
}

void call_finish_with(struct call *call, const ProtobufCMessage *last)
{
    ASSERT_OWNER(call->owner);
    call->transport->finish(call, NULL, last);
}

void call_reply(struct call *call, const ProtobufCMessage *response)
{
    call_finish_with(call, response);
}

void call_answer(struct call *call, enum status rc, const struct error *err,
                 const ProtobufCMessage *response)
{
    if (rc == STATUS_OK)
        call_reply(call, response);
    else
        call_finish(call, err);
}
