/* JSON as Python's json.dumps writes it, and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/jinja/parts.h"
#include "base/utf8.h"

struct jinja_json_writer {
    struct jinja_run *r;
    struct jinja_text_builder *out;
    const struct jinja_json_style *style;
    size_t level;
};

static bool write_value(struct jinja_json_writer *w, struct jinja_value v);

static bool write_mark(struct jinja_json_writer *w, const char *text)
{
    return jinja_put(w->r, w->out, text, strlen(text), JINJA_OF_CALLER);
}

static bool write_escaped(struct jinja_json_writer *w, uint32_t c)
{
    static const char letters[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
    const char *letter = c == 0 || c > 0x7F ? NULL : strchr(letters, (int)c);
    char text[16];

    if (letter != NULL)
        (void)snprintf(text, sizeof(text), "\\%c", names[letter - letters]);
    else if (c < 0x10000)
        (void)snprintf(text, sizeof(text), "\\u%04x", (unsigned)c);
    else
        (void)snprintf(text, sizeof(text), "\\u%04x\\u%04x",
                       (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                       (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
    return write_mark(w, text);
}

static bool write_string(struct jinja_json_writer *w, const struct jinja_text *t)
{
    size_t plain = 0;

    if (!write_mark(w, "\""))
        return false;
    for (size_t at = 0, n; at < t->len; at += n) {
        uint32_t c;

        n = utf8_next(t->data + at, t->len - at, &c);
        if (c >= 0x20 && c != '"' && c != '\\' && !(w->style->is_ascii && c >= 0x7F))
            continue;
        if (!jinja_put(w->r, w->out, t->data + plain, at - plain, JINJA_OF_CALLER) ||
            !write_escaped(w, c))
            return false;
        plain = at + n;
    }
    return jinja_put(w->r, w->out, t->data + plain, t->len - plain, JINJA_OF_CALLER) &&
           write_mark(w, "\"");
}

static bool write_line(struct jinja_json_writer *w)
{
    if (w->style->indent == NULL)
        return true;
    if (!write_mark(w, "\n"))
        return false;
    for (size_t i = 0; i < w->level; i++)
        if (!write_mark(w, w->style->indent))
            return false;
    return true;
}

static bool json_write_list(struct jinja_json_writer *w, const struct jinja_list *l)
{
    if (l->n == 0)
        return write_mark(w, "[]");
    w->level++;
    for (size_t i = 0; i < l->n; i++)
        if (!write_mark(w, i == 0 ? "[" : w->style->item_separator) || !write_line(w) ||
            !write_value(w, l->items[i]))
            return false;
    w->level--;
    return write_line(w) && write_mark(w, "]");
}

/* Keys that are no strings become strings. */
static bool write_key(struct jinja_json_writer *w, struct jinja_value key)
{
    if (key.kind == JINJA_TEXT)
        return write_string(w, key.as.text);
    if (key.kind == JINJA_LIST)
        return jinja_fail(w->r, "a tuple cannot be a key in JSON");
    return write_mark(w, "\"") && write_value(w, key) && write_mark(w, "\"");
}

static int compare_pairs(const void *a, const void *b)
{
    const struct jinja_pair *x = a, *y = b;
    const struct jinja_text *s = x->key.as.text, *t = y->key.as.text;
    const size_t n = s->len < t->len ? s->len : t->len;
    const int order = n == 0 ? 0 : memcmp(s->data, t->data, n);

    return order != 0 ? order : (s->len > t->len) - (s->len < t->len);
}

static bool sorted_map(struct jinja_run *r, const struct jinja_map *m, struct jinja_value *out)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->pairs[i].key.kind != JINJA_TEXT)
            return jinja_fail(r, "sort_keys needs keys that are strings");
    if (!jinja_charge(r, 64 * m->n) || !jinja_map_new(r, m->n, out))
        return false;
    if (m->n != 0) {
        memcpy(out->as.map->pairs, m->pairs, m->n * sizeof(*m->pairs));
        qsort(out->as.map->pairs, m->n, sizeof(*m->pairs), compare_pairs);
    }
    out->as.map->n = m->n;
    return true;
}

static bool write_map(struct jinja_json_writer *w, const struct jinja_map *m)
{
    struct jinja_value sorted;

    if (m->n == 0)
        return write_mark(w, "{}");
    if (w->style->is_sorted) {
        if (!sorted_map(w->r, m, &sorted))
            return false;
        m = sorted.as.map;
    }
    w->level++;
    for (size_t i = 0; i < m->n; i++)
        if (!write_mark(w, i == 0 ? "{" : w->style->item_separator) || !write_line(w) ||
            !write_key(w, m->pairs[i].key) || !write_mark(w, w->style->key_separator) ||
            !write_value(w, m->pairs[i].value))
            return false;
    w->level--;
    return write_line(w) && write_mark(w, "}");
}

static bool write_real(struct jinja_json_writer *w, double real)
{
    char text[40];

    jinja_format_real(real, text, sizeof(text));
    return write_mark(w, strcmp(text, "nan") == 0    ? "NaN"
                         : strcmp(text, "inf") == 0  ? "Infinity"
                         : strcmp(text, "-inf") == 0 ? "-Infinity"
                                                     : text);
}

static bool write_kind(struct jinja_json_writer *w, struct jinja_value v)
{
    char text[32];

    switch (v.kind) {
    case JINJA_NONE:
        return write_mark(w, "null");
    case JINJA_BOOL:
        return write_mark(w, v.as.flag ? "true" : "false");
    case JINJA_INT:
        (void)snprintf(text, sizeof(text), "%lld", (long long)v.as.number);
        return write_mark(w, text);
    case JINJA_FLOAT:
        return write_real(w, v.as.real);
    case JINJA_TEXT:
        return write_string(w, v.as.text);
    case JINJA_LIST:
        return json_write_list(w, v.as.list);
    case JINJA_MAP:
        return write_map(w, v.as.map);
    default:
        return jinja_fail(w->r, "a %s cannot be written as JSON", jinja_kind_name(v));
    }
}

static bool write_value(struct jinja_json_writer *w, struct jinja_value v)
{
    bool is_good;

    if (!jinja_charge(w->r, 0) || !jinja_enter(w->r))
        return false;
    is_good = write_kind(w, v);
    w->r->depth--;
    return is_good;
}

bool jinja_put_json(struct jinja_run *r, struct jinja_text_builder *b, struct jinja_value v,
                    const struct jinja_json_style *style)
{
    struct jinja_json_writer w = {r, b, style, 0};

    return write_value(&w, v);
}

struct json_reader {
    struct jinja_run *r;
    const char *at, *end;
};

static bool read_value(struct json_reader *j, struct jinja_value *out);

static bool json_fail(struct json_reader *j)
{
    return jinja_fail(j->r, "a text is not valid JSON");
}

static char json_next(struct json_reader *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r'))
        j->at++;
    return j->at < j->end ? *j->at : '\0';
}

static bool json_skip(struct json_reader *j, char c)
{
    const bool is_there = json_next(j) == c && j->at < j->end;

    j->at += is_there;
    return is_there;
}

static bool read_unit(struct json_reader *j, uint32_t *ret)
{
    *ret = 0;
    if (j->end - j->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        const char c = *j->at++;

        if (c >= '0' && c <= '9')
            *ret = *ret * 16 + (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            *ret = *ret * 16 + (uint32_t)((c | 32) - 'a') + 10;
        else
            return false;
    }
    return true;
}

static bool read_escape(struct json_reader *j, char *out, size_t *ret_len)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char c = j->at < j->end ? *j->at++ : '\0';
    const char *name = c == '\0' ? NULL : strchr(names, c);
    uint32_t unit, low;

    *ret_len = 1;
    if (name != NULL) {
        out[0] = meanings[name - names];
        return true;
    }
    if (c != 'u' || !read_unit(j, &unit))
        return false;
    if (unit >= 0xD800 && unit < 0xDC00 && j->end - j->at >= 6 && j->at[0] == '\\' &&
        j->at[1] == 'u') {
        j->at += 2;
        if (!read_unit(j, &low))
            return false;
        unit = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
                                             : 0xFFFD;
    }
    *ret_len = utf8_encode(unit, out);
    return true;
}

static bool json_read_string(struct json_reader *j, struct jinja_value *out)
{
    const char *end = ++j->at;
    size_t len = 0;
    char *data;

    while (end < j->end && *end != '"')
        end += *end == '\\' ? 2 : 1;
    if (end >= j->end)
        return json_fail(j);
    data = jinja_take(j->r, (size_t)(end - j->at) + 4, 1);
    if (data == NULL)
        return false;
    while (j->at < end) {
        size_t n = 1;

        data[len] = *j->at++;
        if (data[len] == '\\' && !read_escape(j, data + len, &n))
            return json_fail(j);
        len += n;
    }
    j->at = end + 1;
    return jinja_charge(j->r, len) && jinja_string(j->r, data, len, JINJA_OF_CALLER, out);
}

static bool json_read_list(struct json_reader *j, struct jinja_value *out)
{
    struct jinja_value v;

    j->at++;
    if (!jinja_list_new(j->r, 0, out))
        return false;
    if (json_skip(j, ']'))
        return true;
    do
        if (!read_value(j, &v) || !jinja_list_push(j->r, out->as.list, v))
            return false;
    while (json_skip(j, ','));
    return json_skip(j, ']') || json_fail(j);
}

static bool read_map(struct json_reader *j, struct jinja_value *out)
{
    struct jinja_value key, v;

    j->at++;
    if (!jinja_map_new(j->r, 0, out))
        return false;
    if (json_skip(j, '}'))
        return true;
    do {
        if (json_next(j) != '"')
            return json_fail(j);
        if (!json_read_string(j, &key))
            return false;
        if (!json_skip(j, ':'))
            return json_fail(j);
        if (!read_value(j, &v) || !jinja_map_set(j->r, out->as.map, key, v))
            return false;
    } while (json_skip(j, ','));
    return json_skip(j, '}') || json_fail(j);
}

/* A number too large for an int becomes a float. */
static bool read_number(struct json_reader *j, struct jinja_value *out)
{
    char text[64];
    size_t n = 0;
    bool is_real = false;
    char *end;

    while (j->at < j->end && n < sizeof(text) - 1 && *j->at != '\0' &&
           strchr("+-.eE0123456789", *j->at) != NULL) {
        is_real = is_real || strchr(".eE", *j->at) != NULL;
        text[n++] = *j->at++;
    }
    text[n] = '\0';
    if (n == 0)
        return json_fail(j);
    if (is_real || n > 18)
        *out = jinja_float(strtod(text, &end));
    else
        *out = jinja_int(strtoll(text, &end, 10));
    return *end == '\0' || json_fail(j);
}

static bool read_word(struct json_reader *j, const char *word, struct jinja_value v,
                      struct jinja_value *out)
{
    const size_t len = strlen(word);

    if ((size_t)(j->end - j->at) < len || memcmp(j->at, word, len) != 0)
        return json_fail(j);
    j->at += len;
    *out = v;
    return true;
}

static bool json_read_kind(struct json_reader *j, struct jinja_value *out)
{
    switch (json_next(j)) {
    case '{':
        return read_map(j, out);
    case '[':
        return json_read_list(j, out);
    case '"':
        return json_read_string(j, out);
    case 't':
        return read_word(j, "true", jinja_bool(true), out);
    case 'f':
        return read_word(j, "false", jinja_bool(false), out);
    case 'n':
        return read_word(j, "null", jinja_none(), out);
    default:
        return read_number(j, out);
    }
}

static bool read_value(struct json_reader *j, struct jinja_value *out)
{
    bool is_good;

    if (!jinja_charge(j->r, 0) || !jinja_enter(j->r))
        return false;
    is_good = json_read_kind(j, out);
    j->r->depth--;
    return is_good;
}

bool jinja_parse_json(struct jinja_run *r, const char *text, size_t len, struct jinja_value *out)
{
    struct json_reader j = {r, text, text + len};

    if (!read_value(&j, out))
        return false;
    (void)json_next(&j);
    return j.at == j.end || json_fail(&j);
}
