/* Protocol buffers to and from JSON, by protobuf's JSON mapping. Names are lowerCamelCase; a reader
 * takes the .proto file's names as well. 64-bit numbers are strings, bytes are base64, values of
 * enums are names, maps are objects, a google.protobuf.Duration is "1.5s", and what is not set is
 * left out. google.protobuf.Any has no form here: no message of a method holds one. */
#ifndef PROTO_JSON_PROTOBUF_JSON_H
#define PROTO_JSON_PROTOBUF_JSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/json_writer.h"
#include "base/status.h"

/* Writes the message as a value of this name (base/json_writer.h). */
void protobuf_json_write(struct json_writer *w, const char *name, const ProtobufCMessage *message);

/* Makes a message of a JSON value, which is borrowed: the message holds none of it. type has at
 * most MESSAGE_FIELDS_MAX fields (message_layout.h). A failure may leave some of the arena used.
 * STATUS_INVALID for a value that is no such message: err->field is the place, "messages[1].text".
 * A name that the message has not is refused, and so are a field or a member of a oneof that is
 * given twice, a number that the field cannot hold, messages nested too deep, and more than
 * max_fields fields (as codec_decode counts them, but for packed numbers, which count each).
 * STATUS_INVALID past the arena's limit, STATUS_EXHAUSTED without memory. */
enum status protobuf_json_read(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                               const json_t *value, size_t max_fields, struct arena *arena,
                               struct error *err) MUST_CHECK;

#endif
