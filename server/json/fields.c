/* Parses a body with bounds on its depth and its numbers, and reads members by type. The errors
 * name a field by its path, as the client wrote it. */
#include "server/json/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json_extent.h"
#include "base/json_widen.h"

/* Jansson reports lack of memory as damaged text, and its reader (2.14) does not check whether the
 * buffer of a long string grew: it would overrun it. So while it reads, a failed allocation is
 * noted and repeated with xalloc (a little memory is left, or the program ends), and the result is
 * discarded afterwards. Loop. */
static bool was_short, is_reading;

enum { FEW_FIELDS = 8 };

static void *fields_take(size_t size_bytes)
{
    void *memory = try_realloc(NULL, 1, size_bytes); /* jansson sets all of it */

    if (memory != NULL)
        return memory;
    was_short = true;
    return is_reading ? xalloc(size_bytes) : NULL;
}

void fields_init(void)
{
    json_set_alloc_funcs(fields_take, free);
}

static json_t *fields_load_once(const char *text, size_t len, size_t flags, json_error_t *why,
                                bool *ret_was_short)
{
    json_t *value;

    was_short = false;
    is_reading = true;
    value = json_loadb(text, len, flags | JSON_ALLOW_NUL, why);
    is_reading = false;
    *ret_was_short = was_short;
    if (!was_short)
        return value;
    json_decref(value); /* NULL is fine */
    return NULL;
}

static json_t *fields_load_as(const char *text, size_t len, size_t flags, json_error_t *why,
                              bool *ret_was_short)
{
    json_error_t reason;
    json_t *value = fields_load_once(text, len, flags, &reason, ret_was_short);
    struct buf wide;

    if (why != NULL)
        *why = reason;
    if (value != NULL || *ret_was_short || json_error_code(&reason) != json_error_numeric_overflow)
        return value;
    buf_init(&wide, SIZE_MAX);
    if (json_widen(&wide, text, len) != STATUS_OK)
        *ret_was_short = true;
    else
        value = fields_load_once(wide.data, wide.len, flags, why, ret_was_short);
    buf_deinit(&wide);
    return value;
}

json_t *fields_load(const char *text, size_t len, json_error_t *why, bool *ret_was_short)
{
    return fields_load_as(text, len, 0, why, ret_was_short);
}

static enum status fields_parse_as(json_t **out, const char *body, size_t len, size_t flags,
                                   struct error *err)
{
    static const struct json_extent limit = {FIELDS_MAX_NUMBERS, FIELDS_MAX_OTHERS};
    json_error_t why;
    json_t *value;
    bool is_short;

    if (!json_extent_fits(body, len, &limit))
        return error_set(err, STATUS_INVALID,
                         "the body has too many values: at most %d numbers and %d others are taken",
                         FIELDS_MAX_NUMBERS, FIELDS_MAX_OTHERS);
    value = fields_load_as(body, len, flags, &why, &is_short);
    if (is_short)
        return error_no_memory(err, len, "a body");
    if (value == NULL)
        return error_set(err, STATUS_INVALID, "the body is no JSON: %.120s (line %d, column %d)",
                         why.text, why.line, why.column);
    if (!json_is_object(value)) {
        json_decref(value);
        return error_set(err, STATUS_INVALID, "the body must be a JSON object");
    }
    *out = value;
    return STATUS_OK;
}

enum status fields_parse(json_t **out, const char *body, size_t len, struct error *err)
{
    return fields_parse_as(out, body, len, 0, err);
}

enum status fields_parse_strict(json_t **out, const char *body, size_t len, struct error *err)
{
    return fields_parse_as(out, body, len, JSON_REJECT_DUPLICATES, err);
}

static const char *fields_kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

enum status field_wrong(struct error *err, const char *name, const char *what, const json_t *value)
{
    return error_field(err, name, "must be %s, not %s", what, fields_kind_of(value));
}

json_t *fields_join(const json_t *a, const json_t *b)
{
    const size_t a_len = json_string_length(a), len = a_len + json_string_length(b);
    char *all = try_alloc(len + 1, 1);
    json_t *text;

    if (all == NULL)
        return NULL;
    if (a_len > 0)
        memcpy(all, json_string_value(a), a_len);
    if (len > a_len)
        memcpy(all + a_len, json_string_value(b), len - a_len);
    text = json_stringn_nocheck(all, len);
    free(all);
    return text;
}

/* In an object of a few fields, comparing their names is faster than hashing the wanted one; and
 * most wanted names are absent. */
static const json_t *fields_find(const json_t *object, const char *name)
{
    json_t *o = (json_t *)object; /* jansson's iterators change nothing */

    if (json_object_size(o) > FEW_FIELDS)
        return json_object_get(o, name);
    for (void *at = json_object_iter(o); at != NULL; at = json_object_iter_next(o, at)) {
        if (strcmp(json_object_iter_key(at), name) == 0)
            return json_object_iter_value(at);
    }
    return NULL;
}

const json_t *field(const json_t *object, const char *name)
{
    const json_t *value = fields_find(object, name);

    return json_is_null(value) ? NULL : value;
}

enum status field_text(const char **out, const json_t *object, const char *name, struct error *err)
{
    const json_t *value = field(object, name);

    if (value == NULL)
        return STATUS_OK;
    if (!json_is_string(value))
        return field_wrong(err, name, "a string", value);
    if (!field_is_plain_text(value))
        return error_field(err, name, "has the character U+0000");
    *out = json_string_value(value);
    return STATUS_OK;
}

bool field_is_whole(const json_t *value, int64_t *out)
{
    const double real = json_real_value(value);

    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value) || real < -0x1p63 || real >= 0x1p63 || real != (double)(int64_t)real)
        return false;
    *out = (int64_t)real;
    return true;
}

bool field_is_plain_text(const json_t *value)
{
    return json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
}

enum status field_bool(bool *out, const json_t *object, const char *name, struct error *err)
{
    const json_t *value = field(object, name);

    if (value == NULL)
        return STATUS_OK;
    if (!json_is_boolean(value))
        return field_wrong(err, name, "true or false", value);
    *out = json_is_true(value);
    return STATUS_OK;
}

enum status field_whole(int64_t *out, bool *ret_given, const json_t *object, const char *name,
                        int64_t min, int64_t max, struct error *err)
{
    const json_t *value = field(object, name);
    int64_t number;

    if (value == NULL)
        return STATUS_OK;
    if (!json_is_number(value))
        return field_wrong(err, name, "a whole number", value);
    if (!field_is_whole(value, &number))
        return error_field(err, name, "is %g, it must be a whole number from %lld to %lld",
                           json_number_value(value), (long long)min, (long long)max);
    if (number < min || number > max)
        return error_field(err, name, "is %lld, it must be from %lld to %lld", (long long)number,
                           (long long)min, (long long)max);
    *out = number;
    if (ret_given != NULL)
        *ret_given = true;
    return STATUS_OK;
}

enum status field_object(const json_t **out, const json_t *object, const char *name,
                         struct error *err)
{
    const json_t *value = field(object, name);

    if (value == NULL)
        return STATUS_OK;
    if (!json_is_object(value))
        return field_wrong(err, name, "an object", value);
    *out = value;
    return STATUS_OK;
}

enum status field_array(const json_t **out, const json_t *object, const char *name,
                        struct error *err)
{
    const json_t *value = field(object, name);

    if (value == NULL)
        return STATUS_OK;
    if (!json_is_array(value))
        return field_wrong(err, name, "a list", value);
    *out = value;
    return STATUS_OK;
}

enum status field_token_ids(int32_t **out, const json_t *list, const char *name, const char *want,
                            struct arena *arena, struct error *err)
{
    size_t n = json_array_size(list);
    int32_t *ids = arena_alloc(arena, n, sizeof(ids[0]));

    if (ids == NULL)
        return error_no_memory(err, n * sizeof(ids[0]), "tokens");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);

        if (!json_is_integer(id))
            return field_wrong(err, name, want, id);
        if (json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return error_field(err, name, "has the token %lld", (long long)json_integer_value(id));
        ids[i] = (int32_t)json_integer_value(id);
    }
    *out = ids;
    return STATUS_OK;
}

enum status field_rename(struct error *err, const char *from, const char *to)
{
    const size_t n = strlen(from);
    const bool is_named = strncmp(err->text, from, n) == 0 && err->text[n] == ' ';
    const struct error was = *err;

    if (strcmp(err->field, from) != 0)
        return err->status;
    (void)error_because(err, was.status, was.reason, to, "%s%s", is_named ? to : "",
                        is_named ? was.text + n : was.text);
    err->retry_after_ms = was.retry_after_ms;
    err->have_version = was.have_version;
    err->want_version = was.want_version;
    return err->status;
}

enum status field_inside(struct error *err, const char *object)
{
    char from[sizeof(err->field)], to[2 * sizeof(err->field)];

    memcpy(from, err->field, sizeof(from));
    (void)snprintf(to, sizeof(to), "%.40s.%s", object, from);
    return field_rename(err, from, to);
}

struct field_path field_path_of(const char *list, size_t i, const char *member)
{
    struct field_path p;

    (void)snprintf(p.text, sizeof(p.text), "%s[%zu]%s", list, i, member);
    return p;
}
