/* What a port of gRPC and its queue know of a call (call.c). All functions are called on the
 * loop. */
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

/* Requests calls of the method from gRPC until n_wanted of them wait. gRPC fills a requested call
 * when a peer begins one. */
void rpc_call_request_more(struct rpc_queue *q, struct rpc_method *method);
/* Handles an operation that gRPC has returned (rpc_queue_take). */
void rpc_call_op_back(struct rpc_op *op);
/* Handles a call of the list ready: writes the message that was held back, or calls the handler. */
void rpc_call_attend(struct rpc_call *call);
/* The queue's on_tick: watches the calls, and begins the reads, that have waited for a whole tick.
 */
void rpc_call_tick(struct rpc_queue *q);
/* Tells the call's handler that the server drains. */
void rpc_call_drain(struct rpc_call *call);
/* Ends the call with err and its trailers, whatever its handler does: what the handler still writes
 * is dropped, and its on_close comes with CANCELLED. A call that is ending already is left alone.
 */
void rpc_call_cut(struct rpc_call *call, const struct error *err);
/* Ends the call likewise at the port's end. The queue counts the call until it is released. */
void rpc_call_end(struct rpc_call *call, const struct error *err);
/* Cancels the call: the peer sees UNAVAILABLE without trailers, if it sees anything. */
void rpc_call_cancel(struct rpc_call *call);
/* Ends the call if its key was revoked: the peer sees UNAUTHENTICATED. */
void rpc_call_check_key(struct rpc_call *call);
/* Return the call whose link in the list live or ready this is. */
struct rpc_call *rpc_call_from_live(struct link *link);
struct rpc_call *rpc_call_from_ready(struct link *link);
/* Frees the call whose link in the list spare this is. */
void rpc_call_free_spare(struct link *link);

/* Makes call_bytes of a message, and takes the message. Returns NULL without memory: the message
 * stays the caller's. */
struct call_bytes *call_bytes_make(grpc_byte_buffer *message);
/* Makes one message of the pieces. Pieces with a release are borrowed until that is called. */
grpc_byte_buffer *call_pieces_join(const struct call_piece *pieces, size_t n_pieces);

#endif
