/* Reads the head of one call, in each shape that a family of models writes, up to the call's
 * arguments. The reader says whether the text is a call, is no call, or needs more bytes. */
#include "agents/reply/call_text.h"

#include <stdlib.h>
#include <string.h>

#include "agents/reply/call_values.h"
#include "agents/reply/json_scan.h"
#include "base/name.h"

enum { CALL_MAX_GAP = 128 }; /* bytes between a name and the mark before its arguments */

struct call_reader {
    const struct call_format *format;
    const char *text;
    size_t len, at;
};

bool call_text_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

const json_t *call_text_tool(const json_t *tools, const char *name, size_t len)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const json_t *its = json_object_get(function, "name");

        if (len > 0 && json_string_length(its) == len &&
            memcmp(json_string_value(its), name, len) == 0)
            return function;
    }
    return NULL;
}

static void call_reader_skip_space(struct call_reader *r)
{
    while (r->at < r->len && call_text_is_space(r->text[r->at]))
        r->at++;
}

/* Skips a text: CALL_BEGINS if it is there. */
static enum call_read call_reader_skip(struct call_reader *r, const char *what)
{
    const size_t n = strlen(what), left = r->len - r->at, most = n < left ? n : left;

    if (memcmp(r->text + r->at, what, most) != 0)
        return CALL_IS_NONE;
    r->at += most;
    return most < n ? CALL_UNDECIDED : CALL_BEGINS;
}

/* Skips any JSON value; CALL_BEGINS if it is complete. */
static enum call_read call_reader_skip_value(struct call_reader *r)
{
    struct json_place place = {0};
    const char first = r->text[r->at];

    if (first == ',' || first == ':' || first == '}' || first == ']')
        return CALL_IS_NONE;
    for (size_t from = r->at; r->at < r->len; r->at++) {
        const char c = r->text[r->at];

        if (first == '{' || first == '[' || first == '"') {
            if (json_place_add(&place, c) ||
                (first == '"' && r->at > from && !place.is_in_string)) {
                r->at++;
                return CALL_BEGINS;
            }
        } else if (c == ',' || c == '}' || c == ']' || call_text_is_space(c)) {
            return CALL_BEGINS;
        }
    }
    return CALL_UNDECIDED;
}

static bool put_arguments(struct buf *out, const char *text, size_t len, bool *ret_is_short)
{
    if (buf_append(out, text, len) != STATUS_OK)
        *ret_is_short = true;
    return !*ret_is_short;
}

/* An object that is complete. Its arguments are an object, a text that has one, or missing. */
static enum call_read end_object(const struct call_text *c, const char *value, size_t len,
                                 struct buf *arguments, bool *ret_is_short)
{
    json_t *text;
    bool is_good;

    if (c->name == NULL)
        return CALL_IS_NONE;
    if (value == NULL)
        return put_arguments(arguments, "{}", 2, ret_is_short) ? CALL_IS_WHOLE : CALL_UNDECIDED;
    if (value[0] == '{') {
        if (!json_scan_is_object(value, len))
            return CALL_IS_NONE;
        return put_arguments(arguments, value, len, ret_is_short) ? CALL_IS_WHOLE : CALL_UNDECIDED;
    }
    text = json_loadb(value, len, JSON_DECODE_ANY, NULL);
    is_good =
        json_is_string(text) &&
        json_scan_is_object(json_string_value(text), json_string_length(text)) &&
        put_arguments(arguments, json_string_value(text), json_string_length(text), ret_is_short);
    json_decref(text);
    return is_good ? CALL_IS_WHOLE : CALL_IS_NONE;
}

static bool is_key(const char *key, size_t len, const char *what)
{
    return len == strlen(what) + 2 && memcmp(key + 1, what, len - 2) == 0;
}

/* A member's key, its colon, and the space behind it; its quotes count. */
static enum call_read call_reader_key(struct call_reader *r, const char **ret_key, size_t *ret_len)
{
    enum call_read rc;

    if (r->text[r->at] != '"')
        return CALL_IS_NONE;
    *ret_key = r->text + r->at;
    rc = call_reader_skip_value(r);
    *ret_len = (size_t)(r->text + r->at - *ret_key);
    if (rc != CALL_BEGINS)
        return rc;
    call_reader_skip_space(r);
    rc = call_reader_skip(r, ":");
    call_reader_skip_space(r);
    return rc == CALL_BEGINS && r->at == r->len ? CALL_UNDECIDED : rc;
}

static enum call_read call_reader_object(struct call_text *out, struct call_reader *r,
                                         const json_t *tools, struct buf *arguments,
                                         bool *ret_is_short)
{
    const char *value = NULL, *key, *its;
    size_t value_len = 0, len;
    enum call_read rc;

    call_reader_skip_space(r);
    if (r->format->shape == CALL_LIST && r->at < r->len && r->text[r->at] == '[')
        r->at++;
    call_reader_skip_space(r);
    rc = call_reader_skip(r, "{");
    for (;;) {
        call_reader_skip_space(r);
        if (rc != CALL_BEGINS)
            return rc;
        if (r->at == r->len)
            return CALL_UNDECIDED;
        if (r->text[r->at] == '}') {
            out->end = r->at + 1;
            return end_object(out, value, value_len, arguments, ret_is_short);
        }
        if (r->text[r->at] == ',') {
            r->at++;
            continue;
        }
        rc = call_reader_key(r, &key, &len);
        if (rc != CALL_BEGINS)
            return rc;
        its = r->text + r->at;
        if (is_key(key, len, "arguments") || is_key(key, len, "parameters")) {
            out->end = r->at;
            if (out->name != NULL && *its == '{')
                return CALL_BEGINS;
            value = its;
        }
        rc = call_reader_skip_value(r);
        if (value == its)
            value_len = (size_t)(r->text + r->at - its);
        if (rc == CALL_BEGINS && (is_key(key, len, "name") || is_key(key, len, "tool_name"))) {
            out->name = its + 1;
            out->name_len = (size_t)(r->text + r->at - its) < 2 || *its != '"'
                                ? 0
                                : (size_t)(r->text + r->at - its) - 2;
            if (call_text_tool(tools, out->name, out->name_len) == NULL)
                return CALL_IS_NONE;
        }
    }
}

/* CALL_BEGINS: the name of a tool is complete. */
static enum call_read call_reader_name(struct call_text *out, struct call_reader *r,
                                       const json_t *tools)
{
    const size_t from = r->at;

    r->at += name_span(r->text + from, r->len - from, NAME_MARKS);
    if (r->at == r->len)
        return CALL_UNDECIDED;
    out->name = r->text + from;
    out->name_len = r->at - from;
    return call_text_tool(tools, out->name, out->name_len) != NULL ? CALL_BEGINS : CALL_IS_NONE;
}

static enum call_read call_reader_named(struct call_text *out, struct call_reader *r,
                                        const json_t *tools)
{
    const struct call_format *f = r->format;
    const char *mark;
    enum call_read rc;

    call_reader_skip_space(r);
    rc = call_reader_skip(r, f->before);
    if (rc != CALL_BEGINS)
        return rc;
    call_reader_skip_space(r);
    rc = call_reader_skip(r, f->prefix);
    if (rc == CALL_UNDECIDED)
        return rc;
    rc = call_reader_name(out, r, tools);
    if (rc != CALL_BEGINS)
        return rc;
    mark = memmem(r->text + r->at, r->len - r->at, f->arguments, strlen(f->arguments));
    if (mark == NULL && r->len - r->at < CALL_MAX_GAP + strlen(f->arguments))
        return CALL_UNDECIDED;
    if (mark == NULL || mark - r->text > (ptrdiff_t)(r->at + CALL_MAX_GAP))
        return CALL_IS_NONE;
    r->at = (size_t)(mark - r->text) + strlen(f->arguments);
    call_reader_skip_space(r);
    out->end = r->at;
    if (r->at == r->len)
        return CALL_UNDECIDED;
    return r->text[r->at] == '{' ? CALL_BEGINS : CALL_IS_NONE;
}

/* --- arguments that are not JSON --- */

/* Whether the tool declares that the argument is a string and nothing else. */
static bool is_text_argument(const json_t *tool, const char *key)
{
    const json_t *properties = json_object_get(json_object_get(tool, "parameters"), "properties");
    const json_t *type = json_object_get(json_object_get(properties, key), "type");

    if (json_array_size(type) == 1)
        type = json_array_get(type, 0);
    return json_is_string(type) && strcmp(json_string_value(type), "string") == 0;
}

static bool add_argument(json_t *to, const json_t *tool, const char *key, size_t key_len,
                         const char *value, size_t len)
{
    char name[256];
    json_t *v = NULL;

    if (key_len == 0 || key_len >= sizeof(name))
        return false;
    memcpy(name, key, key_len);
    name[key_len] = '\0';
    if (!is_text_argument(tool, name))
        v = json_loadb(value, len, JSON_DECODE_ANY, NULL);
    if (v == NULL)
        v = json_stringn(value, len);
    return json_object_set_new(to, name, v) == 0;
}

/* The text from r up to what, which it passes; false if it is not there. */
static bool call_reader_until(struct call_reader *r, const char *what, const char **ret_text,
                              size_t *ret_len)
{
    const char *found = memmem(r->text + r->at, r->len - r->at, what, strlen(what));

    if (found == NULL)
        return false;
    *ret_text = r->text + r->at;
    *ret_len = (size_t)(found - *ret_text);
    r->at += *ret_len + strlen(what);
    return true;
}

struct argument_marks {
    const char *key, *key_end, *value, *value_end;
};

static bool read_arguments(json_t *to, struct call_reader *r, const struct argument_marks *marks,
                           const json_t *tool)
{
    const char *key, *value;
    size_t key_len, len;

    for (;;) {
        call_reader_skip_space(r);
        if (r->at == r->len)
            return true;
        if (call_reader_skip(r, marks->key) != CALL_BEGINS ||
            !call_reader_until(r, marks->key_end, &key, &key_len))
            return false;
        if (marks->value[0] != '\0')
            call_reader_skip_space(r);
        if (call_reader_skip(r, marks->value) != CALL_BEGINS ||
            !call_reader_until(r, marks->value_end, &value, &len))
            return false;
        if (len > 0 && value[0] == '\n') {
            value++;
            len--;
        }
        if (len > 0 && value[len - 1] == '\n')
            len--;
        if (!add_argument(to, tool, key, key_len, value, len))
            return false;
    }
}

/* The text up to end has the call's arguments. */
static enum call_read call_reader_marked(const struct call_text *c, struct call_reader *r,
                                         const struct argument_marks *marks, const json_t *tools,
                                         struct buf *arguments, bool *ret_is_short)
{
    json_t *all = json_object();
    char *text = NULL;
    bool is_good;

    is_good =
        all != NULL && read_arguments(all, r, marks, call_text_tool(tools, c->name, c->name_len));
    if (is_good)
        text = json_dumps(all, 0);
    if (text != NULL)
        (void)put_arguments(arguments, text, strlen(text), ret_is_short);
    free(text);
    json_decref(all);
    return text != NULL && !*ret_is_short ? CALL_IS_WHOLE : CALL_IS_NONE;
}

static enum call_read call_reader_parameters(struct call_text *out, struct call_reader *r,
                                             const json_t *tools, struct buf *arguments,
                                             bool *ret_is_short)
{
    static const struct argument_marks marks = {"<parameter=", ">", "", "</parameter>"};
    const char *end;
    enum call_read rc;

    call_reader_skip_space(r);
    rc = call_reader_skip(r, "<function=");
    if (rc == CALL_BEGINS)
        rc = call_reader_name(out, r, tools);
    if (rc == CALL_BEGINS)
        rc = call_reader_skip(r, ">");
    if (rc != CALL_BEGINS)
        return rc;
    end = memmem(r->text + r->at, r->len - r->at, "</function>", 11);
    if (end == NULL)
        return CALL_UNDECIDED;
    r->len = (size_t)(end - r->text);
    out->end = r->len + 11;
    return call_reader_marked(out, r, &marks, tools, arguments, ret_is_short);
}

static enum call_read call_reader_pairs(struct call_text *out, struct call_reader *r,
                                        const json_t *tools, struct buf *arguments,
                                        bool *ret_is_short)
{
    static const struct argument_marks marks = {"<arg_key>", "</arg_key>", "<arg_value>",
                                                "</arg_value>"};
    const char *end;
    enum call_read rc;

    call_reader_skip_space(r);
    rc = call_reader_name(out, r, tools);
    if (rc != CALL_BEGINS)
        return rc;
    end = memmem(r->text + r->at, r->len - r->at, r->format->close, strlen(r->format->close));
    if (end == NULL)
        return CALL_UNDECIDED;
    out->end = r->len = (size_t)(end - r->text);
    return call_reader_marked(out, r, &marks, tools, arguments, ret_is_short);
}

/* The name, and arguments in brackets. */
static enum call_read call_reader_values(struct call_text *out, struct call_reader *r,
                                         const json_t *tools, struct buf *arguments,
                                         bool *ret_is_short)
{
    const bool is_python = r->format->shape == CALL_PYTHON;
    json_t *all;
    char *text = NULL;
    bool is_open = false;
    enum call_read rc;

    call_reader_skip_space(r);
    if (is_python && r->at < r->len && r->text[r->at] == '[')
        r->at++;
    call_reader_skip_space(r);
    rc = call_reader_skip(r, r->format->prefix);
    if (rc == CALL_BEGINS)
        rc = call_reader_name(out, r, tools);
    if (rc == CALL_BEGINS)
        rc = call_reader_skip(r, is_python ? "(" : "{");
    if (rc != CALL_BEGINS)
        return rc;
    all = call_values_read(r->text, r->len, &r->at, is_python ? ')' : '}', &is_open);
    if (all == NULL)
        return is_open ? CALL_UNDECIDED : CALL_IS_NONE;
    text = json_dumps(all, 0);
    json_decref(all);
    out->end = r->at;
    if (text == NULL)
        *ret_is_short = true;
    else
        (void)put_arguments(arguments, text, strlen(text), ret_is_short);
    free(text);
    return *ret_is_short ? CALL_UNDECIDED : CALL_IS_WHOLE;
}

enum call_read call_text_read(struct call_text *out, const struct call_format *f, const char *text,
                              size_t len, const json_t *tools, struct buf *arguments,
                              bool *ret_is_short)
{
    struct call_reader r = {f, text, len, 0};

    *out = (struct call_text){0};
    switch (f->shape) {
    case CALL_NAMED:
        return call_reader_named(out, &r, tools);
    case CALL_PARAMETERS:
        return call_reader_parameters(out, &r, tools, arguments, ret_is_short);
    case CALL_PAIRS:
        return call_reader_pairs(out, &r, tools, arguments, ret_is_short);
    case CALL_PYTHON:
    case CALL_BRACES:
        return call_reader_values(out, &r, tools, arguments, ret_is_short);
    case CALL_OBJECT:
    case CALL_LIST:
        break;
    }
    return call_reader_object(out, &r, tools, arguments, ret_is_short);
}
