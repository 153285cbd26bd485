/* The functions that every template has. */
#include <string.h>

#include "agents/lm/jinja/parts.h"
#include "base/utf8.h"

enum { FUNCTION_MAX_RANGE = 100000 }; /* as Jinja2's sandbox */

struct jinja_value *jinja_arg(struct jinja_args *args, size_t i, const char *name)
{
    if (i < args->n)
        return &args->values[i];
    for (size_t at = 0; at < args->n_named; at++)
        if (strcmp(args->named[at].name, name) == 0)
            return &args->named[at].value;
    return NULL;
}

bool jinja_text_arg(struct jinja_run *r, struct jinja_args *args, size_t i, const char *name,
                    const struct jinja_text **ret)
{
    const struct jinja_value *v = jinja_arg(args, i, name);

    *ret = NULL;
    if (v == NULL || v->kind == JINJA_NONE)
        return true;
    if (v->kind != JINJA_TEXT)
        return jinja_fail(r, "'%s' must be a string, not a %s", name, jinja_kind_name(*v));
    *ret = v->as.text;
    return true;
}

static bool call_range(struct jinja_run *r, struct jinja_args *args, struct jinja_value *out)
{
    int64_t part[3] = {0, 0, 1};

    if (args->n == 0 || args->n > 3)
        return jinja_fail(r, "range takes one to three arguments");
    for (size_t i = 0; i < args->n; i++) {
        if (args->values[i].kind != JINJA_INT || args->values[i].as.number > INT32_MAX ||
            args->values[i].as.number < INT32_MIN)
            return jinja_fail(r, "range takes integers of 32 bits");
        part[args->n == 1 ? 1 : i] = args->values[i].as.number;
    }
    if (part[2] == 0)
        return jinja_fail(r, "a range's step is 0");
    if ((part[1] - part[0]) / part[2] > FUNCTION_MAX_RANGE)
        return jinja_fail(r, "a range has more than %d items", FUNCTION_MAX_RANGE);
    if (!jinja_list_new(r, 0, out))
        return false;
    for (int64_t i = part[0]; part[2] > 0 ? i < part[1] : i > part[1]; i += part[2])
        if (!jinja_charge(r, 0) || !jinja_list_push(r, out->as.list, jinja_int(i)))
            return false;
    return true;
}

static bool call_dict(struct jinja_run *r, struct jinja_args *args, struct jinja_value *out)
{
    if (!jinja_map_new(r, 0, out))
        return false;
    if (args->n > 0 && args->values[0].kind == JINJA_MAP)
        for (size_t i = 0; i < args->values[0].as.map->n; i++) {
            const struct jinja_pair *p = &args->values[0].as.map->pairs[i];

            if (!jinja_map_set(r, out->as.map, p->key, p->value))
                return false;
        }
    for (size_t i = 0; i < args->n_named; i++) {
        struct jinja_value key;

        if (!jinja_string(r, args->named[i].name, strlen(args->named[i].name), JINJA_OF_TEMPLATE,
                          &key) ||
            !jinja_map_set(r, out->as.map, key, args->named[i].value))
            return false;
    }
    return true;
}

static bool call_namespace(struct jinja_run *r, struct jinja_args *args, struct jinja_value *out)
{
    if (!call_dict(r, args, out))
        return false;
    out->kind = JINJA_NAMESPACE;
    return true;
}

static bool call_raise(struct jinja_run *r, struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_text_builder b = {0};

    *out = jinja_none();
    if (args->n > 0 && !jinja_put_value(r, &b, args->values[0]))
        return false;
    (void)error_set(r->err, STATUS_INVALID, "the chat template refuses the messages: %.*s",
                    (int)(b.len < ERROR_TEXT_MAX ? b.len : ERROR_TEXT_MAX),
                    b.len == 0 ? "" : b.data);
    return false;
}

static bool call_strftime(struct jinja_run *r, struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_text *format;
    char pattern[128] = "", shown[256], *text;
    size_t len;

    if (!jinja_text_arg(r, args, 0, "format", &format))
        return false;
    if (format == NULL || format->len >= sizeof(pattern))
        return jinja_fail(r, "the format of strftime_now is too long");
    memcpy(pattern, format->data, format->len);
    len = strftime(shown, sizeof(shown), pattern, r->now);
    text = jinja_take(r, len + 1, 1);
    if (text == NULL)
        return false;
    memcpy(text, shown, len);
    return jinja_string(r, text, len, JINJA_OF_TEMPLATE, out);
}

static const struct {
    const char *name;
    bool (*call)(struct jinja_run *r, struct jinja_args *args, struct jinja_value *out);
} functions[] = {
    {"range", call_range},           {"dict", call_dict},
    {"namespace", call_namespace},   {"raise_exception", call_raise},
    {"strftime_now", call_strftime},
};

int jinja_function_named(const char *name)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (strcmp(functions[i].name, name) == 0)
            return (int)i;
    return -1;
}

bool jinja_call_function(struct jinja_run *r, int function, struct jinja_args *args,
                         struct jinja_value *out)
{
    return functions[function].call(r, args, out);
}
