/* parley.v1.Params to what the server works with, and back. */
#ifndef SERVER_PARAMS_WIRE_H
#define SERVER_PARAMS_WIRE_H

#include "parley/v1/params.pb-c.h"
#include "proto/chunk.h"
#include "server/call.h"
#include "server/params.h"
#include "server/upload.h"

/* A message of a stream that brings numbers: ParamsUpload or ParamsCreateRequest, which are alike:
 * a header in field 1, chunks in field 2, the hash in field 3. */
enum params_part_kind { PARAMS_PART_HEADER, PARAMS_PART_CHUNK, PARAMS_PART_SHA256 };

struct params_part {
    enum params_part_kind kind;
    const ProtobufCMessage *message; /* all but a chunk: in the arena */
    const uint8_t *sha256;           /* [SHA256_BYTES] */
    struct chunk chunk;              /* in the bytes */
};

/* A chunk is read where it lies. STATUS_INVALID for what is no such message. */
enum status params_part_read(struct params_part *out, const struct call_bytes *bytes,
                             const ProtobufCMessageDescriptor *type, struct arena *arena,
                             struct error *err) MUST_CHECK;

/* Texts stay the message's; what else it needs is in arena. */
enum status params_wire_config(struct params_spec *out, const Parley__V1__ParamsConfig *from,
                               struct arena *arena, struct error *err) MUST_CHECK;
enum status params_wire_tensors(const struct tensor_view **out,
                                Parley__V1__TensorSpec *const *specs, size_t n, struct arena *arena,
                                struct error *err) MUST_CHECK;

#endif
