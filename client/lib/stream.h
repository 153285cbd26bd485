/* A stream both ways that its caller waits on, message by message, on a queue of its own: for those
 * that move much. One thread at a time. */
#ifndef CLIENT_LIB_STREAM_H
#define CLIENT_LIB_STREAM_H

#include "client/lib/parts.h"

struct stream {
    struct parley_call call; /* as outcome_of_call reads it; on no channel's list */
    grpc_completion_queue *queue;
    bool is_over; /* the status is in call */
};

/* NULL without memory. The channel outlives it. */
struct stream *stream_open(struct parley_channel *channel, const char *method);
void stream_close(struct stream *s); /* cancels what is under way; NULL is fine */

/* Both take the message; false when the stream is over. */
bool stream_send_message(struct stream *s, const ProtobufCMessage *message);
bool stream_send(struct stream *s, grpc_byte_buffer *message);
void stream_half_close(struct stream *s);
/* The next message, the caller's; NULL when the stream is over. */
grpc_byte_buffer *stream_receive(struct stream *s);
/* How it ended: cancels it if it did not. */
enum parley_status stream_end(struct stream *s, struct parley_error *err);

#endif
