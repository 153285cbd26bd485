/* One RPC on its way. A call belongs to the loop; gRPC's completion queue threads only hand its
 * events over. Handlers see decoded requests and answer with messages; they know nothing of
 * batches, tags and byte buffers. Everything here is for the loop's thread. */
#ifndef SERVER_CALL_H
#define SERVER_CALL_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/arena.h"
#include "base/status.h"

struct call;
struct daemon;

enum rpc_kind { RPC_UNARY, RPC_SERVER_STREAM, RPC_CLIENT_STREAM, RPC_BIDI };

/* A message as it came, not decoded: its bytes are the pieces, one behind the other. */
struct call_bytes {
    const struct iovec *pieces; /* [n_pieces] */
    size_t n_pieces, size_bytes;
};

void call_bytes_free(struct call_bytes *bytes); /* NULL is fine */

/* A part of a message that is sent as it lies: release is called, on any thread, once when gRPC
 * needs the bytes no longer. Without release they are copied. */
struct call_piece {
    const void *data;
    size_t size_bytes;
    void (*release)(void *arg);
    void *arg;
};

/* What a handler hangs on its call. Any but gone may be NULL. None is called inside a function of
 * this header, and none after gone. */
struct call_handler {
    /* There is room for a next message: a pulled stream writes one (call_write) or none. Called
     * again after each call_write, once it is out of the way, and after call_wake. */
    void (*room)(struct call *call, void *state);
    /* A further message of a client's stream; NULL: the client has half-closed. Not called again
     * before call_read. The message lives in arena, which is emptied when the handler returns,
     * unless it takes it: copies the struct and calls arena_init on the original. */
    void (*message)(struct call *call, void *state, const ProtobufCMessage *message,
                    struct arena *arena);
    /* Instead of message, for those that decode by themselves; takes bytes. */
    void (*bytes)(struct call *call, void *state, struct call_bytes *bytes);
    /* The call is over, whoever ended it. Called exactly once for every call whose handler was set,
     * also for those that call_finish ended; state is the handler's to free, and the call is no
     * longer valid after. why: STATUS_OK when the status is out, whichever it was; STATUS_DEADLINE
     * when the deadline passed first; STATUS_CANCELLED when the peer went away or cancelled. */
    void (*gone)(struct call *call, void *state, enum status why);
};

/* One row of the dispatcher. */
struct rpc {
    const char *path; /* "/parley.v1.Conversations/Open" */
    enum rpc_kind kind;
    const ProtobufCMessageDescriptor *request, *response;
    /* Starts a call. request is NULL where the client streams; else it lives in call_arena. It
     * answers now, or sets a handler and answers later. daemon is whose port this is. */
    void (*start)(struct call *call, const ProtobufCMessage *request, struct daemon *daemon);
};

struct arena *call_arena(struct call *call);        /* lives as long as the call */
uint64_t call_deadline_us(const struct call *call); /* env's monotonic clock; 0: none */
const char *call_peer(struct call *call);           /* "ipv4:127.0.0.1:50312" */
/* Value of a request header (text, key in lower case), NULL if absent; valid as long as the call.
 */
const char *call_header(struct call *call, const char *key);
struct daemon *call_daemon(const struct call *call);

/* Zeroed, from try_alloc: a handler's state. Without memory the call is ended, and NULL. */
void *call_state(struct call *call, size_t size_bytes) MUST_CHECK;
void call_set_handler(struct call *call, const struct call_handler *handler, void *state);

/* Ends a call that has one response with it. */
void call_reply(struct call *call, const ProtobufCMessage *response);

/* Writes one message of a stream; only when call_has_room. The message is encoded at once. more:
 * the next one is there already, so the transport may hold this one back until that is written; the
 * handler must write it, or finish, when room is called. There is often room again at once. Without
 * it the message is out at the end of the loop's round at the latest. */
void call_write(struct call *call, const ProtobufCMessage *message, bool more);
/* The same with a message that is encoded already, in pieces. */
void call_write_pieces(struct call *call, const struct call_piece *pieces, size_t n_pieces,
                       bool more);
bool call_has_room(const struct call *call);
/* Something to write is there now: room is called, soon and not inside, if there is room. */
void call_wake(struct call *call);

/* Where the client streams: asks for the next message. One at a time. */
void call_read(struct call *call);
/* The same where the client may wait for what the handler has yet to write: it is asked behind the
 * next write, or some milliseconds later, once the client has shown that it sends nothing before.
 */
void call_read_behind(struct call *call);

/* Ends a call: OK (err NULL or its status is OK), or a failure whose detail goes into the trailer
 * parley-error-bin (and retry-after-ms). What was written goes out first. Nothing may be written
 * after. */
void call_finish(struct call *call, const struct error *err);

/* Ends a stream with its last message and OK in one go; only when call_has_room. */
void call_finish_with(struct call *call, const ProtobufCMessage *last);

#endif
