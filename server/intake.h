/* The client's side of a stream that brings numbers: a header, chunks, the hash. Decides what may
 * come when, keeps the stream reading while the upload has room, and ends the call with what goes
 * wrong. */
#ifndef SERVER_INTAKE_H
#define SERVER_INTAKE_H

#include "server/call.h"
#include "server/params_wire.h"
#include "server/upload.h"

struct intake;

struct intake_kind {
    const ProtobufCMessageDescriptor *type; /* of the stream's messages */
    /* The message that begins an upload, with the memory of this turn only; the handler calls
     * intake_begin, or intake_fail. */
    void (*header)(struct intake *in, const ProtobufCMessage *message);
    /* The upload is there and right; its block is to be taken by upload_take(in->upload). */
    void (*complete)(struct intake *in);
    /* The client half-closed where a header was due, or with an upload that is empty. */
    void (*closed)(struct intake *in);
};

struct intake {
    struct call *call;
    const struct intake_kind *kind;
    struct upload *upload; /* under way, or NULL */
    bool is_reading;
    bool is_complete; /* the hash has come: nothing is read until intake_next */
    bool is_over;     /* the call has been ended */
};

/* Reads the first header. */
void intake_init(struct intake *in, struct call *call, const struct intake_kind *kind);
/* The call's bytes and gone come here. */
void intake_bytes(struct intake *in, struct call_bytes *bytes);
void intake_gone(struct intake *in);

/* An upload begins; a failure ends the call. */
void intake_begin(struct intake *in, const struct upload_config *config);
/* What was complete is done with: a next header may come. */
void intake_next(struct intake *in);
/* Ends the call. Does nothing when it is ended. */
void intake_fail(struct intake *in, const struct error *err);

#endif
