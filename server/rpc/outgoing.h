/* Calls of methods of other daemons. A call has one stream of messages in each direction; what is
 * sent and received are encoded messages. All functions are called on the loop. */
#ifndef SERVER_RPC_OUTGOING_H
#define SERVER_RPC_OUTGOING_H

#include <stdbool.h>
#include <uv.h>

#include "server/call/call.h"

struct outgoing_port;
struct outgoing_call;

/* Paths of PEM files, read for each new connection. All are borrowed for the outgoing's life. */
struct outgoing_config {
    const char *certificate; /* shown to the peer; NULL: connections are not encrypted */
    const char *private_key;
    const char *ca; /* of the peers' certificates; NULL: the system's */
};

/* Starts the thread that waits for gRPC. EXHAUSTED. */
enum status outgoing_start(struct outgoing_port **out, uv_loop_t *loop,
                           const struct outgoing_config *config, struct error *err) MUST_CHECK;
/* Cancels the calls in flight, whose handlers are not called any more, and frees o; then calls
 * stopped, on the loop and never inside. */
void outgoing_stop(struct outgoing_port *o, void (*stopped)(void *arg), void *arg);

/* The callbacks of a call. None is called inside a function of this header. */
struct outgoing_handler {
    /* A message has come that outgoing_read asked for; takes bytes. */
    void (*message)(void *arg, struct call_bytes *bytes);
    /* What outgoing_send was given is out, and the next message may be sent. May be NULL. */
    void (*sent)(void *arg);
    /* The call is over, with the peer's status; called once, and the call is freed. UNAVAILABLE
     * without a reason: the peer cannot be reached, or went away. is_unsent: it has not got the
     * request. */
    void (*end)(void *arg, const struct error *err, bool is_unsent);
};

struct outgoing_start {
    const char *address, *method;    /* "10.0.0.1:8001", "/parley.v1.Conversations/Turn" */
    const char *header, *value;      /* metadata that goes with the call */
    uint64_t deadline_us;            /* env's monotonic clock; 0: none */
    uint64_t now_us;                 /* of the same clock */
    const struct call_piece *pieces; /* [n_pieces] the only message; NULL: outgoing_send follows */
    size_t n_pieces;
};

/* Begins a call, which borrows start until it returns. */
struct outgoing_call *outgoing_begin(struct outgoing_port *o, const struct outgoing_start *start,
                                     const struct outgoing_handler *handler, void *arg);
/* Sends a message; one at a time, before outgoing_half_close. */
void outgoing_send(struct outgoing_call *c, const struct call_piece *pieces, size_t n_pieces);
/* No message follows. What was sent last must be out. */
void outgoing_half_close(struct outgoing_call *c);
/* Asks for the next message; one at a time. */
void outgoing_read(struct outgoing_call *c);
/* Cancels the call, whose handler is not called any more. c is invalid. */
void outgoing_cancel(struct outgoing_call *c);

#endif
