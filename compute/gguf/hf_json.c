#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/gguf/hf_parts.h"

/* Puts a text of its own in the place of a longer number, with blanks behind it. */
static void hf_json_replace(char *at, size_t len, const char *text)
{
    memset(at, ' ', len);
    memcpy(at, text, strlen(text));
}

static bool is_beyond_int64(const char *at)
{
    errno = 0;
    (void)strtoll(at, NULL, 10);
    return errno == ERANGE;
}

/* A number of len bytes that a double cannot hold, or an integer that 64 bits cannot. */
static void hf_json_shorten(char *at, size_t len)
{
    enum { SHORTEST = 5 }; /* "1e309" */
    const bool is_negative = *at == '-';
    const size_t n_digits = len - is_negative;
    char text[32];
    double value = strtod(at, NULL);

    if (n_digits == 0) /* of -Infinity */
        return;
    if (isinf(value)) {
        hf_json_replace(at + is_negative, n_digits, n_digits < SHORTEST ? "9" : "1e308");
    } else if (strspn(at + is_negative, "0123456789") >= n_digits && is_beyond_int64(at)) {
        (void)snprintf(text, sizeof(text), "%.11e", fabs(value));
        hf_json_replace(at + is_negative, n_digits, text);
    }
}

/* The place behind the text whose opening quote is at from. */
static size_t hf_json_text_end(const char *bytes, size_t from, size_t len)
{
    size_t i = from + 1;

    while (i < len && bytes[i] != '"')
        i += bytes[i] == '\\' ? 2 : 1;
    return i < len ? i + 1 : len;
}

/* Makes numbers of what Jansson's numbers cannot be, in bytes [len + 1], NUL-ended: integers of
 * more than 64 bits (a tokenizer's model_max_length of 10^30), numbers too large for a double, and
 * Infinity, which Python writes. They are very large doubles then. */
static void hf_json_repair(char *bytes, size_t len)
{
    static const char infinity[] = "Infinity";

    for (size_t i = 0; i < len;) {
        const size_t n = bytes[i] == '-' || (bytes[i] >= '0' && bytes[i] <= '9')
                             ? strspn(bytes + i, "+-.0123456789eE")
                             : 0;

        if (bytes[i] == '"') {
            i = hf_json_text_end(bytes, i, len);
        } else if (strncmp(bytes + i, infinity, strlen(infinity)) == 0) {
            hf_json_replace(bytes + i, strlen(infinity), "1e308");
            i += strlen(infinity);
        } else {
            if (n > 0)
                hf_json_shorten(bytes + i, n);
            i += n > 0 ? n : 1;
        }
    }
}

/* The same bytes, where Jansson has refused them only for the size of a number. */
static json_t *hf_json_parse_repaired(const char *bytes, size_t len, json_error_t *wrong)
{
    char *copy = try_strndup(bytes, len);
    json_t *json = NULL;

    if (copy == NULL)
        return NULL;
    hf_json_repair(copy, len);
    json = json_loadb(copy, len, 0, wrong);
    free(copy);
    return json;
}

enum status hf_json_parse(json_t **out, const char *bytes, size_t len, struct error *err)
{
    json_error_t wrong;
    json_t *json = json_loadb(bytes, len, 0, &wrong);

    if (json == NULL)
        json = hf_json_parse_repaired(bytes, len, &wrong);
    if (json == NULL)
        return error_set(err, STATUS_DATA_LOSS, "not valid JSON at line %d: %.80s", wrong.line,
                         wrong.text);
    if (!json_is_object(json)) {
        json_decref(json);
        return error_set(err, STATUS_DATA_LOSS, "not a JSON object");
    }
    *out = json;
    return STATUS_OK;
}

static enum status hf_json_absent(const char *name, struct error *err)
{
    return error_set(err, STATUS_NOT_FOUND, "key '%s' is absent", name);
}

enum status hf_json_u64(const json_t *object, const char *name, uint64_t *out, struct error *err)
{
    const json_t *value = json_object_get(object, name);

    if (value == NULL || json_is_null(value))
        return hf_json_absent(name, err);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return error_set(err, STATUS_DATA_LOSS, "key '%s' is not an integer of at least 0", name);
    *out = (uint64_t)json_integer_value(value);
    return STATUS_OK;
}

enum status hf_json_f64(const json_t *object, const char *name, double *out, struct error *err)
{
    const json_t *value = json_object_get(object, name);

    if (value == NULL || json_is_null(value))
        return hf_json_absent(name, err);
    if (!json_is_number(value))
        return error_set(err, STATUS_DATA_LOSS, "key '%s' is not a number", name);
    *out = json_number_value(value);
    return STATUS_OK;
}

const json_t *hf_json_object(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_object(value) ? value : NULL;
}

const char *hf_json_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text == NULL ? "" : text;
}

bool hf_json_is_true(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}
