/* What a transport supplies, and what it does with the calls that it carries. A transport's struct
 * of a call begins with struct call; when a peer has begun the call, the transport fills in the
 * members and calls method->start. From then on it tells the handler of what happens, at the end by
 * call_tell_close. */
#ifndef SERVER_CALL_TRANSPORT_H
#define SERVER_CALL_TRANSPORT_H

#include "base/owner_thread.h"
#include "server/call/methods.h"

/* The functions of call.h that depend on how messages travel; their contracts stand there. */
struct call_transport {
    const char *(*header)(struct call *call, const char *key);
    bool (*is_write_ready)(const struct call *call);
    void (*write)(struct call *call, const ProtobufCMessage *message, bool more);
    void (*write_pieces)(struct call *call, const struct call_piece *pieces, size_t n_pieces,
                         bool more);
    void (*notify)(struct call *call);
    void (*read)(struct call *call, bool is_behind); /* is_behind: as call_read_behind */
    /* Ends the call as call_finish does. last is a message that goes before the status, or NULL. */
    void (*finish)(struct call *call, const struct error *err, const ProtobufCMessage *last);
};

struct call {
    const struct call_transport *transport;
    const struct call_method *method;
    const struct owner_thread *owner;
    struct server *server;
    struct health *health;
    const struct principal *principal;
    const ProtobufCMessage *request; /* NULL where the client streams */
    struct arena arena;
    uint64_t deadline_us;
    bool is_passed_on;   /* another daemon passed the call on: it is not passed on again */
    size_t *n_unawaited; /* the transport's count of calls whose handler is_unawaited */
    const struct call_handler *handler;
    void *handler_state;
};

/* Each calls the handler's function of its name, if the handler has that function. */
void call_tell_write_ready(struct call *call);
void call_tell_drain(struct call *call);
/* Calls on_close. The transport calls no function of the handler afterwards. */
void call_tell_close(struct call *call, enum status why);

#endif
