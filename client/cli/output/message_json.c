#include "client/cli/output/message_json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "proto/json/message_layout.h"
#include "proto/words.h"

/* A text from the wire may be invalid UTF-8; JSON must not. */
static json_t *message_json_text(const char *text)
{
    json_t *json = json_string(text == NULL ? "" : text);

    return json == NULL ? json_string("\xef\xbf\xbd") : json;
}

static json_t *enum_json(const ProtobufCFieldDescriptor *field, int value)
{
    char word[WORD_CHARS];

    return json_string(enum_word(word, field->descriptor, value));
}

/* JSON's integers have a sign here: a greater number is a text, as in protobuf's mapping each is.
 */
static json_t *unsigned_json(uint64_t value)
{
    return value > INT64_MAX ? json_sprintf("%" PRIu64, value) : json_integer((json_int_t)value);
}

/* NULL for a message that is not set. */
static json_t *value_json(const ProtobufCFieldDescriptor *field, const void *at)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return json_integer(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return json_integer(*(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return json_integer(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return unsigned_json(*(const uint64_t *)at);
    case PROTOBUF_C_TYPE_FLOAT:
        return json_real((double)*(const float *)at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return json_real(*(const double *)at);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        return enum_json(field, *(const int *)at);
    case PROTOBUF_C_TYPE_STRING:
        return message_json_text(*(const char *const *)at);
    case PROTOBUF_C_TYPE_BYTES:
        return json_integer((json_int_t)((const ProtobufCBinaryData *)at)->len);
    case PROTOBUF_C_TYPE_MESSAGE:
        break;
    }
    return *(const ProtobufCMessage *const *)at == NULL
               ? NULL
               : message_json(*(const ProtobufCMessage *const *)at);
}

static json_t *map_json(const ProtobufCMessage *const *entries, size_t n)
{
    json_t *object = json_object();

    for (size_t i = 0; i < n; i++) {
        const ProtobufCFieldDescriptor *fields = entries[i]->descriptor->fields;
        const void *at = message_member(entries[i], &fields[0]);
        char number[16];

        if (fields[0].type == PROTOBUF_C_TYPE_INT32)
            (void)snprintf(number, sizeof(number), "%d", *(const int32_t *)at); /* it fits */
        (void)json_object_set_new(
            object, fields[0].type == PROTOBUF_C_TYPE_INT32 ? number : *(const char *const *)at,
            value_json(&fields[1], message_member(entries[i], &fields[1])));
    }
    return object;
}

static json_t *list_json(const ProtobufCFieldDescriptor *field, const char *values, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(list,
                                    value_json(field, values + i * message_value_size(field)));
    return list;
}

static bool is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    bool is_pointer =
        field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;

    if (message_field_is_of_oneof(field))
        return *(const uint32_t *)message_quantifier(m, field) == field->id;
    if (field->label == PROTOBUF_C_LABEL_OPTIONAL && !is_pointer)
        return *(const protobuf_c_boolean *)message_quantifier(m, field) != 0;
    if (field->label == PROTOBUF_C_LABEL_OPTIONAL || field->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(const void *const *)message_member(m, field) != NULL;
    return true;
}

json_t *message_json(const ProtobufCMessage *message)
{
    json_t *object = json_object();

    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const void *at = message_member(message, field);
        json_t *value = NULL;

        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t n = *(const size_t *)message_quantifier(message, field);

            value = message_field_is_map(field)
                        ? map_json(*(const ProtobufCMessage *const *const *)at, n)
                        : list_json(field, *(const char *const *)at, n);
        } else if (is_set(message, field)) {
            value = value_json(field, at);
        }
        if (value != NULL)
            (void)json_object_set_new(object, field->name, value);
    }
    return object;
}

/* --- comparing --- */

/* Reals are those of messages, floats, of which a line has as many digits as tell them apart. */
static bool is_same_number(const json_t *a, const json_t *b)
{
    const json_t *real = json_is_real(a) ? a : b, *other = real == a ? b : a;
    const double value = json_real_value(real);

    if (json_is_real(other))
        return (float)value == (float)json_real_value(other);
    if (!json_is_real(real))
        return json_integer_value(a) == json_integer_value(b);
    return value >= -0x1p63 && value < 0x1p63 && value == (double)(json_int_t)value &&
           (json_int_t)value == json_integer_value(other);
}

bool message_json_is_same(const json_t *a, const json_t *b)
{
    const size_t n = json_array_size(a);
    const char *name;
    json_t *member;

    if (json_is_number(a) && json_is_number(b))
        return is_same_number(a, b);
    if (json_typeof(a) != json_typeof(b) || json_object_size(a) != json_object_size(b) ||
        n != json_array_size(b))
        return false;
    json_object_foreach((json_t *)(uintptr_t)a, name, member) /* only read */
    {
        const json_t *there = json_object_get(b, name);

        if (there == NULL || !message_json_is_same(member, there))
            return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!message_json_is_same(json_array_get(a, i), json_array_get(b, i)))
            return false;
    return json_is_object(a) || json_is_array(a) || json_equal(a, b);
}
