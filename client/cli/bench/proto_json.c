/* Makes protobuf-c's descriptor of a message, and of all messages in it, from what a server's
 * reflection says of them. By these the JSON becomes a message in memory (proto/json), and the
 * message bytes. */
#include "client/cli/bench/proto_json.h"

#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/json/message_layout.h"
#include "proto/json/protobuf_json.h"

typedef Google__Protobuf__DescriptorProto message_descriptor;
typedef Google__Protobuf__FieldDescriptorProto field_descriptor;
typedef Google__Protobuf__EnumDescriptorProto enum_descriptor;

/* REPEATED: the label of repeated fields */
enum { REPEATED = 3, MESSAGE_MAX_BYTES = 256 << 20, TYPES_MAX = 4096 };

/* A message's type; its fields are filled in after it is in the list, since types contain each
 * other. */
struct made_type {
    ProtobufCMessageDescriptor type;
    const message_descriptor *of;
    struct made_type *next;
};

struct type_maker {
    const struct proto_schema *schema;
    struct arena *arena;
    struct made_type *first, **last; /* in the order in which they are filled in */
    size_t n;
};

static const struct {
    ProtobufCType type;
    bool is_known;
} types[] = {
    [1] = {PROTOBUF_C_TYPE_DOUBLE, true},    [2] = {PROTOBUF_C_TYPE_FLOAT, true},
    [3] = {PROTOBUF_C_TYPE_INT64, true},     [4] = {PROTOBUF_C_TYPE_UINT64, true},
    [5] = {PROTOBUF_C_TYPE_INT32, true},     [6] = {PROTOBUF_C_TYPE_FIXED64, true},
    [7] = {PROTOBUF_C_TYPE_FIXED32, true},   [8] = {PROTOBUF_C_TYPE_BOOL, true},
    [9] = {PROTOBUF_C_TYPE_STRING, true},    [10] = {0, false}, /* a group */
    [11] = {PROTOBUF_C_TYPE_MESSAGE, true},  [12] = {PROTOBUF_C_TYPE_BYTES, true},
    [13] = {PROTOBUF_C_TYPE_UINT32, true},   [14] = {PROTOBUF_C_TYPE_ENUM, true},
    [15] = {PROTOBUF_C_TYPE_SFIXED32, true}, [16] = {PROTOBUF_C_TYPE_SFIXED64, true},
    [17] = {PROTOBUF_C_TYPE_SINT32, true},   [18] = {PROTOBUF_C_TYPE_SINT64, true},
};

static enum status no_memory_for_types(struct error *err)
{
    return error_no_memory(err, 0, "the request's types");
}

/* --- enums --- */

static int compare_values(const void *a, const void *b)
{
    return strcmp(((const ProtobufCEnumValueIndex *)a)->name,
                  ((const ProtobufCEnumValueIndex *)b)->name);
}

/* As far as names become numbers. */
static enum status enum_of(const ProtobufCEnumDescriptor **out, struct type_maker *m,
                           const char *name, struct error *err)
{
    const enum_descriptor *of = proto_schema_enum(m->schema, name);
    ProtobufCEnumDescriptor *e = arena_alloc(m->arena, 1, sizeof(*e));
    ProtobufCEnumValue *values;
    ProtobufCEnumValueIndex *names;

    if (of == NULL)
        return error_set(err, STATUS_NOT_FOUND, "its reflection does not describe %s",
                         name + (*name == '.'));
    values = arena_alloc(m->arena, of->n_value, sizeof(values[0]));
    names = arena_alloc(m->arena, of->n_value, sizeof(names[0]));
    if (e == NULL || values == NULL || names == NULL)
        return no_memory_for_types(err);
    for (unsigned i = 0; i < of->n_value; i++) {
        values[i] = (ProtobufCEnumValue){.name = of->value[i]->name, .value = of->value[i]->number};
        names[i] = (ProtobufCEnumValueIndex){of->value[i]->name, i};
    }
    qsort(names, of->n_value, sizeof(names[0]), compare_values);
    *e = (ProtobufCEnumDescriptor){.magic = PROTOBUF_C__ENUM_DESCRIPTOR_MAGIC,
                                   .name = of->name,
                                   .n_values = (unsigned)of->n_value,
                                   .values = values,
                                   .n_value_names = (unsigned)of->n_value,
                                   .values_by_name = names};
    *out = e;
    return STATUS_OK;
}

/* --- messages --- */

/* The type of this name, which is filled in later if it is new. */
static enum status type_of(const ProtobufCMessageDescriptor **out, struct type_maker *m,
                           const char *name, struct error *err)
{
    const message_descriptor *of = proto_schema_message(m->schema, name);
    struct made_type *t = m->first;

    name += *name == '.';
    if (of == NULL)
        return error_set(err, STATUS_NOT_FOUND, "its reflection does not describe %s", name);
    while (t != NULL && t->of != of)
        t = t->next;
    if (t == NULL) {
        t = m->n == TYPES_MAX ? NULL : arena_alloc(m->arena, 1, sizeof(*t));
        if (t == NULL)
            return no_memory_for_types(err);
        t->of = of;
        t->type = (ProtobufCMessageDescriptor){
            .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC, .name = name, .short_name = of->name};
        if (of->options != NULL && of->options->map_entry)
            message_mark_map_entry(&t->type);
        *m->last = t;
        m->last = &t->next;
        m->n++;
    }
    *out = &t->type;
    return STATUS_OK;
}

static bool is_packable(ProtobufCType type)
{
    return type != PROTOBUF_C_TYPE_STRING && type != PROTOBUF_C_TYPE_BYTES &&
           type != PROTOBUF_C_TYPE_MESSAGE;
}

/* Lays the field out behind what the message has, at *size. */
static enum status make_field(ProtobufCFieldDescriptor *out, struct type_maker *m,
                              const field_descriptor *of, size_t *size, struct error *err)
{
    enum { SLOT = sizeof(uint64_t) };
    const ProtobufCMessageDescriptor *message = NULL;
    const ProtobufCEnumDescriptor *named = NULL;
    enum status rc = STATUS_OK;

    *out = (ProtobufCFieldDescriptor){
        .name = of->name, .id = (uint32_t)of->number, .type = types[of->type].type};
    out->label = of->label == REPEATED ? PROTOBUF_C_LABEL_REPEATED : PROTOBUF_C_LABEL_OPTIONAL;
    if (out->type == PROTOBUF_C_TYPE_ENUM) {
        rc = enum_of(&named, m, of->type_name, err);
        out->descriptor = named;
    } else if (out->type == PROTOBUF_C_TYPE_MESSAGE) {
        rc = type_of(&message, m, of->type_name, err);
        out->descriptor = message;
    }
    if (rc != STATUS_OK)
        return rc;
    if (is_packable(out->type) && out->label == PROTOBUF_C_LABEL_REPEATED)
        out->flags = PROTOBUF_C_FIELD_FLAG_PACKED;
    out->quantifier_offset = (unsigned)*size;
    out->offset = (unsigned)*size + SLOT;
    *size += SLOT + (message_value_size(out) + SLOT - 1) / SLOT * SLOT;
    return STATUS_OK;
}

static enum status fill_type(struct made_type *t, struct type_maker *m, struct error *err)
{
    const size_t n = t->of->n_field;
    ProtobufCFieldDescriptor *fields = arena_alloc(m->arena, n, sizeof(fields[0]));
    size_t size = sizeof(ProtobufCMessage), n_known = 0;

    if (fields == NULL)
        return no_memory_for_types(err);
    if (n > MESSAGE_FIELDS_MAX)
        return error_set(err, STATUS_RANGE, "%.80s has more than %d fields", t->of->name,
                         (int)MESSAGE_FIELDS_MAX);
    for (size_t i = 0; i < n; i++) {
        const field_descriptor *of = t->of->field[i];

        if (of->type <= 0 || (size_t)of->type >= sizeof(types) / sizeof(types[0]) ||
            !types[of->type].is_known)
            continue;
        if (make_field(&fields[n_known++], m, of, &size, err) != STATUS_OK)
            return err->status;
    }
    t->type.fields = fields;
    t->type.n_fields = (unsigned)n_known;
    t->type.sizeof_message = size;
    return STATUS_OK;
}

static enum status make_types(const ProtobufCMessageDescriptor **out, struct arena *arena,
                              const struct proto_schema *schema, const char *message,
                              struct error *err)
{
    struct type_maker m = {.schema = schema, .arena = arena};

    m.last = &m.first;
    if (type_of(out, &m, message, err) != STATUS_OK)
        return err->status;
    for (struct made_type *t = m.first; t != NULL; t = t->next)
        if (fill_type(t, &m, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

enum status proto_json_encode(struct buf *out, const struct proto_schema *schema,
                              const char *message, const json_t *json, struct error *err)
{
    const ProtobufCMessageDescriptor *type;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;
    size_t size;

    arena_init(&arena, MESSAGE_MAX_BYTES);
    rc = make_types(&type, &arena, schema, message, err);
    if (rc == STATUS_OK)
        rc = protobuf_json_read(&m, type, json, CODEC_ANY_FIELDS, &arena, err);
    if (rc == STATUS_OK) {
        size = codec_size(m);
        if (buf_reserve(out, size) == STATUS_OK)
            out->len += codec_encode(m, (uint8_t *)out->data + out->len);
        else
            rc =
                error_set(err, STATUS_EXHAUSTED, "the request is too large or memory is exhausted");
    }
    arena_deinit(&arena);
    return rc;
}
