#include <string.h>

#include "compute/gguf/hf_parts.h"

enum status hf_json_parse(json_t **out, const char *bytes, size_t len, struct error *err)
{
    json_error_t wrong;
    json_t *json = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &wrong);

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
