/* The messages and methods of a gRPC service, as the server describes them by reflection. Names are
 * full ones: "parley.v1.Tensor". */
#ifndef CLIENT_CLI_BENCH_PROTO_SCHEMA_H
#define CLIENT_CLI_BENCH_PROTO_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"
#include "client/lib/parley.h"
#include "google/protobuf/descriptor.pb-c.h"

enum { PROTO_SCHEMA_MAX_FILES = 256, PROTO_SCHEMA_MAX_BYTES = 64 << 20 };

struct proto_schema {
    struct arena arena; /* of the files */
    const Google__Protobuf__FileDescriptorProto *files[PROTO_SCHEMA_MAX_FILES];
    size_t n_files;
};

void proto_schema_init(struct proto_schema *s);
void proto_schema_deinit(struct proto_schema *s);

/* Asks the server for the service's file and all that it imports. */
enum status proto_schema_read(struct proto_schema *s, struct parley_channel *channel,
                              const char *service, struct error *err) MUST_CHECK;
/* Adds a file: a FileDescriptorProto's bytes. One that is there already is left out. */
enum status proto_schema_add(struct proto_schema *s, const void *data, size_t len,
                             struct error *err) MUST_CHECK;

/* NULL: there is none. A dot before the name, as in type_name, is fine. */
const Google__Protobuf__DescriptorProto *proto_schema_message(const struct proto_schema *s,
                                                              const char *name);
const Google__Protobuf__EnumDescriptorProto *proto_schema_enum(const struct proto_schema *s,
                                                               const char *name);
const Google__Protobuf__MethodDescriptorProto *
proto_schema_method(const struct proto_schema *s, const char *service, const char *method);

#endif
