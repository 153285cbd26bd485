/* parley.v1.Rooms: a call is one connection of one person. A request's answer is written before the
 * next request is read, so a client that reads nothing is not read either. */
#include <stdlib.h>

#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/api/parley/room_frames.h"
#include "server/server.h"

struct rooms_call {
    struct room_reader reader;
    struct call *call;
    struct room_response response;
    struct arena arena; /* of the request that response borrows from */
    bool has_answer, is_over;
    bool is_closing;  /* the client has half-closed: it is told what there is, no more */
    struct error why; /* a hello that failed ends the call; OK: none */
};

static void rooms_notify(struct room_reader *reader)
{
    call_notify(container_of(reader, struct rooms_call, reader)->call);
}

static void rooms_finish(struct rooms_call *r, const struct error *err)
{
    r->is_over = true;
    call_finish(r->call, err);
}

static void rooms_lost(struct room_reader *reader, const struct error *why)
{
    struct rooms_call *r = container_of(reader, struct rooms_call, reader);

    if (!r->is_over)
        rooms_finish(r, why);
}

static void rooms_message(struct call *call, void *state, const ProtobufCMessage *message,
                          struct arena *arena)
{
    const Parley__V1__RoomsAttachRequest *m = (const Parley__V1__RoomsAttachRequest *)message;
    struct rooms_call *r = state;
    struct error err;

    if (r->is_over)
        return;
    if (m == NULL) {
        r->is_closing = true;
        call_notify(call);
        return;
    }
    if (m->frame_case == PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_HELLO &&
        m->hello->key[0] != '\0') {
        (void)error_field(&err, "key", "is for WebSockets: gRPC's calls send it as metadata");
        rooms_finish(r, &err);
        return;
    }
    r->has_answer = room_frames_take(&r->response, &r->reader, call_principal(call), m);
    if (!r->has_answer) {
        call_read(call);
        return;
    }
    if (r->reader.person == NULL &&
        r->response.message.frame_case == PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_ERROR) {
        rooms_finish(r, &r->response.err); /* no hello, or one that failed */
        return;
    }
    r->arena = *arena;                       /* kept until the answer is written */
    arena_init(arena, r->arena.limit_bytes); /* taken */
    call_notify(call);
}

static void rooms_write_ready(struct call *call, void *state)
{
    struct rooms_call *r = state;
    struct room_response next;

    if (r->is_over)
        return;
    if (r->has_answer) {
        r->has_answer = false;
        call_write(call, &r->response.message.base, false);
        arena_deinit(&r->arena);
        call_read(call);
    } else if (room_frames_next(&next, &r->reader)) {
        call_write(call, &next.message.base, false);
    } else if (r->is_closing && !room_reader_waits(&r->reader)) {
        rooms_finish(r, NULL);
    }
}

static void rooms_call_drain(struct call *call, void *state)
{
    struct rooms_call *r = state;
    struct error err;

    if (r->is_over)
        return;
    (void)error_draining(&err);
    rooms_finish(r, &err);
}

static void rooms_close(struct call *call, void *state, enum status why)
{
    struct rooms_call *r = state;

    room_reader_close(&r->reader);
    if (r->has_answer)
        arena_deinit(&r->arena);
    free(r);
}

static void rooms_attach(struct call *call)
{
    static const struct call_handler handler = {.on_write_ready = rooms_write_ready,
                                                .message = rooms_message,
                                                .drain = rooms_call_drain,
                                                .on_close = rooms_close};
    struct rooms_call *r = call_state(call, sizeof(*r));

    if (r == NULL)
        return;
    r->call = call;
    room_reader_init(&r->reader, call_server(call)->rooms, rooms_notify, rooms_lost);
    call_set_handler(call, &handler, r);
    call_read(call);
}

#define ROOMS_METHODS(METHOD) \
    METHOD(BIDI, KEY, "Rooms/Attach", rooms_attach_request, rooms_attach_response, rooms_attach)

#define PARLEY_PLACE JOURNAL_PLACE_ROOMS
PLACED_TABLE(rooms_service_methods, ROOMS_METHODS)
