/* A call as its exchange carries it. What the handler writes is encoded into the call's buffer; the
 * exchange takes it when the connection is write-ready, and the handler is then asked for more. The
 * end of the call is the answer of a unary method, or the last message of a stream.
 *
 * A client's stream is a body that is read whole before its method is served; then its messages are
 * handed on one by one. So a method with streams in both directions works half-duplex.
 *
 * Failure: a client that hangs up, a deadline that passes, and a server that ends close the call;
 * its handler is told once. What the handler writes or ends afterwards is dropped. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "proto/codec.h"
#include "proto/json/protobuf_json.h"
#include "server/api/connect/connect_calls.h"
#include "server/api/connect/connect_parts.h"
#include "server/api/connect/error.h"
#include "server/http/exchange.h"
#include "server/json/fields.h"
#include "server/server.h"

#define OUT_MAX_BYTES ((size_t)64 << 20)

enum {
    /* Bound of a decoded message beyond its bytes, as in gRPC's port: an empty message in a list is
     * two bytes there and a struct here. */
    DECODED_MIN_BYTES = 64 << 10,
    DECODED_TIMES = 16,
    AHEAD_BYTES = 64 << 10, /* of a stream's messages, before the connection takes them */
};

static struct connect_call *connect_call_of(struct call *base)
{
    return container_of(base, struct connect_call, base);
}

static size_t decoded_limit(const struct connect_call *c)
{
    return DECODED_MIN_BYTES + DECODED_TIMES * exchange_max_body_bytes(c->x);
}

/* --- messages --- */

enum status connect_call_decode(ProtobufCMessage **out, const struct connect_call *c,
                                const char *data, size_t len, struct arena *arena,
                                struct error *err)
{
    const ProtobufCMessageDescriptor *type = c->base.method->request;
    json_t *value;
    enum status rc;

    if (!c->codec->is_json)
        return codec_decode(out, type, data, len, CALL_MAX_FIELDS, arena, err);
    rc = fields_parse_strict(&value, data, len, err);
    if (rc != STATUS_OK)
        return rc;
    rc = protobuf_json_read(out, type, value, CALL_MAX_FIELDS, arena, err);
    json_decref(value);
    return rc;
}

static enum status append_message(struct connect_call *c, const ProtobufCMessage *message)
{
    struct json_writer w;
    size_t size;

    if (c->codec->is_json) {
        w = json_writer_begin(&c->out);
        protobuf_json_write(&w, NULL, message);
        return json_writer_end(&w);
    }
    size = codec_size(message);
    if (buf_reserve(&c->out, size) != STATUS_OK)
        return STATUS_EXHAUSTED;
    c->out.len += codec_encode(message, (uint8_t *)c->out.data + c->out.len);
    c->out.data[c->out.len] = '\0';
    return STATUS_OK;
}

void connect_call_abandon(struct connect_call *c, const struct error *err)
{
    c->is_finishing = c->is_abandoned = true;
    c->err = *err;
    exchange_notify(c->x);
}

static void connect_call_hold(struct connect_call *c, const ProtobufCMessage *message)
{
    struct error err;
    size_t start = c->out.len;
    enum status rc = STATUS_OK;

    if (c->is_stream)
        rc = envelope_begin(&c->out, 0, &start);
    if (rc == STATUS_OK)
        rc = append_message(c, message);
    if (rc == STATUS_OK && c->is_stream)
        envelope_end(&c->out, start);
    if (rc == STATUS_OK)
        return;
    c->out.len = start;
    (void)error_no_memory(&err, 0, "the answer");
    connect_call_abandon(c, &err);
}

/* --- the transport --- */

static const char *connect_header(struct call *base, const char *key)
{
    return NULL; /* HTTP's are not kept */
}

static bool connect_is_write_ready(const struct call *base)
{
    const struct connect_call *c = container_of(base, const struct connect_call, base);

    return !c->is_finishing && c->out.len == 0;
}

static void connect_notify(struct call *base)
{
    struct connect_call *c = connect_call_of(base);

    c->is_write_ready_due = true;
    exchange_notify(c->x);
}

static void connect_write(struct call *base, const ProtobufCMessage *message, bool more)
{
    connect_call_hold(connect_call_of(base), message);
    connect_notify(base);
}

/* The same of a message that is encoded already. For JSON it is decoded again. */
static void connect_write_pieces(struct call *base, const struct call_piece *pieces,
                                 size_t n_pieces, bool more)
{
    struct connect_call *c = connect_call_of(base);
    ProtobufCMessage *message;
    struct arena arena;
    struct buf all;
    struct error err;
    enum status rc = STATUS_OK;

    arena_init(&arena, SIZE_MAX);
    buf_init(&all, OUT_MAX_BYTES);
    for (size_t i = 0; i < n_pieces; i++) {
        if (rc == STATUS_OK)
            rc = buf_append(&all, pieces[i].data, pieces[i].size_bytes);
        if (pieces[i].release != NULL)
            pieces[i].release(pieces[i].arg);
    }
    if (rc != STATUS_OK)
        (void)error_no_memory(&err, all.len, "the answer");
    else
        rc = codec_decode(&message, base->method->response, all.data, all.len, CODEC_ANY_FIELDS,
                          &arena, &err);
    if (rc == STATUS_OK)
        connect_call_hold(c, message);
    else
        connect_call_abandon(c, &err);
    buf_deinit(&all);
    arena_deinit(&arena);
    connect_notify(base);
}

static void connect_read(struct call *base, bool is_behind)
{
    struct connect_call *c = connect_call_of(base);

    assert(!c->is_read_due);
    c->is_read_due = true;
    exchange_notify(c->x);
}

static void connect_finish(struct call *base, const struct error *err, const ProtobufCMessage *last)
{
    struct connect_call *c = connect_call_of(base);

    if (c->is_abandoned)
        return;
    assert(!c->is_finishing);
    if (last != NULL)
        connect_call_hold(c, last);
    if (c->is_abandoned)
        return;
    c->is_finishing = true;
    if (err != NULL)
        c->err = *err;
    exchange_notify(c->x);
}

static const struct call_transport connect_transport = {
    .header = connect_header,
    .is_write_ready = connect_is_write_ready,
    .write = connect_write,
    .write_pieces = connect_write_pieces,
    .notify = connect_notify,
    .read = connect_read,
    .finish = connect_finish,
};

/* --- a client's stream --- */

struct connect_bytes {
    struct call_bytes bytes;
    struct iovec piece;
    uint8_t data[];
};

static void connect_bytes_release(struct call_bytes *bytes)
{
    free(container_of(bytes, struct connect_bytes, bytes));
}

/* For a handler that decodes itself: the message as protobuf. */
static enum status connect_bytes_make(struct call_bytes **out, const struct connect_call *c,
                                      const char *data, size_t len, struct error *err)
{
    ProtobufCMessage *message = NULL;
    struct connect_bytes *b;
    struct arena arena;
    enum status rc = STATUS_OK;

    arena_init(&arena, decoded_limit(c));
    if (c->codec->is_json)
        rc = connect_call_decode(&message, c, data, len, &arena, err);
    if (rc == STATUS_OK) {
        const size_t size = message == NULL ? len : codec_size(message);

        b = try_alloc(1, sizeof(*b) + size);
        if (b == NULL) {
            rc = error_no_memory(err, size, "a message");
        } else {
            if (message == NULL)
                memcpy(b->data, data, size);
            else
                (void)codec_encode(message, b->data);
            b->piece = (struct iovec){b->data, size};
            b->bytes = (struct call_bytes){&b->piece, 1, size, connect_bytes_release};
            *out = &b->bytes;
        }
    }
    arena_deinit(&arena);
    return rc;
}

/* Hands the next message on, or the end of the stream. */
static void connect_call_hand_on(struct connect_call *c)
{
    const struct call_handler *handler = c->base.handler;
    ProtobufCMessage *message = NULL;
    struct call_bytes *bytes = NULL;
    const char *data;
    size_t len;
    struct error err;
    enum status rc;

    c->is_read_due = false;
    if (handler == NULL)
        return;
    rc = envelope_read(&data, &len, &c->in, &err);
    if (rc == STATUS_OK && data != NULL && handler->bytes != NULL)
        rc = connect_bytes_make(&bytes, c, data, len, &err);
    else if (rc == STATUS_OK && data != NULL) {
        arena_init(&c->in_arena, decoded_limit(c));
        rc = connect_call_decode(&message, c, data, len, &c->in_arena, &err);
    }
    if (rc != STATUS_OK)
        connect_call_abandon(c, &err);
    else if (handler->bytes != NULL)
        handler->bytes(&c->base, c->base.handler_state, bytes);
    else if (handler->message != NULL)
        handler->message(&c->base, c->base.handler_state, message, &c->in_arena);
    arena_deinit(&c->in_arena);
}

/* --- the answer --- */

static void answer_unary(struct connect_call *c)
{
    if (c->err.status != STATUS_OK)
        exchange_fail(c->x, &c->err);
    else
        exchange_reply(c->x, 200, c->codec->unary_type, c->out.len == 0 ? "" : c->out.data,
                       c->out.len);
}

/* The last message of a stream: {} or {"error": …}. Without memory for it the stream is cut, and so
 * no client takes it for whole. */
static void answer_stream(struct connect_call *c)
{
    struct buf *events = exchange_stream(c->x);
    struct json_writer w;
    size_t start;

    if (envelope_begin(events, ENVELOPE_END, &start) == STATUS_OK) {
        w = json_writer_begin(events);
        json_begin_object(&w, NULL);
        if (c->err.status != STATUS_OK)
            connect_error_write(&w, "error", &c->err);
        json_end_object(&w);
        if (json_writer_end(&w) == STATUS_OK)
            envelope_end(events, start);
        else
            events->len = start;
    }
    exchange_end(c->x);
}

static void connect_call_answer(struct connect_call *c)
{
    c->is_answered = true;
    exchange_server(c->x)->calls.n_failed += c->err.status != STATUS_OK;
    if (c->is_stream)
        answer_stream(c);
    else
        answer_unary(c);
}

/* Moves what was written to the exchange. */
static void connect_call_flush(struct connect_call *c)
{
    struct error err;

    if (!c->is_stream || c->out.len == 0)
        return;
    if (buf_append(exchange_stream(c->x), c->out.data, c->out.len) != STATUS_OK) {
        (void)error_no_memory(&err, c->out.len, "the answer");
        if (!c->is_finishing)
            connect_call_abandon(c, &err);
    }
    buf_clear(&c->out);
}

/* Writes until the handler has no more, or enough is ahead of the connection. */
static void on_connect_write_ready(struct exchange *x, void *state)
{
    struct connect_call *c = state;

    if (c->is_read_due && !c->is_finishing)
        connect_call_hand_on(c);
    connect_call_flush(c);
    while (c->is_write_ready_due && connect_is_write_ready(&c->base) &&
           (!c->is_stream || exchange_stream(x)->len < AHEAD_BYTES)) {
        c->is_write_ready_due = false;
        call_tell_write_ready(&c->base);
        connect_call_flush(c);
    }
    if (c->is_finishing)
        connect_call_answer(c);
    else if (c->is_write_ready_due || c->is_read_due)
        exchange_notify(x);
}

/* --- the end --- */

/* Ends the call from here, and tells its handler at once. */
static void connect_call_cut(struct connect_call *c, const struct error *err, enum status why)
{
    if (c->is_finishing)
        return;
    connect_call_abandon(c, err);
    call_tell_close(&c->base, why);
}

void connect_call_expire(struct connect_deadline *d)
{
    struct error err;

    (void)error_set(&err, STATUS_DEADLINE, "the deadline has passed");
    connect_call_cut(container_of(d, struct connect_call, deadline), &err, STATUS_DEADLINE);
}

static void on_connect_drain(struct exchange *x, void *state)
{
    struct connect_call *c = state;
    struct error err;

    (void)error_draining(&err);
    if (c->n_unawaited > 0) /* HTTP's port waits for each */
        connect_call_cut(c, &err, STATUS_CANCELLED);
    else if (!c->is_finishing)
        call_tell_drain(&c->base);
}

static void on_connect_cut(struct exchange *x, void *state, const struct error *err)
{
    struct connect_call *c = state;

    connect_call_cut(c, err, STATUS_CANCELLED);
    connect_call_flush(c);
    connect_call_answer(c);
}

static void connect_call_free(struct connect_call *c)
{
    exchange_server(c->x)->calls.n_calls--;
    if (c->is_counted)
        shared_limit_give(&c->base.server->connected->limit, call_principal(&c->base)->id, 1);
    if (link_is_on(&c->deadline.link))
        list_remove(&c->deadline.link);
    envelope_reader_deinit(&c->in);
    buf_deinit(&c->out);
    arena_deinit(&c->base.arena);
    free(c);
}

static void on_connect_close(struct exchange *x, void *state)
{
    struct connect_call *c = state;

    exchange_server(x)->calls.n_failed += !c->is_answered;
    call_tell_close(&c->base, c->is_answered && !c->is_abandoned ? STATUS_OK : STATUS_CANCELLED);
    connect_call_free(c);
}

/* --- the beginning --- */

/* As gRPC's port: with keys, no principal has more than half of the calls in flight. */
static enum status connect_call_count(struct connect_call *c, struct error *err)
{
    struct connect_calls *all = c->base.server->connected;

    if (c->base.method->access == ACCESS_OPEN)
        return STATUS_OK;
    if (shared_limit_take(&all->limit, call_principal(&c->base)->id, 1, err) != STATUS_OK) {
        err->retry_after_ms = 100;
        return err->status;
    }
    c->is_counted = true;
    return STATUS_OK;
}

enum status connect_call_open(struct connect_call **out, struct exchange *x,
                              const struct call_method *method, const struct connect_codec *codec,
                              struct error *err)
{
    struct connect_call *c = try_alloc(1, sizeof(*c));

    if (c == NULL)
        return error_no_memory(err, sizeof(*c), "a call");
    owner_thread_init(&c->owner);
    c->x = x;
    c->codec = codec;
    c->is_stream = method->kind != CALL_UNARY;
    c->base = (struct call){.transport = &connect_transport,
                            .method = method,
                            .owner = &c->owner,
                            .server = exchange_server(x),
                            .health = exchange_server(x)->connected->health,
                            .principal = exchange_principal(x),
                            .n_unawaited = &c->n_unawaited};
    buf_init(&c->out, OUT_MAX_BYTES);
    if (connect_call_count(c, err) != STATUS_OK) {
        free(c);
        return err->status;
    }
    arena_init(&c->base.arena, decoded_limit(c));
    *out = c;
    return STATUS_OK;
}

void connect_call_adopt(struct connect_call *c)
{
    static const struct exchange_handler handler = {.on_write_ready = on_connect_write_ready,
                                                    .drain = on_connect_drain,
                                                    .cut = on_connect_cut,
                                                    .on_close = on_connect_close};

    exchange_set_handler(c->x, &handler, c);
    c->base.server->calls.n_calls++;
    c->base.server->calls.n_started++;
    if (!c->is_stream)
        return;
    exchange_set_stream_type(c->x, c->codec->stream_type);
    (void)exchange_stream(c->x); /* its head is sent at once */
}
