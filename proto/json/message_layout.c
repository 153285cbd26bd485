#include "proto/json/message_layout.h"

#include <string.h>

#include "proto/descriptors.h"

size_t message_value_size(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return sizeof(uint32_t);
    }
}

static const char map_entry_mark;

void message_mark_map_entry(ProtobufCMessageDescriptor *type)
{
    type->reserved1 = (void *)(uintptr_t)&map_entry_mark; /* protobuf-c has no place for it */
}

bool message_field_is_map(const ProtobufCFieldDescriptor *f)
{
    const ProtobufCMessageDescriptor *type = f->descriptor;
    const struct descriptor_symbol *symbol;

    if (f->label != PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE ||
        type->n_fields != 2)
        return false;
    if (type->reserved1 == &map_entry_mark)
        return true;
    symbol = descriptor_find_symbol(type->name);
    return symbol != NULL && symbol->kind == DESCRIPTOR_MAP_ENTRY;
}

bool message_is_duration(const ProtobufCMessageDescriptor *type)
{
    return strcmp(type->name, "google.protobuf.Duration") == 0;
}

/* The next character of a name in lowerCamelCase; *at moves behind it. */
static char camel_next(const char **at)
{
    char c = *(*at)++;

    if (c != '_' || **at == '\0')
        return c;
    c = *(*at)++;
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

bool message_name_is(const char *name, const char *key)
{
    const char *at = name, *k = key;

    while (*at != '\0' && *k != '\0' && camel_next(&at) == *k)
        k++;
    return (*at == '\0' && *k == '\0' && k > key) || strcmp(name, key) == 0;
}

void message_name_write(char *out, size_t size, const char *name)
{
    const char *at = name;
    size_t n = 0;

    while (*at != '\0' && n < size - 1)
        out[n++] = camel_next(&at);
    out[n] = '\0';
}
