/* What a client sends on a stream that uploads numbers: a header, chunks, the hash. The stream
 * enforces the order of these messages, reads on while the upload accepts chunks, and ends the call
 * on an error. Loop. */
#ifndef SERVER_API_PARLEY_PARAMS_UPLOAD_STREAM_H
#define SERVER_API_PARLEY_PARAMS_UPLOAD_STREAM_H

#include "server/api/parley/params_wire.h"
#include "server/call/call.h"
#include "server/params/upload.h"

struct upload_stream;

struct upload_stream_kind {
    const ProtobufCMessageDescriptor *type; /* of the stream's messages */
    /* The message that begins an upload; its memory is valid only inside. The handler calls
     * upload_stream_begin, or upload_stream_fail. */
    void (*header)(struct upload_stream *in, const ProtobufCMessage *message);
    /* The client asks for memory, between two uploads; the message is as header's. The handler
     * calls upload_stream_next once it was told of, or upload_stream_fail. NULL: it is refused. */
    void (*memory)(struct upload_stream *in, const ProtobufCMessage *message);
    /* The upload is complete and its hash is right; upload_take(in->upload) takes its block. */
    void (*complete)(struct upload_stream *in);
    /* The client half-closed in place of a header, or with an empty upload. */
    void (*closed)(struct upload_stream *in);
};

struct upload_stream {
    struct call *call;
    const struct upload_stream_kind *kind;
    struct upload *upload; /* under way, or NULL */
    bool is_reading;
    bool is_complete; /* nothing is read until upload_stream_next: the hash has come, or memory is
                         asked for */
    bool is_over;     /* the call has been ended */
};

/* Begins the stream, and asks for the first header. */
void upload_stream_init(struct upload_stream *in, struct call *call,
                        const struct upload_stream_kind *kind);
/* Are called from the functions bytes and on_close of the call's handler. */
void upload_stream_bytes(struct upload_stream *in, struct call_bytes *bytes);
void upload_stream_close(struct upload_stream *in);

/* Begins an upload; a failure ends the call. */
void upload_stream_begin(struct upload_stream *in, const struct upload_config *config);
/* Says that the complete upload, or the request for memory, has been handled: the next header may
 * come. */
void upload_stream_next(struct upload_stream *in);
/* Ends the call. Does nothing if it has ended. */
void upload_stream_fail(struct upload_stream *in, const struct error *err);

#endif
