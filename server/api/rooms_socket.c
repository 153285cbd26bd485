/* GET /v1/rooms/socket: rooms over a WebSocket, whose messages are the frames of parley.v1.Rooms in
 * protobuf's JSON mapping. Browsers cannot send a key with the upgrade, so it comes in hello, which
 * must come soon. Where another daemon has the rooms, that one answers (passed_rooms.h); frames
 * wait until it is known where the rooms are.
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
#include "server/api/passed_rooms.h"
#include "server/cluster/places.h"
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

enum rooms_where { ROOMS_HERE, ROOMS_SOUGHT, ROOMS_FOUND_HERE, ROOMS_THERE };

struct rooms_socket {
    struct room_reader reader;
    struct websocket *socket;
    struct server *server;
    const struct access_key *key; /* of hello; NULL: none came */
    struct place_ask ask;
    struct passed_rooms passed;
    enum rooms_where where;
    bool is_welcome; /* of ROOMS_THERE: hello was answered */
};

static void rooms_socket_notify(struct room_reader *reader)
{
    websocket_notify(container_of(reader, struct rooms_socket, reader)->socket);
}

static void rooms_socket_lost(struct room_reader *reader, const struct error *why)
{
    websocket_end(container_of(reader, struct rooms_socket, reader)->socket, CLOSE_TRY_AGAIN,
                  why->text);
}

static void on_rooms_passed(void *arg)
{
    websocket_notify(((struct rooms_socket *)arg)->socket);
}

/* Returns how many bytes were sent; 0 without memory, which ends the WebSocket. */
static size_t rooms_socket_write(struct websocket *w,
                                 const Parley__V1__RoomsAttachResponse *message)
{
    struct json_writer writer;
    struct buf text;
    size_t n = 0;

    buf_init(&text, 16 * FRAME_MAX_BYTES);
    writer = json_writer_begin(&text);
    protobuf_json_write(&writer, NULL, &message->base);
    if (json_writer_end(&writer) != STATUS_OK)
        websocket_end(w, WEBSOCKET_INTERNAL, "the server has no memory for a frame");
    else if (websocket_send(w, text.data, text.len, true) == STATUS_OK)
        n = text.len;
    buf_deinit(&text);
    return n;
}

static size_t rooms_socket_send(struct websocket *w, const struct room_response *response)
{
    return rooms_socket_write(w, &response->message);
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

    if (s->key != NULL || s->reader.person != NULL || s->where != ROOMS_HERE)
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

static void rooms_socket_fail(struct rooms_socket *s, const struct error *err)
{
    websocket_end(s->socket,
                  err->status == STATUS_UNAVAILABLE || err->status == STATUS_EXHAUSTED
                      ? CLOSE_TRY_AGAIN
                      : CLOSE_FORBIDDEN,
                  err->text);
}

static void rooms_socket_take_here(struct rooms_socket *s, const Parley__V1__RoomsAttachRequest *m)
{
    struct room_response response;

    if (!room_frames_take(&response, &s->reader, access_key_principal(s->key), m))
        return;
    (void)rooms_socket_send(s->socket, &response);
    if (s->reader.person == NULL) /* its hello has failed */
        rooms_socket_fail(s, &response.err);
}

/* --- rooms of another daemon --- */

static void on_rooms_place(struct place_ask *a, const struct journal_peer *owner,
                           const struct error *err)
{
    struct rooms_socket *s = container_of(a, struct rooms_socket, ask);
    struct error why = *err;

    if (why.status == STATUS_OK && owner == NULL) {
        s->where = ROOMS_FOUND_HERE;
        websocket_notify(s->socket);
        return;
    }
    if (why.status == STATUS_OK && !passed_rooms_begin(&s->passed, s->server->cluster, owner,
                                                       access_key_principal(s->key)->name))
        (void)error_draining(&why);
    s->where = ROOMS_THERE;
    if (why.status != STATUS_OK)
        rooms_socket_fail(s, &why);
}

/* hello's key is for this daemon alone. */
static void rooms_socket_pass(struct rooms_socket *s, const Parley__V1__RoomsAttachRequest *m)
{
    Parley__V1__RoomsAttachRequest out = *m;
    Parley__V1__RoomHello hello;
    struct error err;

    if (m->frame_case == PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_HELLO) {
        hello = *m->hello;
        hello.key = (char *)(uintptr_t) ""; /* it is only read */
        out.hello = &hello;
    }
    if (passed_rooms_send(&s->passed, &out, &err) != STATUS_OK)
        rooms_socket_fail(s, &err);
}

static void rooms_socket_take(struct rooms_socket *s, const Parley__V1__RoomsAttachRequest *m)
{
    const struct journal_peer *owner;

    if (!rooms_socket_admit(s, m))
        return;
    if (s->where == ROOMS_HERE && s->reader.person == NULL &&
        places_look(s->server->places, JOURNAL_PLACE_ROOMS, &owner) != PLACE_HERE) {
        s->where = ROOMS_SOUGHT;
        places_ask(s->server->places, JOURNAL_PLACE_ROOMS, false, &s->ask, on_rooms_place);
    }
    if (s->where == ROOMS_HERE)
        rooms_socket_take_here(s, m);
    else
        rooms_socket_pass(s, m);
}

/* Frames that waited while the rooms were looked for: they are here. */
static void rooms_socket_take_back(struct rooms_socket *s)
{
    const Parley__V1__RoomsAttachRequest *m;
    struct arena arena;

    s->where = ROOMS_HERE;
    arena_init(&arena, 16 * FRAME_MAX_BYTES);
    while ((m = passed_rooms_take_back(&s->passed, &arena)) != NULL)
        rooms_socket_take_here(s, m);
    arena_deinit(&arena);
    if (s->passed.is_over)
        rooms_socket_fail(s, &s->passed.err);
}

static void rooms_socket_over_there(struct rooms_socket *s)
{
    struct room_response response;

    if (!s->is_welcome) {
        room_frames_fail(&response, &s->passed.err);
        (void)rooms_socket_send(s->socket, &response);
    }
    rooms_socket_fail(s, &s->passed.err);
}

static void rooms_socket_write_passed(struct rooms_socket *s)
{
    const Parley__V1__RoomsAttachResponse *m;
    struct arena arena;

    arena_init(&arena, 16 * FRAME_MAX_BYTES);
    m = passed_rooms_next(&s->passed, &arena);
    if (m != NULL) {
        s->is_welcome = true;
        (void)rooms_socket_write(s->socket, m);
        if (s->passed.is_over)
            websocket_notify(s->socket);
    } else if (s->passed.is_over) {
        rooms_socket_over_there(s);
    }
    arena_deinit(&arena);
}

/* --- what comes and goes --- */

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
    } else if (s->reader.person == NULL && s->where == ROOMS_HERE) {
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
    if (s->where == ROOMS_THERE) {
        rooms_socket_write_passed(s);
        return;
    }
    if (s->where == ROOMS_FOUND_HERE)
        rooms_socket_take_back(s);
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

    places_leave(&s->ask);
    passed_rooms_deinit(&s->passed);
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
    room_reader_init(&s->reader, s->server->rooms, rooms_socket_notify, rooms_socket_lost);
    passed_rooms_init(&s->passed, on_rooms_passed, s);
    if ((s->socket = upgrade_to_websocket(x, &handler, s)) == NULL)
        free(s);
}

static const struct route rows[] = {
    {"/v1/rooms/socket", .methods = METHOD_GET, .serve = rooms_socket_serve, .api = &openai_api,
     .access = ACCESS_OPEN, .is_for_users = true}, /* the key comes in the first frame */
};
const struct route_table api_rooms_socket_routes = {rows, sizeof(rows) / sizeof(rows[0])};
