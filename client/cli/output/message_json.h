/* Any protobuf message as JSON, by its descriptor: the names are those of the .proto files. */
#ifndef CLIENT_CLI_OUTPUT_MESSAGE_JSON_H
#define CLIENT_CLI_OUTPUT_MESSAGE_JSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* Numbers, texts and lists are included even when zero or empty; messages, and members of a oneof,
 * only where they are set; maps are objects; a number of 64 bits beyond INT64_MAX is a text. The
 * caller owns the result. */
json_t *message_json(const ProtobufCMessage *message);

/* Whether both say the same. A number is its value: some programs write 1 where they read 1.0. */
bool message_json_is_same(const json_t *a, const json_t *b);

#endif
