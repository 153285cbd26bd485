/* A bidirectional stream with blocking calls, on a completion queue of its own: for bulk
 * transfers. One thread at a time. */
#ifndef CLIENT_LIB_STREAM_H
#define CLIENT_LIB_STREAM_H

#include "client/lib/parts.h"

struct call_stream {
    struct parley_call call; /* as outcome_of_call reads it; not in a channel's list */
    grpc_completion_queue *queue;
    bool is_over; /* the status is in call */
};

/* NULL without memory. The channel outlives it. */
struct call_stream *stream_open(struct parley_channel *channel, const char *method);
void stream_close(struct call_stream *s); /* cancels operations in flight; NULL is fine */

/* Both take the message; false when the stream is over. */
bool stream_send_message(struct call_stream *s, const ProtobufCMessage *message);
bool stream_send(struct call_stream *s, grpc_byte_buffer *message);
void stream_half_close(struct call_stream *s);
/* The next message, the caller's; NULL when the stream is over. */
grpc_byte_buffer *stream_receive(struct call_stream *s);
/* How it ended; cancels it if it has not. */
enum parley_status stream_end(struct call_stream *s, struct parley_error *err);

#endif
