/* Members of the JSON object are looked up among the message's fields, and each value is stored
 * where protobuf-c's generated code has the field. Each level of nesting is a frame on the stack,
 * from which an error takes the place of what is wrong. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/number.h"
#include "base/suggest.h"
#include "proto/codec.h"
#include "proto/json/message_layout.h"
#include "proto/json/protobuf_json.h"

enum { NAME_SHOWN_BYTES = 40 };

struct message_reader {
    struct arena *arena;
    size_t n_fields, max_fields;
    struct error *err;
};

/* A field of a message that is being read, in a field of the parent's. */
struct field_frame {
    const struct field_frame *parent;
    const ProtobufCFieldDescriptor *field;
    size_t index;    /* in a list; SIZE_MAX: in none */
    const char *key; /* of a map's entry; NULL: none */
};

static enum status protobuf_read_into(struct message_reader *r, ProtobufCMessage *m,
                                      const json_t *value, const struct field_frame *parent,
                                      size_t depth);

/* --- errors --- */

/* "messages[1].text", "metadata.color", as much as fits: the outermost first. Returns the length so
 * far. */
static size_t place_write(char *out, size_t size, const struct field_frame *f)
{
    size_t len = f->parent == NULL ? 0 : place_write(out, size, f->parent);
    const char *dot = len > 0 ? "." : "";
    int n;

    if (f->index != SIZE_MAX)
        n = snprintf(out + len, size - len, "%s%s[%zu]", dot, f->field->name, f->index);
    else if (f->key != NULL)
        n = snprintf(out + len, size - len, "%s%s.%s", dot, f->field->name, f->key);
    else
        n = snprintf(out + len, size - len, "%s%s", dot, f->field->name);
    assert(n >= 0);
    return len + (size_t)n < size ? len + (size_t)n : size - 1;
}

static enum status protobuf_fail_at(struct message_reader *r, const struct field_frame *f,
                                    const char *what)
{
    char place[sizeof(r->err->field)];

    (void)place_write(place, sizeof(place), f);
    return error_field(r->err, place, "%s", what);
}

static enum status protobuf_fail_type(struct message_reader *r, const struct field_frame *f)
{
    static const char *const wanted[] = {
        [PROTOBUF_C_TYPE_INT32] = "a whole number of 32 bits",
        [PROTOBUF_C_TYPE_SINT32] = "a whole number of 32 bits",
        [PROTOBUF_C_TYPE_SFIXED32] = "a whole number of 32 bits",
        [PROTOBUF_C_TYPE_INT64] = "a whole number of 64 bits, as a string",
        [PROTOBUF_C_TYPE_SINT64] = "a whole number of 64 bits, as a string",
        [PROTOBUF_C_TYPE_SFIXED64] = "a whole number of 64 bits, as a string",
        [PROTOBUF_C_TYPE_UINT32] = "a whole number from 0 to 4294967295",
        [PROTOBUF_C_TYPE_FIXED32] = "a whole number from 0 to 4294967295",
        [PROTOBUF_C_TYPE_UINT64] = "a whole number from 0 to 2^64 - 1, as a string",
        [PROTOBUF_C_TYPE_FIXED64] = "a whole number from 0 to 2^64 - 1, as a string",
        [PROTOBUF_C_TYPE_FLOAT] = "a number of 32 bits, \"NaN\", \"Infinity\" or \"-Infinity\"",
        [PROTOBUF_C_TYPE_DOUBLE] = "a number, \"NaN\", \"Infinity\" or \"-Infinity\"",
        [PROTOBUF_C_TYPE_BOOL] = "true or false",
        [PROTOBUF_C_TYPE_ENUM] = "the name of a value",
        [PROTOBUF_C_TYPE_STRING] = "a string",
        [PROTOBUF_C_TYPE_BYTES] = "bytes in base64",
        [PROTOBUF_C_TYPE_MESSAGE] = "an object",
    };
    char what[80];

    (void)snprintf(what, sizeof(what), "must be %s", wanted[f->field->type]);
    return protobuf_fail_at(r, f, what);
}

/* --- memory --- */

static enum status protobuf_take(void **out, struct message_reader *r, size_t n, size_t size_bytes)
{
    struct arena *a = r->arena;

    *out = arena_alloc(a, n, size_bytes);
    if (*out != NULL)
        return STATUS_OK;
    if (size_bytes > 0 && n > (a->limit_bytes - a->total_bytes) / size_bytes)
        return error_because(r->err, STATUS_INVALID, REASON_REQUEST_TOO_LARGE, NULL,
                             "message takes more than %zu bytes once decoded", a->limit_bytes);
    return error_no_memory(r->err, n * size_bytes, "a message");
}

static enum status protobuf_read_message(ProtobufCMessage **out, struct message_reader *r,
                                         const ProtobufCMessageDescriptor *type)
{
    void *memory;

    if (protobuf_take(&memory, r, 1, type->sizeof_message) != STATUS_OK)
        return r->err->status;
    *out = memory;
    if (type->message_init != NULL)
        type->message_init(*out);
    else
        (*out)->descriptor = type; /* a type that protoc has not made: zeros are its defaults */
    return STATUS_OK;
}

static enum status protobuf_count_fields(struct message_reader *r, size_t n)
{
    if (n > r->max_fields - r->n_fields)
        return error_set(r->err, STATUS_INVALID, "the message has more than %zu fields",
                         r->max_fields);
    r->n_fields += n;
    return STATUS_OK;
}

/* --- numbers --- */

/* JSON's grammar of numbers, which strtod is laxer than. */
static bool is_json_number(const char *text)
{
    const char *at = text + (*text == '-');
    size_t n = strspn(at, "0123456789");

    if (n == 0 || (n > 1 && at[0] == '0'))
        return false;
    at += n;
    if (*at == '.') {
        n = strspn(++at, "0123456789");
        if (n == 0)
            return false;
        at += n;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '-' || *at == '+';
        n = strspn(at, "0123456789");
        if (n == 0)
            return false;
        at += n;
    }
    return *at == '\0';
}

/* A whole number's sign and magnitude. */
struct whole {
    bool is_negative;
    uint64_t magnitude;
};

static bool whole_of_real(struct whole *out, double value)
{
    double magnitude = fabs(value);

    if (!(magnitude < 18446744073709551616.0) || magnitude != floor(magnitude))
        return false;
    *out = (struct whole){value < 0, (uint64_t)magnitude};
    return true;
}

static bool whole_of_text(struct whole *out, const char *text)
{
    const char *digits = text + (*text == '-');
    double value;

    if (!is_json_number(text))
        return false;
    if (number_read(&out->magnitude, digits, UINT64_MAX)) {
        out->is_negative = digits > text && out->magnitude > 0;
        return true;
    }
    /* One with a point or an exponent; one of more digits is refused. */
    return strpbrk(text, ".eE") != NULL && number_read_real(&value, text) &&
           whole_of_real(out, value);
}

static bool whole_of(struct whole *out, const json_t *value)
{
    json_int_t i;

    if (json_is_string(value))
        return whole_of_text(out, json_string_value(value));
    if (json_is_real(value))
        return whole_of_real(out, json_real_value(value));
    if (!json_is_integer(value))
        return false;
    i = json_integer_value(value);
    *out = (struct whole){i < 0, i < 0 ? 0 - (uint64_t)i : (uint64_t)i};
    return true;
}

/* As two's complement of 64 bits, if it is within bits of 32 or 64. */
static bool whole_fits(const struct whole *w, unsigned bits, bool is_signed, uint64_t *ret)
{
    const uint64_t half = UINT64_C(1) << (bits - 1);
    const uint64_t max = is_signed ? half - 1 + w->is_negative : half - 1 + half;

    if (w->magnitude > max || (w->is_negative && !is_signed))
        return false;
    *ret = w->is_negative ? 0 - w->magnitude : w->magnitude;
    return true;
}

static bool protobuf_read_whole(void *out, const ProtobufCFieldDescriptor *f, bool is_signed,
                                const json_t *value)
{
    const size_t size = message_value_size(f);
    struct whole w;
    uint64_t bits;
    uint32_t low;

    if (!whole_of(&w, value) || !whole_fits(&w, (unsigned)size * 8, is_signed, &bits))
        return false;
    low = (uint32_t)bits;
    memcpy(out, size == sizeof(low) ? (const void *)&low : (const void *)&bits, size);
    return true;
}

static bool real_of(double *out, const json_t *value)
{
    const char *text = json_string_value(value);

    if (text == NULL) {
        *out = json_number_value(value);
        return json_is_number(value);
    }
    if (strcmp(text, "NaN") == 0)
        *out = (double)NAN;
    else if (strcmp(text, "Infinity") == 0)
        *out = (double)INFINITY;
    else if (strcmp(text, "-Infinity") == 0)
        *out = -(double)INFINITY;
    else
        return is_json_number(text) && number_read_real(out, text);
    return true;
}

static bool protobuf_read_float(void *out, const json_t *value)
{
    double real;
    float single;

    if (!real_of(&real, value))
        return false;
    single = (float)real;
    if (isfinite(real) && !isfinite(single))
        return false;
    memcpy(out, &single, sizeof(single));
    return true;
}

static bool protobuf_read_bool(void *out, const json_t *value)
{
    *(protobuf_c_boolean *)out = json_is_true(value);
    return json_is_boolean(value);
}

/* A number that the enum has no name for is kept, as the wire's is. */
static bool protobuf_read_enum(void *out, const ProtobufCFieldDescriptor *f, const json_t *value)
{
    const ProtobufCEnumValue *known;

    if (!json_is_string(value))
        return protobuf_read_whole(out, f, true, value);
    known = protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, json_string_value(value));
    if (known != NULL)
        *(int32_t *)out = known->value;
    return known != NULL;
}

/* --- values --- */

static enum status protobuf_read_string(void *out, struct message_reader *r,
                                        const struct field_frame *f, const json_t *value)
{
    const size_t len = json_string_length(value);
    void *memory;

    if (!json_is_string(value))
        return protobuf_fail_type(r, f);
    if (memchr(json_string_value(value), 0, len) != NULL)
        return protobuf_fail_at(r, f, "holds a NUL character");
    if (protobuf_take(&memory, r, len + 1, 1) != STATUS_OK)
        return r->err->status;
    memcpy(memory, json_string_value(value), len + 1);
    memcpy(out, &memory, sizeof(memory));
    return STATUS_OK;
}

static enum status protobuf_read_bytes(void *out, struct message_reader *r,
                                       const struct field_frame *f, const json_t *value)
{
    const size_t len = json_string_length(value);
    ProtobufCBinaryData bytes;
    void *memory;

    if (!json_is_string(value))
        return protobuf_fail_type(r, f);
    if (protobuf_take(&memory, r, base64_max_bytes(len), 1) != STATUS_OK)
        return r->err->status;
    bytes.data = memory;
    if (!base64_decode(bytes.data, &bytes.len, json_string_value(value), len))
        return protobuf_fail_type(r, f);
    memcpy(out, &bytes, sizeof(bytes));
    return STATUS_OK;
}

/* "-1.000340012s", with 0 to 9 digits behind the point. */
static bool duration_of(int64_t *ret_s, int32_t *ret_ns, const char *text)
{
    const bool is_negative = *text == '-';
    const char *at = text + is_negative;
    uint64_t seconds, nanos = 0;
    size_t n = number_take(&seconds, at, SIZE_MAX, DURATION_MAX_S);

    if (n == 0)
        return false;
    at += n;
    if (*at == '.') {
        n = number_take(&nanos, ++at, SIZE_MAX, 999999999);
        if (n == 0 || n > 9)
            return false;
        at += n;
        for (; n < 9; n++)
            nanos *= 10;
    }
    *ret_s = is_negative ? -(int64_t)seconds : (int64_t)seconds;
    *ret_ns = is_negative ? -(int32_t)nanos : (int32_t)nanos;
    return strcmp(at, "s") == 0 && (seconds < DURATION_MAX_S || nanos == 0);
}

static enum status protobuf_read_duration(struct message_reader *r, ProtobufCMessage *m,
                                          const json_t *value, const struct field_frame *f)
{
    int64_t seconds;
    int32_t nanos;

    if (!json_is_string(value) || !duration_of(&seconds, &nanos, json_string_value(value)))
        return protobuf_fail_at(r, f, "must be a number of seconds: \"1.5s\"");
    memcpy(message_member(m, &m->descriptor->fields[0]), &seconds, sizeof(seconds));
    memcpy(message_member(m, &m->descriptor->fields[1]), &nanos, sizeof(nanos));
    return STATUS_OK;
}

static enum status protobuf_read_submessage(void *out, struct message_reader *r,
                                            const struct field_frame *f, const json_t *value,
                                            size_t depth)
{
    const ProtobufCMessageDescriptor *type = f->field->descriptor;
    ProtobufCMessage *m = NULL;
    enum status rc;

    if (depth == CODEC_DEPTH_MAX)
        return error_set(r->err, STATUS_INVALID, "messages are nested deeper than %d",
                         CODEC_DEPTH_MAX);
    rc = protobuf_read_message(&m, r, type);
    if (rc == STATUS_OK)
        rc = message_is_duration(type) ? protobuf_read_duration(r, m, value, f)
                                       : protobuf_read_into(r, m, value, f, depth + 1);
    if (rc == STATUS_OK)
        memcpy(out, &m, sizeof(m));
    return rc;
}

/* Stores one value of the field at out. */
static enum status protobuf_read_value(void *out, struct message_reader *r,
                                       const struct field_frame *f, const json_t *value,
                                       size_t depth)
{
    bool is_taken = false;

    switch (f->field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        is_taken = protobuf_read_whole(out, f->field, true, value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        is_taken = protobuf_read_whole(out, f->field, false, value);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        is_taken = protobuf_read_float(out, value);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        is_taken = real_of(out, value);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        is_taken = protobuf_read_bool(out, value);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        is_taken = protobuf_read_enum(out, f->field, value);
        break;
    case PROTOBUF_C_TYPE_STRING:
        return protobuf_read_string(out, r, f, value);
    case PROTOBUF_C_TYPE_BYTES:
        return protobuf_read_bytes(out, r, f, value);
    case PROTOBUF_C_TYPE_MESSAGE:
        return protobuf_read_submessage(out, r, f, value, depth);
    }
    return is_taken ? STATUS_OK : protobuf_fail_type(r, f);
}

/* Says that the field is there, after its value was stored. */
static void protobuf_set_present(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const protobuf_c_boolean yes = 1;

    if (message_field_is_of_oneof(f))
        memcpy(message_quantifier(m, f), &f->id, sizeof(uint32_t));
    else if (f->label == PROTOBUF_C_LABEL_OPTIONAL && f->type != PROTOBUF_C_TYPE_STRING &&
             f->type != PROTOBUF_C_TYPE_MESSAGE)
        memcpy(message_quantifier(m, f), &yes, sizeof(yes));
}

/* --- lists and maps --- */

static enum status protobuf_read_list(struct message_reader *r, ProtobufCMessage *m,
                                      struct field_frame *f, const json_t *list, size_t depth)
{
    const size_t n = json_array_size(list), size = message_value_size(f->field);
    void *values;

    if (!json_is_array(list))
        return protobuf_fail_at(r, f, "must be a list");
    if (n == 0)
        return STATUS_OK;
    if (protobuf_count_fields(r, n) != STATUS_OK || protobuf_take(&values, r, n, size) != STATUS_OK)
        return r->err->status;
    for (f->index = 0; f->index < n; f->index++)
        if (protobuf_read_value((char *)values + f->index * size, r, f,
                                json_array_get(list, f->index), depth) != STATUS_OK)
            return r->err->status;
    memcpy(message_member(m, f->field), &values, sizeof(values));
    *(size_t *)message_quantifier(m, f->field) = n;
    return STATUS_OK;
}

/* A key is a string in JSON, whatever its type is. */
static enum status protobuf_read_key(void *out, struct message_reader *r,
                                     const struct field_frame *f,
                                     const ProtobufCFieldDescriptor *key_field, const char *key)
{
    struct field_frame at = *f;
    json_t *text;
    enum status rc;

    at.field = key_field;
    if (key_field->type == PROTOBUF_C_TYPE_BOOL) {
        *(protobuf_c_boolean *)out = strcmp(key, "true") == 0;
        return strcmp(key, "true") == 0 || strcmp(key, "false") == 0 ? STATUS_OK
                                                                     : protobuf_fail_type(r, f);
    }
    text = json_string(key);
    if (text == NULL)
        return error_no_memory(r->err, strlen(key), "a message");
    rc = protobuf_read_value(out, r, &at, text, CODEC_DEPTH_MAX); /* no key is a message */
    json_decref(text);
    return rc == STATUS_INVALID ? protobuf_fail_at(r, f, "has a key of another type") : rc;
}

static enum status protobuf_read_map(struct message_reader *r, ProtobufCMessage *m,
                                     struct field_frame *f, const json_t *map, size_t depth)
{
    const ProtobufCMessageDescriptor *type = f->field->descriptor;
    const size_t n = json_object_size(map);
    ProtobufCMessage **entries;
    void *memory, *at;
    size_t i = 0;

    if (!json_is_object(map))
        return protobuf_fail_at(r, f, "must be an object");
    if (n == 0)
        return STATUS_OK;
    if (depth == CODEC_DEPTH_MAX)
        return error_set(r->err, STATUS_INVALID, "messages are nested deeper than %d",
                         CODEC_DEPTH_MAX);
    if (protobuf_count_fields(r, 3 * n) != STATUS_OK ||
        protobuf_take(&memory, r, n, sizeof(*entries)) != STATUS_OK)
        return r->err->status;
    entries = memory;
    for (at = json_object_iter((json_t *)map); at != NULL;
         at = json_object_iter_next((json_t *)map, at), i++) {
        struct field_frame value = *f;

        value.key = f->key = json_object_iter_key(at);
        if (protobuf_read_message(&entries[i], r, type) != STATUS_OK ||
            protobuf_read_key(message_member(entries[i], &type->fields[0]), r, f, &type->fields[0],
                              f->key) != STATUS_OK)
            return r->err->status;
        value.field = &type->fields[1];
        value.parent = f;
        value.key = NULL;
        if (protobuf_read_value(message_member(entries[i], &type->fields[1]), r, &value,
                                json_object_iter_value(at), depth + 1) != STATUS_OK)
            return r->err->status;
        protobuf_set_present(entries[i], &type->fields[0]);
        protobuf_set_present(entries[i], &type->fields[1]);
    }
    memcpy(message_member(m, f->field), &entries, sizeof(entries));
    *(size_t *)message_quantifier(m, f->field) = n;
    return STATUS_OK;
}

/* --- messages --- */

static const ProtobufCFieldDescriptor *protobuf_find_field(const ProtobufCMessageDescriptor *type,
                                                           const char *name)
{
    for (unsigned i = 0; i < type->n_fields; i++)
        if (message_name_is(type->fields[i].name, name))
            return &type->fields[i];
    return NULL;
}

static enum status protobuf_fail_unknown(struct message_reader *r,
                                         const ProtobufCMessageDescriptor *type, const char *name,
                                         const struct field_frame *parent)
{
    ProtobufCFieldDescriptor unknown = {.name = name};
    const struct field_frame f = {parent, &unknown, SIZE_MAX, NULL};
    char place[sizeof(r->err->field)];
    struct suggest s;

    suggest_init(&s, name);
    for (unsigned i = 0; i < type->n_fields; i++)
        suggest_try(&s, type->fields[i].name);
    (void)place_write(place, sizeof(place), &f);
    if (s.word != NULL)
        return error_field(r->err, place, "is no field of %s: did you mean %s?", type->name,
                           s.word);
    return error_field(r->err, place, "is no field of %s", type->name);
}

static enum status protobuf_read_field(struct message_reader *r, ProtobufCMessage *m,
                                       struct field_frame *f, const json_t *value, size_t depth)
{
    enum status rc;

    if (f->field->label == PROTOBUF_C_LABEL_REPEATED)
        return message_field_is_map(f->field) ? protobuf_read_map(r, m, f, value, depth)
                                              : protobuf_read_list(r, m, f, value, depth);
    if (message_field_is_of_oneof(f->field) &&
        *(const uint32_t *)message_quantifier(m, f->field) != 0)
        return protobuf_fail_at(r, f, "is a second one of fields of which only one may be given");
    rc = protobuf_count_fields(r, 1);
    if (rc == STATUS_OK)
        rc = protobuf_read_value(message_member(m, f->field), r, f, value, depth);
    if (rc == STATUS_OK)
        protobuf_set_present(m, f->field);
    return rc;
}

static enum status protobuf_read_into(struct message_reader *r, ProtobufCMessage *m,
                                      const json_t *value, const struct field_frame *parent,
                                      size_t depth)
{
    const ProtobufCMessageDescriptor *type = m->descriptor;
    json_t *object = (json_t *)value; /* jansson's iterators change nothing */
    uint64_t seen[MESSAGE_FIELDS_MAX / 64] = {0};

    assert(type->n_fields <= MESSAGE_FIELDS_MAX);
    if (!json_is_object(value))
        return parent == NULL ? error_set(r->err, STATUS_INVALID, "the message must be an object")
                              : protobuf_fail_type(r, parent);
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        struct field_frame f = {parent, NULL, SIZE_MAX, NULL};
        size_t i;

        f.field = protobuf_find_field(type, json_object_iter_key(at));
        if (f.field == NULL)
            return protobuf_fail_unknown(r, type, json_object_iter_key(at), parent);
        i = (size_t)(f.field - type->fields);
        if ((seen[i / 64] >> i % 64 & 1) != 0)
            return protobuf_fail_at(r, &f, "is given twice");
        seen[i / 64] |= UINT64_C(1) << i % 64;
        if (!json_is_null(json_object_iter_value(at)) &&
            protobuf_read_field(r, m, &f, json_object_iter_value(at), depth) != STATUS_OK)
            return r->err->status;
    }
    return STATUS_OK;
}

enum status protobuf_json_read(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                               const json_t *value, size_t max_fields, struct arena *arena,
                               struct error *err)
{
    struct message_reader r = {.arena = arena, .max_fields = max_fields, .err = err};
    ProtobufCMessage *m = NULL;

    if (protobuf_read_message(&m, &r, type) != STATUS_OK ||
        protobuf_read_into(&r, m, value, NULL, 0) != STATUS_OK)
        return err->status;
    *out = m;
    return STATUS_OK;
}
