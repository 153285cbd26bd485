#include "client/lib/stream.h"

#include <assert.h>
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>

#include "proto/codec.h"

/* Runs ops and waits; false when they failed. */
static bool stream_start_batch(struct call_stream *s, const grpc_op *ops, size_t n)
{
    grpc_call_error rc = grpc_call_start_batch(s->call.core, ops, n, s, NULL);
    grpc_event event;

    assert(rc == GRPC_CALL_OK);
    (void)rc;
    event = grpc_completion_queue_pluck(s->queue, s, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    return event.type == GRPC_OP_COMPLETE && event.success != 0;
}

struct call_stream *stream_open(struct parley_channel *channel, const char *method)
{
    static const struct call_kind none = {0};
    struct call_stream *s = (struct call_stream *)parley_call_make(sizeof(*s), &none);
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    grpc_slice path;

    if (s == NULL)
        return NULL;
    path = grpc_slice_from_copied_string(method);
    s->call.channel = channel;
    s->queue = grpc_completion_queue_create_for_pluck(NULL);
    s->call.core = grpc_channel_create_call(channel->core, NULL, GRPC_PROPAGATE_DEFAULTS, s->queue,
                                            path, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    grpc_slice_unref(path);
    op.data.send_initial_metadata.count = channel->n_keys;
    op.data.send_initial_metadata.metadata = &channel->key;
    (void)stream_start_batch(s, &op, 1); /* a failure is reported when messages are sent */
    return s;
}

bool stream_send(struct call_stream *s, grpc_byte_buffer *message)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    bool is_sent;

    op.data.send_message.send_message = message;
    is_sent = !s->is_over && stream_start_batch(s, &op, 1);
    grpc_byte_buffer_destroy(message);
    return is_sent;
}

bool stream_send_message(struct call_stream *s, const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(codec_size(message));
    grpc_byte_buffer *bytes;

    (void)codec_encode(message, GRPC_SLICE_START_PTR(slice));
    bytes = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return stream_send(s, bytes);
}

void stream_half_close(struct call_stream *s)
{
    const grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    if (!s->is_over)
        (void)stream_start_batch(s, &op, 1); /* if the stream is over, the next read fails */
}

grpc_byte_buffer *stream_receive(struct call_stream *s)
{
    grpc_byte_buffer *message = NULL;
    grpc_op ops[2] = {{.op = GRPC_OP_RECV_MESSAGE}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    bool has_headers = s->call.n_out > 0;

    if (s->is_over)
        return NULL;
    ops[0].data.recv_message.recv_message = &message;
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &s->call.headers;
    s->call.n_out = 1;                                     /* the headers are requested once */
    (void)stream_start_batch(s, ops, has_headers ? 1 : 2); /* on a failure the message is NULL */
    return message;
}

enum parley_status stream_end(struct call_stream *s, struct parley_error *err)
{
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    grpc_byte_buffer *rest;

    while ((rest = stream_receive(s)) != NULL) /* gRPC delivers the status after all messages */
        grpc_byte_buffer_destroy(rest);
    if (!s->is_over) {
        op.data.recv_status_on_client.status = &s->call.status;
        op.data.recv_status_on_client.status_details = &s->call.details;
        op.data.recv_status_on_client.trailing_metadata = &s->call.trailers;
        (void)stream_start_batch(s, &op, 1); /* always completes */
        s->is_over = true;
    }
    outcome_of_call(err, &s->call);
    return err->status;
}

void stream_close(struct call_stream *s)
{
    struct parley_error ignored;

    if (s == NULL)
        return;
    (void)grpc_call_cancel(s->call.core, NULL);
    (void)stream_end(s, &ignored);
    grpc_slice_unref(s->call.details);
    grpc_call_unref(s->call.core);
    grpc_completion_queue_shutdown(s->queue);
    grpc_completion_queue_destroy(s->queue);
    parley_call_unref(&s->call);
}
