/* The completion queue of a port, and the state that the port and its calls share: the operations
 * given to gRPC, and the lists of calls. The queue knows neither the port nor the calls. Loop, but
 * rpc_queue_take. */
#ifndef SERVER_RPC_QUEUE_H
#define SERVER_RPC_QUEUE_H

#include <assert.h>
#include <grpc/grpc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "base/env.h"
#include "base/list.h"
#include "base/owner_thread.h"
#include "base/shared_limit.h"
#include "server/access/access.h"
#include "server/call/call_stats.h"

struct call_method;
struct health;
struct rpc_call;
struct server;

/* Minimum age of a call before its peer's disconnect is watched; the maximum is twice that. */
enum { UNWATCHED_MS = 5 };

/* A call's operations, each at most once in flight; the last two are the port's own. */
enum op_kind { OP_REQUEST, OP_READ, OP_WRITE, OP_CLOSE, N_CALL_OPS, OP_SHUTDOWN, OP_THREAD_EXITED };

/* The tag of a completion queue event. The queue's thread sets ok and posts it. */
struct rpc_op {
    struct link link;
    struct rpc_call *call; /* NULL for the port's own */
    enum op_kind kind;
    bool ok;
    uint64_t came_us; /* when gRPC returned a request; known only where keys are configured */
    /* Given to gRPC and not returned yet. Atomic because ThreadSanitizer cannot see gRPC's own
     * ordering: rpc_op_give releases what rpc_op_take acquires. */
    atomic_bool is_out;
};

/* Notes that op is given to gRPC. Called just before. */
static inline void rpc_op_give(struct rpc_op *op)
{
    assert(!atomic_load_explicit(&op->is_out, memory_order_relaxed));
    atomic_store_explicit(&op->is_out, true, memory_order_release);
}

/* Notes that gRPC has returned op. Called by the thread that polls. */
static inline void rpc_op_take(struct rpc_op *op, bool ok)
{
    assert(atomic_load_explicit(&op->is_out, memory_order_acquire));
    atomic_store_explicit(&op->is_out, false, memory_order_relaxed);
    op->ok = ok;
}

/* A method as gRPC core knows it; the last one, without row, takes calls to unknown methods. */
struct rpc_method {
    const struct call_method *row;
    void *registered;
    size_t n_waiting; /* calls requested from gRPC that no peer has begun */
    size_t n_wanted;  /* how many shall wait; doubles once all were used */
};

struct rpc_queue {
    struct owner_thread owner;
    grpc_server *server; /* NULL once it is destroyed */
    grpc_completion_queue *events;
    uv_timer_t tick; /* runs while calls are unwatched, or reads are delayed */
    void (*on_tick)(struct rpc_queue *q);
    struct server *carried; /* handed to handlers */
    struct health *health;
    const struct access *access; /* NULL: no keys */
    enum status (*admit_passed)(void *arg, const char *pass, size_t len, enum access_level level,
                                const struct access_key **out, struct error *err); /* NULL: none */
    void *admit_arg;
    const struct env *env;
    size_t max_message_bytes, max_calls;
    struct shared_limit calls; /* calls in flight of callers with a valid key */
    struct list live;          /* calls in flight */
    struct list spare;         /* calls for reuse, at most MAX_SPARE */
    struct list back;          /* operations that came back on the loop's own thread */
    struct list ready;         /* calls for rpc_call_attend */
    struct list unwatched;     /* calls begun since the last tick */
    struct list unwatched_old; /* calls begun in the tick before */
    struct list delayed;       /* calls whose read has waited for a write since the last tick */
    struct list delayed_old;   /* calls whose read has waited since the tick before */
    size_t n_live, n_spare;
    size_t n_unawaited;       /* live calls whose handler is_unawaited */
    size_t n_ending;          /* live calls that were live at the port's end */
    size_t n_requested;       /* calls requested from gRPC */
    struct call_stats *stats; /* counts the live calls, too */
    bool is_draining, is_refusing, is_stopping, is_shut_down;
};

/* Makes a queue with empty lists and all else zero. on_tick is called every UNWATCHED_MS while the
 * timer runs. */
void rpc_queue_init(struct rpc_queue *q, void (*on_tick)(struct rpc_queue *q));
/* Opens the timer on the loop. The port closes the timer. */
void rpc_queue_open_tick(struct rpc_queue *q, uv_loop_t *loop);

/* Links a call into a list that the tick handles, and starts the timer. */
void rpc_queue_await_tick(struct rpc_queue *q, struct list *list, struct link *link);

/* Takes an operation that gRPC has returned, and notes when a request came. Any thread. */
void rpc_queue_take(const struct rpc_queue *q, struct rpc_op *op, bool ok);

/* Stand before and behind each call into gRPC core. close returns one operation that completed in
 * between, which then does not go to the queue's thread, or NULL. */
void rpc_queue_cache_open(struct rpc_queue *q);
struct rpc_op *rpc_queue_cache_close(struct rpc_queue *q);

/* Destroys the server and shuts the queue down, if the server is shut down and no call is left. */
void rpc_queue_maybe_stopped(struct rpc_queue *q);

#endif
