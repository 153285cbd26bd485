/* Messages from JSON, by protobuf's mapping: fields under their name or their lowerCamelCase one,
 * enums as names or numbers, 64-bit numbers also as texts, bytes in base64, maps as objects. The
 * well-known types (google.protobuf.Timestamp, …) have no texts of their own: they are messages. */
#ifndef CLIENT_CLI_BENCH_PROTO_JSON_H
#define CLIENT_CLI_BENCH_PROTO_JSON_H

#include <jansson.h>

#include "base/buf.h"
#include "base/status.h"
#include "client/cli/bench/proto_schema.h"

/* Appends the message's bytes. STATUS_INVALID, with the field's path, for JSON that does not fit;
 * STATUS_UNIMPLEMENTED for a group; STATUS_EXHAUSTED past the buffer's limit. */
enum status proto_json_encode(struct buf *out, const struct proto_schema *schema,
                              const char *message, const json_t *json,
                              struct error *err) MUST_CHECK;

#endif
