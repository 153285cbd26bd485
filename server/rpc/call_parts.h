/* The port's interface to its calls. */
#ifndef SERVER_RPC_CALL_PARTS_H
#define SERVER_RPC_CALL_PARTS_H

#include <grpc/grpc.h>

#include "server/rpc/queue.h"

struct call_bytes;
struct call_piece;
struct error;

/* Pre-requested calls of each method: a burst of so many calls costs no extra round trip. gRPC,
 * built with its assertions as Debian's is, scans all of them in each of its operations; so only
 * methods whose calls come in bursts have many. */
enum { CALLS_WAITING_MIN = 2, CALLS_WAITING_MAX = 64 };

/* Requests calls from gRPC, which fills them when peers begin them, until n_wanted are waiting. */
void call_request_more(struct rpc_queue *q, struct method *method);
/* An operation is back. */
void call_op_back(struct rpc_op *op);
/* From q->ready: writes a held-back message, or calls the handler. */
void call_attend(struct call *call);
/* The queue's on_tick: watches the calls and begins the reads that have waited for a whole tick. */
void call_tick(struct rpc_queue *q);
/* The server drains. */
void call_drain(struct call *call);
/* Ends the call with err and its trailers, whatever its handler does: what that still writes is
 * dropped, and its on_close comes with CANCELLED. A call that is ending already is left alone. */
void call_cut(struct call *call, const struct error *err);
/* The same at the port's end; the queue counts those that are not released yet. */
void call_end(struct call *call, const struct error *err);
/* Cancels it: the peer sees UNAVAILABLE without trailers, if it sees anything. */
void call_cancel(struct call *call);
/* Ends the call if its key was revoked: the peer sees UNAUTHENTICATED. */
void call_check_key(struct call *call);
struct call *call_from_live(struct link *link);
struct call *call_from_ready(struct link *link);
void call_free_spare(struct link *link);

/* Takes message. NULL without memory: message stays the caller's. */
struct call_bytes *call_bytes_make(grpc_byte_buffer *message);
grpc_byte_buffer *call_pieces_join(const struct call_piece *pieces, size_t n_pieces);

#endif
