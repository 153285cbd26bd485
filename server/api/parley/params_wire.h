/* Converts between parley.v1.Params and the server's types. */
#ifndef SERVER_API_PARLEY_PARAMS_WIRE_H
#define SERVER_API_PARLEY_PARAMS_WIRE_H

#include "parley/v1/params.pb-c.h"
#include "proto/chunk.h"
#include "server/call/call.h"
#include "server/params/params.h"
#include "server/params/upload.h"

/* Of one message: a tensor's description is four fields. */
enum { PARAMS_WIRE_MAX_FIELDS = 4 * PARAMS_MAX_TENSORS + CALL_MAX_FIELDS };

/* A message of a stream that uploads numbers. ParamsUpload and ParamsCreateRequest are alike: a
 * header in field 1, chunks in field 2, the hash in field 3; ParamsUpload's field 4 asks for
 * memory.
 */
enum params_part_kind {
    PARAMS_PART_HEADER,
    PARAMS_PART_CHUNK,
    PARAMS_PART_SHA256,
    PARAMS_PART_MEMORY, /* of ParamsUpload alone */
};

struct params_part {
    enum params_part_kind kind;
    const ProtobufCMessage *message; /* all but a chunk: in the arena */
    const uint8_t *sha256;           /* [SHA256_BYTES] NULL: it is empty */
    struct chunk chunk;              /* in the bytes */
};

/* A chunk is not copied. STATUS_INVALID for bytes that are no such message. */
enum status params_part_read(struct params_part *out, const struct call_bytes *bytes,
                             const ProtobufCMessageDescriptor *type, struct arena *arena,
                             struct error *err) MUST_CHECK;

/* Whom the set is shared with; borrows the names. */
/* Texts stay the message's; other memory comes from arena. */
enum status params_wire_config(struct params_spec *out, const Parley__V1__ParamsConfig *from,
                               struct arena *arena, struct error *err) MUST_CHECK;
/* What params_describe keeps of a set. */
enum status params_wire_describe(struct params_set *set, const Parley__V1__ParamsConfig *from,
                                 struct error *err) MUST_CHECK;
/* The caller's tensors are the set's; one without a name is called as the set's. n 0: not compared.
 */
enum status params_wire_match(const struct params_set *set, Parley__V1__TensorSpec *const *specs,
                              size_t n, struct error *err) MUST_CHECK;
enum status params_wire_tensors(const struct tensor_view **out,
                                Parley__V1__TensorSpec *const *specs, size_t n, struct arena *arena,
                                struct error *err) MUST_CHECK;

#endif
