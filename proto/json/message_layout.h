/* How protobuf-c lays a message out, for who reads or writes its fields by its descriptor. */
#ifndef PROTO_JSON_MESSAGE_LAYOUT_H
#define PROTO_JSON_MESSAGE_LAYOUT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DURATION_MAX_BYTES = 40, MESSAGE_FIELDS_MAX = 256 };
/* Of either sign: ten thousand years. */
#define DURATION_MAX_S INT64_C(315576000000)

/* A field's value in a message, or where its array's address is. */
static inline void *message_member(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    return (char *)m + f->offset;
}

/* A oneof's case, whether the value is there, or how many there are: of the type that the field's
 * flags and label say. */
static inline void *message_quantifier(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    return (char *)m + f->quantifier_offset;
}

static inline bool message_field_is_of_oneof(const ProtobufCFieldDescriptor *f)
{
    return (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;
}

/* Size of one value. */
size_t message_value_size(const ProtobufCFieldDescriptor *f);
/* Whether the field is a map; its type's fields are then the key and the value, in this order. */
bool message_field_is_map(const ProtobufCFieldDescriptor *f);
/* Says that the type is that of a map's entries, for types that are made while the program runs:
 * those of our .proto files are known. */
void message_mark_map_entry(ProtobufCMessageDescriptor *type);
bool message_is_duration(const ProtobufCMessageDescriptor *type);

/* Whether key is the name, or the name in lowerCamelCase. */
bool message_name_is(const char *name, const char *key);
/* Writes name in lowerCamelCase, cut at size. */
void message_name_write(char *out, size_t size, const char *name);

#endif
