/* Encodes a JSON object as a protobuf message, by the descriptors of the message's type. An error
 * says which member does not fit. */
#include "client/cli/bench/proto_json.h"

#include <math.h>
#include <string.h>

#include "base/number.h"

typedef Google__Protobuf__DescriptorProto message_descriptor;
typedef Google__Protobuf__FieldDescriptorProto field_descriptor;
typedef Google__Protobuf__EnumDescriptorProto enum_descriptor;

enum { MAX_DEPTH = 32, REPEATED = 3 /* REPEATED: the label of repeated fields */ };

/* FieldDescriptorProto.Type */
enum proto_type {
    PROTO_DOUBLE = 1,
    PROTO_FLOAT,
    PROTO_INT64,
    PROTO_UINT64,
    PROTO_INT32,
    PROTO_FIXED64,
    PROTO_FIXED32,
    PROTO_BOOL,
    PROTO_STRING,
    PROTO_GROUP,
    PROTO_MESSAGE,
    PROTO_BYTES,
    PROTO_UINT32,
    PROTO_ENUM,
    PROTO_SFIXED32,
    PROTO_SFIXED64,
    PROTO_SINT32,
    PROTO_SINT64,
};

/* How bytes follow a field's number. */
enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LENGTH = 2, WIRE_32 = 5 };

struct proto_writer {
    const struct proto_schema *schema;
    unsigned depth;
};

static enum status request_too_large(struct error *err)
{
    return error_set(err, STATUS_EXHAUSTED, "the request is too large or memory is exhausted");
}

static enum status misfit(const char *wanted, struct error *err)
{
    return error_set(err, STATUS_INVALID, "it is not a valid %s", wanted);
}

/* --- bytes --- */

static enum status wire_put_varint(struct buf *out, uint64_t value)
{
    unsigned char bytes[10];
    size_t n = 0;

    for (; value > 127; value >>= 7)
        bytes[n++] = (unsigned char)(value | 128);
    bytes[n++] = (unsigned char)value;
    return buf_append(out, bytes, n);
}

/* Little end first. */
static enum status wire_put_fixed(struct buf *out, uint64_t value, size_t n)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    return buf_append(out, bytes, n);
}

static enum wire_type wire_type_of(int type)
{
    switch (type) {
    case PROTO_DOUBLE:
    case PROTO_FIXED64:
    case PROTO_SFIXED64:
        return WIRE_64;
    case PROTO_FLOAT:
    case PROTO_FIXED32:
    case PROTO_SFIXED32:
        return WIRE_32;
    case PROTO_STRING:
    case PROTO_MESSAGE:
    case PROTO_BYTES:
        return WIRE_LENGTH;
    default:
        return WIRE_VARINT;
    }
}

static enum status wire_put_key(struct buf *out, int32_t number, enum wire_type wire)
{
    return wire_put_varint(out, (uint64_t)(uint32_t)number << 3 | (uint64_t)wire);
}

/* A length, then those bytes. */
static enum status wire_put_whole(struct buf *out, int32_t number, const struct buf *bytes)
{
    enum status rc = wire_put_key(out, number, WIRE_LENGTH);

    if (rc == STATUS_OK)
        rc = wire_put_varint(out, bytes->len);
    return rc == STATUS_OK ? buf_append(out, bytes->data, bytes->len) : rc;
}

/* --- numbers and texts --- */

static bool is_wide(int type)
{
    return type == PROTO_INT64 || type == PROTO_UINT64 || type == PROTO_FIXED64 ||
           type == PROTO_SFIXED64 || type == PROTO_SINT64;
}

static bool is_unsigned(int type)
{
    return type == PROTO_UINT64 || type == PROTO_FIXED64 || type == PROTO_UINT32 ||
           type == PROTO_FIXED32;
}

/* A whole number, or a text that is one, in two's complement. */
static enum status json_read_whole(uint64_t *out, int type, const json_t *json, struct error *err)
{
    const char *text = json_string_value(json);
    const bool is_negative = text != NULL && *text == '-';
    const uint64_t most = is_negative         ? (uint64_t)INT64_MAX + 1
                          : is_unsigned(type) ? UINT64_MAX
                                              : INT64_MAX;
    int64_t value;

    if (text != NULL) {
        if (!number_read(out, text + is_negative, most))
            return misfit("whole number", err);
        if (is_negative)
            *out = 0 - *out;
        value = !is_negative && *out > INT64_MAX ? INT64_MAX : (int64_t)*out;
    } else if (json_is_integer(json)) {
        value = (int64_t)json_integer_value(json);
        *out = (uint64_t)value;
    } else {
        return misfit("whole number", err);
    }
    if ((is_unsigned(type) && value < 0) ||
        (!is_wide(type) && (is_unsigned(type) ? value > (int64_t)UINT32_MAX
                                              : value > INT32_MAX || value < INT32_MIN)))
        return error_set(err, STATUS_INVALID, "the number is out of its type's range");
    return STATUS_OK;
}

static enum status json_read_real(double *out, const json_t *json, struct error *err)
{
    const char *text = json_string_value(json);

    if (json_is_number(json))
        *out = json_number_value(json);
    else if (text != NULL && strcmp(text, "NaN") == 0)
        *out = NAN;
    else if (text != NULL && strcmp(text, "Infinity") == 0)
        *out = INFINITY;
    else if (text != NULL && strcmp(text, "-Infinity") == 0)
        *out = -INFINITY;
    else
        return misfit("number", err);
    return STATUS_OK;
}

static enum status wire_put_real(struct buf *out, int type, const json_t *json, struct error *err)
{
    double wide = 0;
    float narrow;
    uint64_t bits = 0;
    uint32_t narrow_bits = 0;
    enum status rc = json_read_real(&wide, json, err);

    if (rc != STATUS_OK)
        return rc;
    memcpy(&bits, &wide, sizeof(bits));
    if (type == PROTO_DOUBLE)
        rc = wire_put_fixed(out, bits, 8);
    else if (isfinite(wide) && fabs(wide) > 3.4028235677973366e38) /* rounds to infinity */
        return error_set(err, STATUS_INVALID, "the number is out of its type's range");
    else {
        narrow = (float)wide;
        memcpy(&narrow_bits, &narrow, sizeof(narrow_bits));
        rc = wire_put_fixed(out, narrow_bits, 4);
    }
    return rc == STATUS_OK ? rc : request_too_large(err);
}

static enum status wire_put_enum(struct buf *out, const struct proto_writer *w,
                                 const char *type_name, const json_t *json, struct error *err)
{
    const enum_descriptor *e = proto_schema_enum(w->schema, type_name);
    const char *name = json_string_value(json);
    uint64_t value;
    enum status rc;

    if (name == NULL) {
        rc = json_read_whole(&value, PROTO_INT32, json, err);
        if (rc == STATUS_OK && wire_put_varint(out, value) != STATUS_OK)
            rc = request_too_large(err);
        return rc;
    }
    for (size_t i = 0; e != NULL && i < e->n_value; i++)
        if (strcmp(e->value[i]->name, name) == 0)
            return wire_put_varint(out, (uint64_t)(int64_t)e->value[i]->number) == STATUS_OK
                       ? STATUS_OK
                       : request_too_large(err);
    return error_set(err, STATUS_INVALID, "%s has no value '%.60s'",
                     type_name + (*type_name == '.'), name);
}

/* A value that is a number on the wire, without its key. */
static enum status wire_put_scalar(struct buf *out, const struct proto_writer *w,
                                   const field_descriptor *f, const json_t *json, struct error *err)
{
    uint64_t value;
    enum status rc;

    switch (f->type) {
    case PROTO_DOUBLE:
    case PROTO_FLOAT:
        return wire_put_real(out, f->type, json, err);
    case PROTO_ENUM:
        return wire_put_enum(out, w, f->type_name, json, err);
    case PROTO_BOOL:
        if (!json_is_boolean(json))
            return misfit("Boolean", err);
        return wire_put_varint(out, json_is_true(json)) == STATUS_OK ? STATUS_OK
                                                                     : request_too_large(err);
    default:
        break;
    }
    rc = json_read_whole(&value, f->type, json, err);
    if (rc != STATUS_OK)
        return rc;
    if (f->type == PROTO_SINT32 || f->type == PROTO_SINT64) /* zigzag: the sign is the lowest bit */
        value = value << 1 ^ (uint64_t)((int64_t)value >> 63);
    switch (wire_type_of(f->type)) {
    case WIRE_64:
        rc = wire_put_fixed(out, value, 8);
        break;
    case WIRE_32:
        rc = wire_put_fixed(out, value, 4);
        break;
    default:
        rc = wire_put_varint(out, value);
    }
    return rc == STATUS_OK ? rc : request_too_large(err);
}

/* Either alphabet; padding may be missing. */
static enum status wire_put_base64(struct buf *out, const char *text, struct error *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    size_t n = 0, n_pads = 0;

    for (; *text != '\0'; text++) {
        char c = *text == '-' ? '+' : *text == '_' ? '/' : *text;
        const char *digit = strchr(digits, c);
        unsigned char byte;

        if (c == '=' && ++n_pads <= 2)
            continue;
        if (digit == NULL || n_pads > 0)
            return misfit("base64", err);
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (++n % 4 == 1)
            continue;
        byte = (unsigned char)(bits >> 2 * (3 - (n + 3) % 4));
        if (buf_append(out, &byte, 1) != STATUS_OK)
            return request_too_large(err);
    }
    return n % 4 == 1 ? misfit("base64", err) : STATUS_OK;
}

/* --- messages --- */

static enum status wire_put_message(struct buf *out, struct proto_writer *w, const char *type_name,
                                    const json_t *json, struct error *err);

/* One value of a field, with its key. */
static enum status wire_put_value(struct buf *out, struct proto_writer *w,
                                  const field_descriptor *f, const json_t *json, struct error *err)
{
    struct buf bytes;
    enum status rc;

    buf_init(&bytes, out->limit_bytes);
    switch (f->type) {
    case PROTO_MESSAGE:
        rc = wire_put_message(&bytes, w, f->type_name, json, err);
        break;
    case PROTO_STRING:
        rc = !json_is_string(json) ? misfit("text", err)
             : buf_append(&bytes, json_string_value(json), json_string_length(json)) == STATUS_OK
                 ? STATUS_OK
                 : request_too_large(err);
        break;
    case PROTO_BYTES:
        rc = json_is_string(json) ? wire_put_base64(&bytes, json_string_value(json), err)
                                  : misfit("base64", err);
        break;
    case PROTO_GROUP:
        rc = error_set(err, STATUS_UNIMPLEMENTED, "it is a group");
        break;
    default:
        rc = wire_put_key(out, f->number, wire_type_of(f->type)) == STATUS_OK
                 ? wire_put_scalar(out, w, f, json, err)
                 : request_too_large(err);
    }
    if (rc == STATUS_OK && wire_type_of(f->type) == WIRE_LENGTH &&
        wire_put_whole(out, f->number, &bytes) != STATUS_OK)
        rc = request_too_large(err);
    buf_deinit(&bytes);
    return rc;
}

/* Numbers lie packed in one value; others follow each other. */
static enum status wire_put_array(struct buf *out, struct proto_writer *w,
                                  const field_descriptor *f, const json_t *array, struct error *err)
{
    bool is_packed = wire_type_of(f->type) != WIRE_LENGTH && f->type != PROTO_GROUP;
    enum status rc = STATUS_OK;
    const json_t *item;
    struct buf packed;
    size_t i;

    if (!json_is_array(array))
        return misfit("array", err);
    buf_init(&packed, out->limit_bytes);
    for (i = 0; rc == STATUS_OK && i < json_array_size(array); i++) {
        item = json_array_get(array, i);
        rc = is_packed ? wire_put_scalar(&packed, w, f, item, err)
                       : wire_put_value(out, w, f, item, err);
        if (rc != STATUS_OK)
            (void)error_prefix(err, "[%zu]", i);
    }
    if (rc == STATUS_OK && packed.len > 0 && wire_put_whole(out, f->number, &packed) != STATUS_OK)
        rc = request_too_large(err);
    buf_deinit(&packed);
    return rc;
}

/* A key of a map as its type wants it: JSON has texts only. */
static json_t *map_key(const char *text, int type)
{
    if (type == PROTO_BOOL && strcmp(text, "true") == 0)
        return json_true();
    if (type == PROTO_BOOL && strcmp(text, "false") == 0)
        return json_false();
    return json_string(text);
}

static const field_descriptor *field_of_number(const message_descriptor *m, int32_t number)
{
    for (size_t i = 0; i < m->n_field; i++)
        if (m->field[i]->number == number)
            return m->field[i];
    return NULL;
}

/* Each entry is a message of a key, 1, and a value, 2. */
static enum status wire_put_map(struct buf *out, struct proto_writer *w, const field_descriptor *f,
                                const message_descriptor *entry, const json_t *map,
                                struct error *err)
{
    const field_descriptor *key_field = field_of_number(entry, 1);
    const field_descriptor *value_field = field_of_number(entry, 2);
    enum status rc = STATUS_OK;
    struct buf bytes;
    void *at;

    if (!json_is_object(map) || key_field == NULL || value_field == NULL)
        return misfit("object", err);
    buf_init(&bytes, out->limit_bytes);
    for (at = json_object_iter((json_t *)(uintptr_t)map); rc == STATUS_OK && at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)map, at)) {
        json_t *key = map_key(json_object_iter_key(at), key_field->type);

        buf_clear(&bytes);
        rc = wire_put_value(&bytes, w, key_field, key, err);
        if (rc == STATUS_OK)
            rc = wire_put_value(&bytes, w, value_field, json_object_iter_value(at), err);
        if (rc != STATUS_OK)
            (void)error_prefix(err, "'%.40s'", json_object_iter_key(at));
        else if (wire_put_whole(out, f->number, &bytes) != STATUS_OK)
            rc = request_too_large(err);
        json_decref(key);
    }
    buf_deinit(&bytes);
    return rc;
}

static enum status wire_put_field(struct buf *out, struct proto_writer *w,
                                  const field_descriptor *f, const json_t *json, struct error *err)
{
    const message_descriptor *entry =
        f->type == PROTO_MESSAGE ? proto_schema_message(w->schema, f->type_name) : NULL;

    if (json_is_null(json)) /* null means that the field is absent */
        return STATUS_OK;
    if (f->label == REPEATED && entry != NULL && entry->options != NULL &&
        entry->options->map_entry)
        return wire_put_map(out, w, f, entry, json, err);
    return f->label == REPEATED ? wire_put_array(out, w, f, json, err)
                                : wire_put_value(out, w, f, json, err);
}

static const field_descriptor *field_of_name(const message_descriptor *m, const char *name)
{
    for (size_t i = 0; i < m->n_field; i++)
        if (strcmp(m->field[i]->name, name) == 0 || strcmp(m->field[i]->json_name, name) == 0)
            return m->field[i];
    return NULL;
}

static enum status wire_put_message(struct buf *out, struct proto_writer *w, const char *type_name,
                                    const json_t *json, struct error *err)
{
    const message_descriptor *m = proto_schema_message(w->schema, type_name);
    enum status rc = STATUS_OK;
    void *at;

    if (m == NULL)
        return error_set(err, STATUS_NOT_FOUND, "its reflection does not describe %s",
                         type_name + (*type_name == '.'));
    if (!json_is_object(json))
        return misfit("object", err);
    if (w->depth == MAX_DEPTH)
        return error_set(err, STATUS_INVALID, "messages are nested deeper than %d", (int)MAX_DEPTH);
    w->depth++;
    for (at = json_object_iter((json_t *)(uintptr_t)json); rc == STATUS_OK && at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)json, at)) {
        const char *name = json_object_iter_key(at);
        const field_descriptor *f = field_of_name(m, name);

        if (f == NULL)
            rc = error_set(err, STATUS_INVALID, "%.60s has no field '%.60s'", m->name, name);
        else if ((rc = wire_put_field(out, w, f, json_object_iter_value(at), err)) != STATUS_OK)
            (void)error_prefix(err, "%.60s", name);
    }
    w->depth--;
    return rc;
}

enum status proto_json_encode(struct buf *out, const struct proto_schema *schema,
                              const char *message, const json_t *json, struct error *err)
{
    struct proto_writer w = {.schema = schema};

    return wire_put_message(out, &w, message, json, err);
}
