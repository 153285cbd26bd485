/* The port's interface to its calls. */
#ifndef SERVER_RPC_CALL_PARTS_H
#define SERVER_RPC_CALL_PARTS_H

#include <grpc/grpc.h>

#include "server/rpc/queue.h"

struct call_bytes;
struct call_piece;
struct error;
struct rpc_call;

/* Pre-requested calls of each method: a burst of so many calls costs no extra round trip. gRPC,
 * built with its assertions as Debian's is, scans all of them in each of its operations; so only
 * methods whose calls come in bursts have many. */
enum { CALLS_WAITING_MIN = 2, CALLS_WAITING_MAX = 64 };

/* Requests calls from gRPC, which fills them when peers begin them, until n_wanted are waiting. */
void rpc_call_request_more(struct rpc_queue *q, struct rpc_method *method);
/* An operation is back. */
void rpc_call_op_back(struct rpc_op *op);
/* From q->ready: writes a held-back message, or calls the handler. */
void rpc_call_attend(struct rpc_call *call);
/* The queue's on_tick: watches the calls and begins the reads that have waited for a whole tick. */
void rpc_call_tick(struct rpc_queue *q);
/* The server drains. */
void rpc_call_drain(struct rpc_call *call);
/* Ends the call with err and its trailers, whatever its handler does: what that still writes is
 * dropped, and its on_close comes with CANCELLED. A call that is ending already is left alone. */
void rpc_call_cut(struct rpc_call *call, const struct error *err);
/* The same at the port's end; the queue counts those that are not released yet. */
void rpc_call_end(struct rpc_call *call, const struct error *err);
/* Cancels it: the peer sees UNAVAILABLE without trailers, if it sees anything. */
void rpc_call_cancel(struct rpc_call *call);
/* Ends the call if its key was revoked: the peer sees UNAUTHENTICATED. */
void rpc_call_check_key(struct rpc_call *call);
struct rpc_call *rpc_call_from_live(struct link *link);
struct rpc_call *rpc_call_from_ready(struct link *link);
void rpc_call_free_spare(struct link *link);

/* Takes message. NULL without memory: message stays the caller's. */
struct call_bytes *call_bytes_make(grpc_byte_buffer *message);
grpc_byte_buffer *call_pieces_join(const struct call_piece *pieces, size_t n_pieces);

#endif
