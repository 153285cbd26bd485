/* Writes any message of protobuf-c as JSON by its descriptor, as protobuf's mapping says. A field's
 * kind decides the form of its value; well-known types have forms of their own. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json/message_layout.h"
#include "proto/json/protobuf_json.h"

enum { NAME_MAX_BYTES = 96, FLOAT_DIGITS_MIN = 6, FLOAT_DIGITS_MAX = 9 };

static void protobuf_write_value(struct json_writer *w, const char *name,
                                 const ProtobufCFieldDescriptor *f, const void *value);

/* The fewest digits from which the same float is read back. */
static void protobuf_write_float(struct json_writer *w, const char *name, float value)
{
    char text[32];
    int digits = FLOAT_DIGITS_MIN;

    if (!isfinite(value)) {
        json_write_exact(w, name, (double)value);
        return;
    }
    for (; digits < FLOAT_DIGITS_MAX; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    json_write_real(w, name, (double)value, digits);
}

static void protobuf_write_enum(struct json_writer *w, const char *name,
                                const ProtobufCEnumDescriptor *type, int32_t value)
{
    const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(type, value);

    if (known == NULL)
        json_write_signed(w, name, value);
    else
        json_write_text(w, name, known->name);
}

/* Seconds and nanoseconds, of one sign, with 0, 3, 6 or 9 digits behind the point; out of range it
 * has no form, and is written all the same. */
static void protobuf_write_duration(struct json_writer *w, const char *name,
                                    const ProtobufCMessage *m)
{
    int64_t seconds;
    int32_t nanos;
    char text[DURATION_MAX_BYTES];
    int len;

    memcpy(&seconds, message_member(m, &m->descriptor->fields[0]), sizeof(seconds));
    memcpy(&nanos, message_member(m, &m->descriptor->fields[1]), sizeof(nanos));
    len = snprintf(text, sizeof(text), "%s%" PRId64 ".%09" PRId64,
                   nanos < 0 && seconds == 0 ? "-" : "", seconds,
                   nanos < 0 ? -(int64_t)nanos : nanos);
    for (int digits = 9; digits > 0 && memcmp(text + len - 3, "000", 3) == 0; digits -= 3)
        len -= 3;
    if (text[len - 1] == '.')
        len--;
    memcpy(text + len, "s", 2);
    json_write_text(w, name, text);
}

/* A map's key is a string, whatever its type is. */
static void protobuf_write_key(struct json_writer *w, const ProtobufCFieldDescriptor *f,
                               const void *value)
{
    char text[24];
    const char *key = text;
    uint64_t bits = 0;

    if (f->type != PROTOBUF_C_TYPE_STRING)
        memcpy(&bits, value, message_value_size(f));
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        key = *(char *const *)value == NULL ? "" : *(char *const *)value;
        break;
    case PROTOBUF_C_TYPE_BOOL:
        key = bits != 0 ? "true" : "false";
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        (void)snprintf(text, sizeof(text), "%" PRId32, (int32_t)bits);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        (void)snprintf(text, sizeof(text), "%" PRId64, (int64_t)bits);
        break;
    default:
        (void)snprintf(text, sizeof(text), "%" PRIu64, bits);
        break;
    }
    json_write_name(w, key, strlen(key));
}

static void protobuf_write_map(struct json_writer *w, const char *name,
                               const ProtobufCFieldDescriptor *f, ProtobufCMessage *const *entries,
                               size_t n)
{
    const ProtobufCFieldDescriptor *fields =
        ((const ProtobufCMessageDescriptor *)f->descriptor)->fields;

    json_begin_object(w, name);
    for (size_t i = 0; i < n; i++) {
        protobuf_write_key(w, &fields[0], message_member(entries[i], &fields[0]));
        protobuf_write_value(w, NULL, &fields[1], message_member(entries[i], &fields[1]));
    }
    json_end_object(w);
}

static void protobuf_write_message(struct json_writer *w, const char *name,
                                   const ProtobufCFieldDescriptor *f, const ProtobufCMessage *m)
{
    if (m != NULL) {
        protobuf_json_write(w, name, m);
    } else { /* a map's value that the peer did not send */
        json_begin_object(w, name);
        json_end_object(w);
    }
}

static void protobuf_write_value(struct json_writer *w, const char *name,
                                 const ProtobufCFieldDescriptor *f, const void *value)
{
    const ProtobufCBinaryData *bytes = value;
    const char *text;

    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        json_write_signed(w, name, *(const int32_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        json_write_unsigned(w, name, *(const uint32_t *)value);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        json_write_format(w, name, "%" PRId64, *(const int64_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        json_write_format(w, name, "%" PRIu64, *(const uint64_t *)value);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        protobuf_write_float(w, name, *(const float *)value);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        json_write_exact(w, name, *(const double *)value);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        json_write_bool(w, name, *(const protobuf_c_boolean *)value != 0);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        protobuf_write_enum(w, name, f->descriptor, *(const int32_t *)value);
        break;
    case PROTOBUF_C_TYPE_STRING:
        text = *(char *const *)value;
        json_write_text(w, name, text == NULL ? "" : text);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        json_write_base64(w, name, bytes->data, bytes->len);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        protobuf_write_message(w, name, f, *(ProtobufCMessage *const *)value);
        break;
    }
}

static void protobuf_write_list(struct json_writer *w, const char *name,
                                const ProtobufCFieldDescriptor *f, const char *values, size_t n)
{
    json_begin_array(w, name);
    for (size_t i = 0; i < n; i++)
        protobuf_write_value(w, NULL, f, values + i * message_value_size(f));
    json_end_array(w);
}

/* Of a field without presence: whether it is not the default, which is left out. */
static bool protobuf_is_set(const ProtobufCFieldDescriptor *f, const void *value)
{
    const ProtobufCBinaryData *bytes = value;
    const char *text;
    uint64_t bits = 0;

    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        text = *(char *const *)value;
        return text != NULL && text[0] != '\0';
    case PROTOBUF_C_TYPE_BYTES:
        return bytes->len > 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        return *(ProtobufCMessage *const *)value != NULL;
    default:
        memcpy(&bits, value, message_value_size(f));
        return bits != 0;
    }
}

static bool protobuf_is_present(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const void *value = message_member(m, f), *quantifier = message_quantifier(m, f);

    if (message_field_is_of_oneof(f))
        return *(const uint32_t *)quantifier == f->id;
    if (f->label == PROTOBUF_C_LABEL_REQUIRED)
        return true;
    if (f->label != PROTOBUF_C_LABEL_OPTIONAL)
        return protobuf_is_set(f, value);
    if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(void *const *)value != NULL && *(void *const *)value != f->default_value;
    return *(const protobuf_c_boolean *)quantifier != 0;
}

void protobuf_json_write(struct json_writer *w, const char *name, const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;

    if (message_is_duration(type)) {
        protobuf_write_duration(w, name, message);
        return;
    }
    json_begin_object(w, name);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        const void *value = message_member(message, f);
        char camel[NAME_MAX_BYTES];
        size_t n;

        message_name_write(camel, sizeof(camel), f->name);
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            n = *(const size_t *)message_quantifier(message, f);
            if (n > 0 && message_field_is_map(f))
                protobuf_write_map(w, camel, f, *(ProtobufCMessage *const *const *)value, n);
            else if (n > 0)
                protobuf_write_list(w, camel, f, *(const char *const *)value, n);
        } else if (protobuf_is_present(message, f)) {
            protobuf_write_value(w, camel, f, value);
        }
    }
    json_end_object(w);
}
