/* GET /v1/rooms/socket: rooms over a WebSocket, whose messages are the frames of parley.v1.Rooms in
 * protobuf's JSON mapping. Browsers cannot send a key with the upgrade, so it comes in hello, which
 * must come soon.
 *
 * Failures: text that is no JSON ends the WebSocket, and so do a missing or wrong hello; any other
 * frame that cannot be taken is answered with an error frame. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "proto/json/protobuf_json.h"
#include "server/api/openai/error.h"
#include "server/api/parley/room_frames.h"
#include "server/http/exchange.h"
#include "server/http/route.h"
#include "server/http/upgrade.h"
#include "server/http/websocket.h"
#include "server/json/fields.h"
#include "server/server.h"

enum {
    FRAME_MAX_BYTES = 64 << 10,
    FRAME_MAX_FIELDS = 256,
    FLUSH_BYTES = 64 << 10, /* of frames, before the socket is asked whether it takes more */
    HELLO_MS = 10 * 1000,
    CLOSE_TRY_AGAIN = 1013,
    CLOSE_NO_HELLO = 4001,
    CLOSE_FORBIDDEN = 4003,
};

struct rooms_socket {
    struct room_reader reader;
    struct websocket *socket;
    struct server *server;
    const struct access_key *key; /* of hello; NULL: none came */
};

static void rooms_socket_notify(struct room_reader *reader)
{
    websocket_notify(container_of(reader, struct rooms_socket, reader)->socket);
}

/* Returns how many bytes were sent; 0 without memory, which ends the WebSocket. */
static size_t rooms_socket_send(struct websocket *w, const struct room_response *response)
{
    struct json_writer writer;
    struct buf text;
    size_t n = 0;

    buf_init(&text, 16 * FRAME_MAX_BYTES);
    writer = json_writer_begin(&text);
    protobuf_json_write(&writer, NULL, &response->message.base);
    if (json_writer_end(&writer) != STATUS_OK)
        websocket_end(w, WEBSOCKET_INTERNAL, "the server has no memory for a frame");
    else if (websocket_send(w, text.data, text.len, true) == STATUS_OK)
        n = text.len;
    buf_deinit(&text);
    return n;
}

/* A key that was revoked ends its WebSockets. False: it has ended. */
static bool rooms_socket_check_key(struct rooms_socket *s)
{
    if (s->key == NULL || s->server->access == NULL ||
        !access_key_is_revoked(s->server->access, s->key))
        return true;
    websocket_end(s->socket, CLOSE_FORBIDDEN, "the key is not valid any more");
    return false;
}

/* Finds hello's principal. False: the WebSocket has ended. */
static bool rooms_socket_admit(struct rooms_socket *s, const Parley__V1__RoomsAttachRequest *m)
{
    const bool is_hello = m->frame_case == PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_HELLO;
    struct access_proof proof = {0};
    struct error err;

    if (s->key != NULL || s->reader.person != NULL)
        return rooms_socket_check_key(s);
    if (!is_hello) {
        websocket_end(s->socket, CLOSE_NO_HELLO, "hello must come first");
        return false;
    }
    if (m->hello->key[0] != '\0') {
        proof.api_key = m->hello->key;
        proof.api_key_len = strlen(m->hello->key);
    }
    if (access_admit(&s->key, s->server->access, ACCESS_KEY, &proof, &err) == STATUS_OK)
        return true;
    websocket_end(s->socket, CLOSE_FORBIDDEN, err.text);
    return false;
}

static void rooms_socket_take(struct rooms_socket *s, const Parley__V1__RoomsAttachRequest *m)
{
    struct room_response response;

    if (!rooms_socket_admit(s, m) ||
        !room_frames_take(&response, &s->reader, access_key_principal(s->key), m))
        return;
    (void)rooms_socket_send(s->socket, &response);
    if (s->reader.person == NULL) /* its hello has failed */
        websocket_end(s->socket,
                      response.err.status == STATUS_UNAVAILABLE ||
                              response.err.status == STATUS_EXHAUSTED
                          ? CLOSE_TRY_AGAIN
                          : CLOSE_FORBIDDEN,
                      response.err.text);
}

static void rooms_socket_message(struct websocket *w, void *state, const char *data, size_t len,
                                 bool is_text)
{
    static const char body[] = "the body";
    struct rooms_socket *s = state;
    struct room_response response;
    ProtobufCMessage *message = NULL;
    struct arena arena;
    struct error err;
    json_t *value;

    if (fields_parse_strict(&value, data, len, &err) != STATUS_OK) {
        if (strncmp(err.text, body, sizeof(body) - 1) == 0)
            (void)error_set(&err, err.status, "the frame%s", err.text + sizeof(body) - 1);
        websocket_end(w, WEBSOCKET_NOT_UTF8, err.text); /* 1007: data that does not fit its type */
        return;
    }
    arena_init(&arena, 16 * FRAME_MAX_BYTES);
    if (protobuf_json_read(&message, &parley__v1__rooms_attach_request__descriptor, value,
                           FRAME_MAX_FIELDS, &arena, &err) == STATUS_OK) {
        rooms_socket_take(s, (const Parley__V1__RoomsAttachRequest *)message);
    } else if (s->reader.person == NULL) {
        websocket_end(w, CLOSE_NO_HELLO, err.text);
    } else {
        room_frames_fail(&response, &err);
        (void)rooms_socket_send(w, &response);
    }
    json_decref(value);
    arena_deinit(&arena);
}

static void rooms_socket_write_ready(struct websocket *w, void *state)
{
    struct rooms_socket *s = state;
    struct room_response response;
    size_t n_sent = 0, n = 1;

    if (!rooms_socket_check_key(s))
        return;
    while (n > 0 && n_sent < FLUSH_BYTES && room_frames_next(&response, &s->reader)) {
        n = rooms_socket_send(w, &response);
        n_sent += n;
    }
    if (n_sent >= FLUSH_BYTES)
        websocket_notify(w);
}

static void rooms_socket_over(struct websocket *w, void *state)
{
    struct rooms_socket *s = state;

    room_reader_close(&s->reader);
    free(s);
}

static void rooms_socket_serve(struct exchange *x)
{
    static const struct websocket_handler handler = {
        .max_message_bytes = FRAME_MAX_BYTES,
        .protocol = "parley.rooms.v1",
        .first_ms = HELLO_MS,
        .first_code = CLOSE_NO_HELLO,
        .first_why = "no hello came within 10 seconds",
        .on_message = rooms_socket_message,
        .on_write_ready = rooms_socket_write_ready,
        .on_close = rooms_socket_over,
    };
    struct rooms_socket *s = try_alloc(1, sizeof(*s));
    struct error err;

    if (s == NULL) {
        (void)error_no_memory(&err, sizeof(*s), "a reader of rooms");
        exchange_fail(x, &err);
        return;
    }
    s->server = exchange_server(x);
    room_reader_init(&s->reader, s->server->rooms, rooms_socket_notify);
    if ((s->socket = upgrade_to_websocket(x, &handler, s)) == NULL)
        free(s);
}

static const struct route rows[] = {
    {"/v1/rooms/socket", .methods = METHOD_GET, .serve = rooms_socket_serve, .api = &openai_api,
     .access = ACCESS_OPEN, .is_for_users = true}, /* the key comes in the first frame */
};
const struct route_table api_rooms_socket_routes = {rows, sizeof(rows) / sizeof(rows[0])};
