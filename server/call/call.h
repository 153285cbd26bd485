/* One call of a method in flight, whichever transport carries it. A handler sees decoded requests
 * and answers with messages; it knows nothing of how these travel. A call belongs to the loop, and
 * every function of this header is for the loop's thread. methods.h says how a service is written,
 * transport.h what a transport supplies. */
#ifndef SERVER_RPC_CALL_H
#define SERVER_RPC_CALL_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/arena.h"
#include "base/status.h"
#include "server/access/access.h"

struct call;
struct health;
struct server;

/* A received message, not decoded: the pieces in order are its bytes. */
struct call_bytes {
    const struct iovec *pieces; /* [n_pieces] */
    size_t n_pieces, size_bytes;
    void (*release)(struct call_bytes *bytes); /* of the transport that made it */
};

void call_bytes_free(struct call_bytes *bytes); /* NULL is fine */
/* Decodes them into arena, which holds the bytes, too. Fails as codec_decode does. */
enum status call_bytes_decode(ProtobufCMessage **out, const struct call_bytes *bytes,
                              const ProtobufCMessageDescriptor *type, size_t max_fields,
                              struct arena *arena, struct error *err) MUST_CHECK;

/* A part of a message that is sent without a copy: release is called once, on any thread, when the
 * transport needs the bytes no longer. Without release they are copied. */
struct call_piece {
    const void *data;
    size_t size_bytes;
    void (*release)(void *arg);
    void *arg;
};

/* The callbacks of a call. All but on_close may be NULL. None is called inside a function of this
 * header, and none after on_close. */
struct call_handler {
    /* The next message can be written: a pulled stream writes one (call_write) or none. Called
     * again after each call_write, once that is out, and after call_notify. */
    void (*on_write_ready)(struct call *call, void *state);
    /* A further message of a client's stream; NULL: the client has half-closed. Not called again
     * before call_read. The message lives in arena, which is emptied when the handler returns,
     * unless it takes it: copies the struct and calls arena_init on the original. */
    void (*message)(struct call *call, void *state, const ProtobufCMessage *message,
                    struct arena *arena);
    /* In place of message, for handlers that decode themselves; takes bytes. */
    void (*bytes)(struct call *call, void *state, struct call_bytes *bytes);
    /* The server drains: a long-lived call ends as soon as it can. Called at most once; if the
     * server drains already, as soon as the method's function has returned. */
    void (*drain)(struct call *call, void *state);
    /* The call is over, whichever side ended it. Called exactly once for every call whose handler
     * was set, also for those that call_finish ended; the handler frees state, and the call is
     * invalid afterwards. why: STATUS_OK when the status is sent, whichever it was; STATUS_DEADLINE
     * when the deadline passed first; STATUS_CANCELLED when the peer went away or cancelled, or
     * the server cut the call: what the handler wrote since was dropped. */
    void (*on_close)(struct call *call, void *state, enum status why);
    bool is_unawaited; /* a draining server does not wait for it: it ends with the port */
};

/* The most fields of one request. A turn has the most fields of all requests, and fits
 * (server/api/parley/wire.c). A request that its handler decodes may have more. */
enum { CALL_MAX_FIELDS = 1 << 14 };

/* Returns the one request, or NULL where the client streams. The request lies in the call's arena.
 */
const void *call_request(const struct call *call);
/* Returns the call's arena, which lives as long as the call. */
struct arena *call_arena(struct call *call);
/* Returns the call's deadline on env's monotonic clock; 0: the call has none. */
uint64_t call_deadline_us(const struct call *call);
/* Returns the value of a request header, or NULL if the request has none of this key. The key is in
 * lower case. The value is a text and lives as long as the call. */
const char *call_header(struct call *call, const char *key);
/* Returns who makes the call. A principal lives as long as the daemon. */
const struct principal *call_principal(const struct call *call);
/* Returns whether another daemon passed the call on, and has admitted its caller. */
bool call_is_passed_on(const struct call *call);
/* Returns the daemon's registries. */
struct server *call_server(const struct call *call);
/* Returns the health of the daemon's services. */
struct health *call_health(const struct call *call);

/* Allocates a handler's zeroed state with try_alloc. Without memory it ends the call and returns
 * NULL. */
void *call_state(struct call *call, size_t size_bytes) MUST_CHECK;
/* Gives the call its handler and the handler's state. The handler's struct lives as long as the
 * call. */
void call_set_handler(struct call *call, const struct call_handler *handler, void *state);
/* Takes the handler from the call, which may be given another in the same iteration of the loop. */
void call_clear_handler(struct call *call);

/* Ends a call with its one response. */
void call_reply(struct call *call, const ProtobufCMessage *response);
/* Ends a call with its one response where rc is OK, else with err. */
void call_answer(struct call *call, enum status rc, const struct error *err,
                 const ProtobufCMessage *response);

/* Writes one message of a stream; only when call_is_write_ready. The message is encoded at once.
 * more: the next message is ready, so the transport may hold this one back until that is written;
 * the handler must write it, or finish, when on_write_ready is called. The call is often
 * write-ready again at once. Without more the message is sent at the end of the loop's iteration at
 * the latest. */
void call_write(struct call *call, const ProtobufCMessage *message, bool more);
/* Writes an encoded message, which is the pieces in order. The rest is as for call_write. */
void call_write_pieces(struct call *call, const struct call_piece *pieces, size_t n_pieces,
                       bool more);
/* Returns whether the transport takes a message now. */
bool call_is_write_ready(const struct call *call);
/* Says that the handler has something to write. on_write_ready is called as soon as possible, never
 * inside. */
void call_notify(struct call *call);

/* Requests the next message of a client's stream. At most one request is open at a time. */
void call_read(struct call *call);
/* Requests the next message of a client that may wait for the handler's next message. Once the
 * client has shown that it sends nothing before, the read begins behind the next write, or some
 * milliseconds later. */
void call_read_behind(struct call *call);

/* Ends a call with OK, where err is NULL or its status is OK, or with a failure, its detail and the
 * time after which the client may come again. Earlier messages are sent first. The handler writes
 * nothing afterwards. */
void call_finish(struct call *call, const struct error *err);

/* Ends a stream with its last message and OK together; only when call_is_write_ready. */
void call_finish_with(struct call *call, const ProtobufCMessage *last);

#endif
