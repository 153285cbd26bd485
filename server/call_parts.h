/* What a port and its calls know of each other. */
#ifndef SERVER_CALL_PARTS_H
#define SERVER_CALL_PARTS_H

#include <assert.h>
#include <grpc/grpc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "base/home.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "server/call.h"
#include "server/port.h"

/* How old a call gets, at least, before its peer's going away is watched; at most twice that. */
enum { UNWATCHED_MS = 5 };

/* A call's operations, each at most once under way; the last two are the port's own. */
enum op_kind { OP_REQUEST, OP_READ, OP_WRITE, OP_CLOSE, N_CALL_OPS, OP_SHUTDOWN, OP_THREAD_GONE };

/* The tag of a completion queue event. The queue's thread fills ok and posts it. */
struct op {
    struct link link;
    struct call *call; /* NULL for the port's own */
    enum op_kind kind;
    bool ok;
    /* Given to gRPC and not back yet. Atomic because gRPC's own ordering is out of sight of
     * ThreadSanitizer: op_give releases what op_take acquires. */
    atomic_bool is_out;
};

static inline void op_give(struct op *op)
{
    assert(!atomic_load_explicit(&op->is_out, memory_order_relaxed));
    atomic_store_explicit(&op->is_out, true, memory_order_release);
}

static inline void op_take(struct op *op, bool ok)
{
    assert(atomic_load_explicit(&op->is_out, memory_order_acquire));
    atomic_store_explicit(&op->is_out, false, memory_order_relaxed);
    op->ok = ok;
}

/* Of each method: a burst of so many calls costs no extra trip. gRPC, built with its assertions as
 * Debian's is, goes through all that wait in each of its operations; so only methods whose calls
 * come in bursts have many. */
enum { CALLS_WAITING_MIN = 2, CALLS_WAITING_MAX = 64 };

/* A row of the dispatcher as gRPC core knows it; the last one, without rpc, takes the calls to
 * unknown methods. */
struct method {
    const struct rpc *rpc;
    void *registered;
    size_t n_waiting, n_wanted; /* calls that wait for a peer; twice as many once all were taken */
};

struct poller {
    struct port *port;
    struct op gone;
    uv_thread_t thread;
    bool is_started;
};

struct port {
    struct home home;
    struct mailbox mailbox;
    uv_prepare_t prepare; /* attends to what the loop's own calls brought about */
    uv_idle_t idle;       /* runs while prepare has left something */
    uv_timer_t tick;      /* runs while there are young calls, or reads put off */
    grpc_server *server;
    grpc_completion_queue *queue;
    struct method *methods; /* [n_methods] */
    size_t n_methods;
    struct poller *pollers; /* [n_pollers] */
    size_t n_pollers, n_pollers_gone;
    char **addresses; /* [n_addresses] as bound */
    size_t n_addresses;
    struct daemon *daemon;
    const struct env *env;
    size_t max_message_bytes, max_calls;
    struct list live;          /* calls in flight */
    struct list spare;         /* calls that may be used again, at most MAX_SPARE */
    struct list back;          /* ops that came back on the loop's own thread */
    struct list ready;         /* calls to be attended to */
    struct list young;         /* calls begun since the last tick, not watched */
    struct list older;         /* calls begun in the tick before */
    struct list put_off;       /* calls that read behind a write, since the last tick */
    struct list put_off_older; /* the same of the tick before */
    size_t n_live, n_spare;
    size_t n_requested; /* calls that wait for a peer */
    uint64_t n_started, n_failed;
    bool is_draining, is_stopping, is_shut_down;
    struct op shutdown;
    unsigned n_handles; /* open ones of the loop's */
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* Has gRPC fill calls when peers begin them, until as many wait as are wanted. */
void call_request_more(struct port *p, struct method *method);
/* An operation is back. */
void call_op_back(struct op *op);
/* From port->ready: writes what was held back, or gives the handler its turn. */
void call_attend(struct call *call);
/* Cancelled from our side: the peer sees UNAVAILABLE. */
void call_cancel(struct call *call);
struct call *call_from_live(struct link *link);
struct call *call_from_ready(struct link *link);
void call_free_spare(struct link *link);

/* Takes message; NULL, and it is the caller's still, without memory. */
struct call_bytes *call_bytes_make(grpc_byte_buffer *message);
grpc_byte_buffer *call_pieces_join(const struct call_piece *pieces, size_t n_pieces);

/* The client sends a stream of messages, the first of which is not there when the call begins. */
static inline bool rpc_is_fed(const struct rpc *rpc)
{
    return rpc->kind == RPC_BIDI || rpc->kind == RPC_CLIENT_STREAM;
}

/* The peer's going away is watched from now on. */
void call_watch_young(struct link *young);
/* Has it watched if it lives for UNWATCHED_MS more. */
void port_add_young(struct port *p, struct link *young);
/* A read that was put off begins, if the call still wants it. */
void call_read_now(struct link *put_off);
/* Has it read if it has written nothing for UNWATCHED_MS more. */
void port_put_off(struct port *p, struct link *put_off);

/* Progress of a stop. */
void port_maybe_stopped(struct port *p);

/* Addresses (listen.c). The real address is *out (xalloc); addresses keep what they were given but
 * the port number. */
enum status listen_add(char **out, grpc_server *server, const char *address,
                       struct error *err) MUST_CHECK;
/* Removes a socket file; does nothing for other addresses. */
void listen_remove(const char *address);

#endif
