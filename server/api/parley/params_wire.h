/* Converts between parley.v1.Params and the server's types. */
#ifndef SERVER_API_PARLEY_PARAMS_WIRE_H
#define SERVER_API_PARLEY_PARAMS_WIRE_H

#include "parley/v1/params.pb-c.h"
#include "proto/chunk.h"
#include "server/call/call.h"
#include "server/params/params.h"
#include "server/params/upload.h"

/* The most fields of one message: a tensor's description has four. */
enum { PARAMS_WIRE_MAX_FIELDS = 4 * PARAMS_MAX_TENSORS + CALL_MAX_FIELDS };

/* The kinds of messages of a stream that uploads numbers. ParamsUpload and ParamsCreateRequest are
 * alike: field 1 is a header, field 2 a chunk, field 3 the hash. Field 4 of ParamsUpload asks for
 * memory. */
enum params_part_kind {
    PARAMS_PART_HEADER,
    PARAMS_PART_CHUNK,
    PARAMS_PART_SHA256,
    PARAMS_PART_MEMORY, /* of ParamsUpload alone */
};

struct params_part {
    enum params_part_kind kind;
    const ProtobufCMessage *message; /* in the arena; NULL for a chunk */
    const uint8_t *sha256;           /* [SHA256_BYTES] the hash; NULL: the client gave none */
    struct chunk chunk;              /* a view of the received bytes */
};

/* Reads a message. A chunk is not copied. INVALID for bytes that are no such message. */
enum status params_part_read(struct params_part *out, const struct call_bytes *bytes,
                             const ProtobufCMessageDescriptor *type, struct arena *arena,
                             struct error *err) MUST_CHECK;

/* Reads what a new set is. Its texts are the message's, all else lies in the arena. */
enum status params_wire_config(struct params_spec *out, const Parley__V1__ParamsConfig *from,
                               struct arena *arena, struct error *err) MUST_CHECK;
/* Gives the set what params_describe keeps of the message. */
enum status params_wire_describe(struct params_set *set, const Parley__V1__ParamsConfig *from,
                                 struct error *err) MUST_CHECK;
/* Checks that the caller's n tensors are the set's, in order. A tensor without a name has the set's
 * name of its place. n 0: the caller gave none, and nothing is compared. */
enum status params_wire_match(const struct params_set *set, Parley__V1__TensorSpec *const *specs,
                              size_t n, struct error *err) MUST_CHECK;
/* Makes views of the n tensors, in the arena, without their numbers. INVALID names the field. */
enum status params_wire_tensors(const struct tensor_view **out,
                                Parley__V1__TensorSpec *const *specs, size_t n, struct arena *arena,
                                struct error *err) MUST_CHECK;

#endif
