/* A value is a string in quotes, a list, a mapping, a number, or a word. What ends at the end of
 * the text may go on, and makes the whole undecided. */
#include "agents/reply/call_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

enum { VALUES_MAX_DEPTH = 32, VALUES_MAX_KEY = 256, VALUES_MAX_WORD = 64 };

static const char gemma_quote[] = "<|\"|>";

struct call_values {
    const char *text;
    size_t len, at;
    unsigned depth;
    bool is_open; /* the text ended too early */
};

static json_t *call_values_value(struct call_values *v);

static bool is_value_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static json_t *call_values_open(struct call_values *v)
{
    v->is_open = true;
    return NULL;
}

static void call_values_skip_space(struct call_values *v)
{
    while (v->at < v->len && is_value_space(v->text[v->at]))
        v->at++;
}

/* Passes a text, if it is there. */
static bool call_values_skip(struct call_values *v, const char *what)
{
    const size_t n = strlen(what), left = v->len - v->at;

    if (left < n && left > 0 && memcmp(v->text + v->at, what, left) == 0)
        v->is_open = true;
    if (left < n || memcmp(v->text + v->at, what, n) != 0)
        return false;
    v->at += n;
    return true;
}

static json_t *call_values_gemma_string(struct call_values *v)
{
    const char *from = v->text + v->at;
    const char *end = memmem(from, v->len - v->at, gemma_quote, sizeof(gemma_quote) - 1);

    if (end == NULL)
        return call_values_open(v);
    v->at = (size_t)(end - v->text) + sizeof(gemma_quote) - 1;
    return json_stringn(from, (size_t)(end - from));
}

/* A quote ends a string only where the value can end there: LFM2 does not escape those within. */
static bool call_values_ends_at(struct call_values *v, size_t at)
{
    while (at < v->len && is_value_space(v->text[at]))
        at++;
    if (at == v->len)
        v->is_open = true;
    return at < v->len && strchr(",)]}:", v->text[at]) != NULL;
}

static char python_unescaped(char c)
{
    return (char)(c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c);
}

static json_t *call_values_python_string(struct call_values *v)
{
    const char quote = v->text[v->at++];
    struct buf out;
    json_t *string = NULL;
    bool is_good = true;

    buf_init(&out, SIZE_MAX);
    for (; is_good && v->at < v->len && !v->is_open; v->at++) {
        const char c = v->text[v->at];
        const char next = v->at + 1 < v->len ? v->text[v->at + 1] : '\0';

        if (c == quote && call_values_ends_at(v, v->at + 1)) {
            v->at++;
            string = json_stringn(out.len == 0 ? "" : out.data, out.len);
            break;
        }
        if (v->is_open)
            break;
        if (c == '\\' && next != '\0' && strchr("\\'\"nrt", next) != NULL) {
            const char plain = python_unescaped(next);

            is_good = buf_append(&out, &plain, 1) == STATUS_OK;
            v->at++;
        } else {
            is_good = buf_append(&out, &c, 1) == STATUS_OK;
        }
    }
    buf_deinit(&out);
    if (string == NULL && is_good && v->at >= v->len)
        v->is_open = true;
    return string;
}

static json_t *word_value(const char *word)
{
    if (strcmp(word, "True") == 0 || strcmp(word, "true") == 0)
        return json_true();
    if (strcmp(word, "False") == 0 || strcmp(word, "false") == 0)
        return json_false();
    if (strcmp(word, "None") == 0 || strcmp(word, "null") == 0)
        return json_null();
    return json_loads(word, JSON_DECODE_ANY, NULL); /* a number */
}

static json_t *call_values_word(struct call_values *v)
{
    char word[VALUES_MAX_WORD];
    size_t n = 0;

    while (v->at + n < v->len && strchr(",)]}:", v->text[v->at + n]) == NULL &&
           !is_value_space(v->text[v->at + n]))
        n++;
    if (v->at + n == v->len)
        return n < sizeof(word) ? call_values_open(v) : NULL;
    if (n == 0 || n >= sizeof(word))
        return NULL;
    memcpy(word, v->text + v->at, n);
    word[n] = '\0';
    v->at += n;
    return word_value(word);
}

/* Whether the items go on: behind a comma, or before the first. False at the closing bracket, which
 * is passed, and where *ret_is_wrong. */
static bool call_values_more(struct call_values *v, char close, bool is_first, bool *ret_is_wrong)
{
    call_values_skip_space(v);
    if (v->at == v->len) {
        v->is_open = *ret_is_wrong = true;
        return false;
    }
    if (!is_first && v->text[v->at] == ',') {
        v->at++;
        call_values_skip_space(v);
    } else if (!is_first && v->text[v->at] != close) {
        *ret_is_wrong = true;
        return false;
    }
    if (v->at < v->len && v->text[v->at] == close) {
        v->at++;
        return false;
    }
    return true;
}

static json_t *call_values_list(struct call_values *v)
{
    json_t *list = json_array();
    bool is_wrong = list == NULL;

    for (bool is_first = true; !is_wrong && call_values_more(v, ']', is_first, &is_wrong);
         is_first = false)
        is_wrong = json_array_append_new(list, call_values_value(v)) != 0;
    if (is_wrong) {
        json_decref(list);
        return NULL;
    }
    return list;
}

/* A name, or a string in quotes, and the mark behind it: = or a colon. */
static bool call_values_key(struct call_values *v, char key[VALUES_MAX_KEY])
{
    json_t *quoted = NULL;
    size_t n = 0;

    if (call_values_skip(v, gemma_quote))
        quoted = call_values_gemma_string(v);
    else if (v->at < v->len && (v->text[v->at] == '\'' || v->text[v->at] == '"'))
        quoted = call_values_python_string(v);
    while (quoted == NULL && v->at + n < v->len && strchr("=:,)}", v->text[v->at + n]) == NULL &&
           !is_value_space(v->text[v->at + n]))
        n++;
    if (quoted == NULL && n > 0 && n < VALUES_MAX_KEY) {
        memcpy(key, v->text + v->at, n);
        key[n] = '\0';
        v->at += n;
    } else if (quoted != NULL && json_string_length(quoted) < VALUES_MAX_KEY) {
        (void)snprintf(key, VALUES_MAX_KEY, "%s", json_string_value(quoted));
        n = 1;
    }
    json_decref(quoted);
    call_values_skip_space(v);
    if (v->at == v->len && n < VALUES_MAX_KEY)
        v->is_open = true;
    if (n == 0 || n >= VALUES_MAX_KEY || v->at == v->len ||
        (v->text[v->at] != '=' && v->text[v->at] != ':'))
        return false;
    v->at++;
    return true;
}

static json_t *call_values_pairs(struct call_values *v, char close)
{
    json_t *object = json_object();
    char key[VALUES_MAX_KEY];
    bool is_wrong = object == NULL;

    for (bool is_first = true; !is_wrong && call_values_more(v, close, is_first, &is_wrong);
         is_first = false)
        is_wrong =
            !call_values_key(v, key) || json_object_set_new(object, key, call_values_value(v)) != 0;
    if (is_wrong) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *call_values_value(struct call_values *v)
{
    json_t *value;

    call_values_skip_space(v);
    if (v->at == v->len)
        return call_values_open(v);
    if (call_values_skip(v, gemma_quote))
        return call_values_gemma_string(v);
    if (v->is_open || v->depth == VALUES_MAX_DEPTH)
        return NULL;
    if (v->text[v->at] == '\'' || v->text[v->at] == '"')
        return call_values_python_string(v);
    if (v->text[v->at] != '[' && v->text[v->at] != '{')
        return call_values_word(v);
    v->depth++;
    value = v->text[v->at++] == '[' ? call_values_list(v) : call_values_pairs(v, '}');
    v->depth--;
    return value;
}

json_t *call_values_read(const char *text, size_t len, size_t *at, char close, bool *ret_is_open)
{
    struct call_values v = {.text = text, .len = len, .at = *at};
    json_t *all = call_values_pairs(&v, close);

    *ret_is_open = v.is_open && all == NULL;
    if (all != NULL)
        *at = v.at;
    return all;
}
