/* Messages of a foreign service from JSON, by protobuf's mapping (proto/json): what a server's
 * reflection says of a message takes the place of the code that protoc generates. Groups, and names
 * that a .proto file gives by json_name, are not known. */
#ifndef CLIENT_CLI_BENCH_PROTO_JSON_H
#define CLIENT_CLI_BENCH_PROTO_JSON_H

#include <jansson.h>

#include "base/buf.h"
#include "base/status.h"
#include "client/cli/bench/proto_schema.h"

/* Appends the message's bytes. STATUS_INVALID, with the field's place, for JSON that does not fit;
 * STATUS_NOT_FOUND if the schema lacks a type; STATUS_EXHAUSTED past the buffer's limit. */
enum status proto_json_encode(struct buf *out, const struct proto_schema *schema,
                              const char *message, const json_t *json,
                              struct error *err) MUST_CHECK;

#endif
