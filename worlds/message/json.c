/* Reads a line in one pass, straight into the act: a JSON library builds a tree of small
 * allocations to copy from, and reaches a fifth of the speed. Tests and the fuzzer compare this
 * reader with jansson. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/utf8.h"
#include "worlds/message/act.h"

enum { MAX_DEPTH = 64, MAX_NUMBER = 512, FIRST_FIELDS = 16 };

struct act_reader {
    const char *start, *at, *end;
    struct arena *arena;
    struct error *err;
};

static enum status act_reader_fail(struct act_reader *r, const char *what)
{
    return error_set(r->err, STATUS_INVALID, "byte %zu: %s", (size_t)(r->at - r->start) + 1, what);
}

static void skip_space(struct act_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool act_reader_take(struct act_reader *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool read_hex4(struct act_reader *r, uint32_t *out)
{
    uint32_t x = 0;

    if (r->end - r->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = r->at[i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;

        if (digit > 15)
            return false;
        x = x * 16 + digit;
    }
    r->at += 4;
    *out = x;
    return true;
}

/* Reads what follows \u. A surrogate pair is one character, a lone surrogate an error. */
static enum status read_unicode(struct act_reader *r, char **to)
{
    uint32_t c, low;

    if (!read_hex4(r, &c))
        return act_reader_fail(r, "\\u without four hexadecimal digits");
    if (c >= 0xD800 && c < 0xDC00) {
        if (!act_reader_take(r, '\\') || !act_reader_take(r, 'u') || !read_hex4(r, &low) ||
            low < 0xDC00 || low > 0xDFFF)
            return act_reader_fail(r, "half a surrogate pair");
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    } else if (c >= 0xDC00 && c <= 0xDFFF) {
        return act_reader_fail(r, "half a surrogate pair");
    }
    *to += utf8_encode(c, *to);
    return STATUS_OK;
}

/* The rest of a string that has an escape at r->at; its beginning is in *out. */
static enum status read_escaped(struct act_reader *r, struct text *out)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *quote = r->at;
    char *text, *to;

    /* An upper bound of the length: escapes become shorter. */
    while (quote < r->end && *quote != '"')
        quote += *quote == '\\' && r->end - quote > 1 ? 2 : 1;
    text = arena_alloc(r->arena, out->len + (size_t)(quote - r->at) + 1, 1);
    if (text == NULL)
        return error_no_memory(r->err, out->len, "a JSON value");
    memcpy(text, out->text, out->len);
    to = text + out->len;
    for (;;) {
        const char *known;

        if (r->at == r->end)
            return act_reader_fail(r, "a string without its closing quote");
        if ((unsigned char)*r->at < 0x20)
            return act_reader_fail(r, "a control character in a string");
        if (act_reader_take(r, '"'))
            break;
        if (!act_reader_take(r, '\\')) {
            *to++ = *r->at++;
            continue;
        }
        if (r->at == r->end)
            return act_reader_fail(r, "a string without its closing quote");
        if (act_reader_take(r, 'u')) {
            if (read_unicode(r, &to) != STATUS_OK)
                return r->err->status;
            continue;
        }
        known = *r->at == '\0' ? NULL : strchr(names, *r->at);
        if (known == NULL)
            return act_reader_fail(r, "an unknown escape");
        *to++ = meant[known - names];
        r->at++;
    }
    *out = (struct text){text, (size_t)(to - text)};
    return STATUS_OK;
}

/* Whether one of eight bytes is a quote, a backslash or a control character: the well-known test
 * for a zero byte, which may be wrong only by answering yes. */
static bool ends_plain(const char *at)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t x, quote, backslash;

    memcpy(&x, at, sizeof(x));
    quote = x ^ ones * '"';
    backslash = x ^ ones * '\\';
    return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
            ((x - ones * 0x20) & ~x)) &
           highs;
}

/* Behind the opening quote. */
static enum status read_string(struct act_reader *r, struct text *out)
{
    const char *from = r->at;

    while (r->end - r->at >= 8 && !ends_plain(r->at))
        r->at += 8;
    while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char)*r->at >= 0x20)
        r->at++;
    *out = (struct text){from, (size_t)(r->at - from)};
    if (r->at == r->end)
        return act_reader_fail(r, "a string without its closing quote");
    if (*r->at == '\\')
        return read_escaped(r, out);
    if (!act_reader_take(r, '"'))
        return act_reader_fail(r, "a control character in a string");
    return STATUS_OK;
}

static size_t digits(struct act_reader *r)
{
    const char *from = r->at;

    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return (size_t)(r->at - from);
}

static enum status act_reader_number(struct act_reader *r, struct value *out)
{
    const char *from = r->at;
    char text[MAX_NUMBER];
    bool is_integer = true, has_zero;
    size_t n;

    (void)act_reader_take(r, '-'); /* a sign may be missing */
    has_zero = r->at < r->end && *r->at == '0';
    n = digits(r);
    if (n == 0 || (has_zero && n > 1))
        return act_reader_fail(r, "not a number in JSON's notation");
    if (act_reader_take(r, '.')) {
        is_integer = false;
        if (digits(r) == 0)
            return act_reader_fail(r, "not a number in JSON's notation");
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        is_integer = false;
        r->at++;
        if (!act_reader_take(r, '+'))
            (void)act_reader_take(r, '-'); /* likewise */
        if (digits(r) == 0)
            return act_reader_fail(r, "not a number in JSON's notation");
    }
    n = (size_t)(r->at - from);
    if (n >= sizeof(text))
        return act_reader_fail(r, "a number of more than 511 characters");
    memcpy(text, from, n);
    text[n] = '\0';
    errno = 0;
    if (is_integer) {
        *out = value_int(strtoll(text, NULL, 10));
        if (errno == 0)
            return STATUS_OK;
        return act_reader_fail(r, "an integer of more than 64 bits");
    }
    *out = value_real(strtod(text, NULL));
    if (isinf(out->real))
        return act_reader_fail(r, "a number out of range");
    return STATUS_OK;
}

static bool take_word(struct act_reader *r, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0)
        return false;
    r->at += len;
    return true;
}

/* Anything but an object or array; *ret_is_scalar says whether it was one of them. */
static enum status read_scalar(struct act_reader *r, struct value *out)
{
    if (act_reader_take(r, '"')) {
        out->type = VALUE_TEXT;
        return read_string(r, &out->text);
    }
    if (take_word(r, "true"))
        *out = value_bool(true);
    else if (take_word(r, "false"))
        *out = value_bool(false);
    else if (take_word(r, "null"))
        *out = (struct value){.type = VALUE_NULL};
    else if (take_word(r, "NaN")) /* Python writes and reads NaN and the infinities */
        *out = value_real((double)NAN);
    else if (take_word(r, "Infinity"))
        *out = value_real((double)INFINITY);
    else if (take_word(r, "-Infinity"))
        *out = value_real(-(double)INFINITY);
    else if (r->at < r->end && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9')))
        return act_reader_number(r, out);
    else
        return act_reader_fail(r, "a JSON value is missing");
    return STATUS_OK;
}

/* A key with its colon, inside an object. */
static enum status read_key(struct act_reader *r, struct text *out)
{
    skip_space(r);
    if (!act_reader_take(r, '"'))
        return act_reader_fail(r, "a key is missing");
    if (read_string(r, out) != STATUS_OK)
        return r->err->status;
    skip_space(r);
    if (!act_reader_take(r, ':'))
        return act_reader_fail(r, "a colon is missing");
    return STATUS_OK;
}

/* Checks any value and skips it. */
static enum status skip_value(struct act_reader *r, int depth)
{
    struct value ignored;
    struct text key;
    bool is_object;

    skip_space(r);
    if (r->at == r->end || (*r->at != '{' && *r->at != '['))
        return read_scalar(r, &ignored);
    if (depth == MAX_DEPTH)
        return act_reader_fail(r, "nested deeper than 64");
    is_object = *r->at++ == '{';
    skip_space(r);
    if (act_reader_take(r, is_object ? '}' : ']'))
        return STATUS_OK;
    do {
        if ((is_object && read_key(r, &key) != STATUS_OK) || skip_value(r, depth + 1) != STATUS_OK)
            return r->err->status;
        skip_space(r);
    } while (act_reader_take(r, ','));
    if (!act_reader_take(r, is_object ? '}' : ']'))
        return act_reader_fail(r, is_object ? "'}' is missing" : "']' is missing");
    return STATUS_OK;
}

static bool is_vector(enum act_key key)
{
    return key == ACT_TEXT_VEC || key == ACT_LABELS_VEC || key == ACT_EVAL_LABELS_VEC;
}

/* Lists grow in the arena by doubling; the memory left behind is small. */
struct gathered {
    void *items;
    size_t n, cap;
};

static void *act_reader_gather(struct act_reader *r, struct gathered *g, size_t size_bytes)
{
    if (g->n == g->cap) {
        size_t cap = g->cap == 0 ? 1 : 2 * g->cap; /* most lists have one label */
        void *items = arena_alloc(r->arena, cap, size_bytes);

        if (items == NULL)
            return NULL;
        if (g->n > 0)
            memcpy(items, g->items, g->n * size_bytes);
        g->items = items;
        g->cap = cap;
    }
    return (char *)g->items + g->n++ * size_bytes;
}

/* Of up to nine digits, which most ids are; false leaves r as it was. */
static bool read_short_integer(struct act_reader *r, struct value *out)
{
    const char *at = r->at;
    int32_t x = 0;

    while (at < r->end && at - r->at < 9 && *at >= '0' && *at <= '9')
        x = 10 * x + (*at++ - '0');
    if (at == r->at || at == r->end || (*at != ',' && *at != ']') ||
        (*r->at == '0' && at - r->at > 1))
        return false;
    r->at = at;
    *out = value_int(x);
    return true;
}

/* At '['. *ret_fits: it is a list of texts, or of ids where ids is set; otherwise r's position is
 * undefined. */
static enum status read_list(struct act_reader *r, bool ids, struct value *out, bool *ret_fits)
{
    struct gathered g = {0};
    struct value v;

    *ret_fits = false;
    r->at++;
    skip_space(r);
    if (!act_reader_take(r, ']')) {
        do {
            skip_space(r);
            if (r->at < r->end && (*r->at == '[' || *r->at == '{'))
                return STATUS_OK;
            if (!(ids && read_short_integer(r, &v)) && read_scalar(r, &v) != STATUS_OK)
                return r->err->status;
            if (ids) {
                int32_t *id;

                if (v.type != VALUE_INT || v.integer < INT32_MIN || v.integer > INT32_MAX)
                    return STATUS_OK;
                id = act_reader_gather(r, &g, sizeof(*id));
                if (id == NULL)
                    return error_no_memory(r->err, g.n * sizeof(*id), "a JSON value");
                *id = (int32_t)v.integer;
            } else {
                struct text *item;

                if (v.type != VALUE_TEXT)
                    return STATUS_OK;
                item = act_reader_gather(r, &g, sizeof(*item));
                if (item == NULL)
                    return error_no_memory(r->err, g.n * sizeof(*item), "a JSON value");
                *item = v.text;
            }
            skip_space(r);
        } while (act_reader_take(r, ','));
        if (!act_reader_take(r, ']'))
            return act_reader_fail(r, "']' is missing");
    }
    *ret_fits = true;
    *out = ids ? value_ids(g.items, g.n) : value_list(g.items, g.n);
    return STATUS_OK;
}

static enum status act_reader_value(struct act_reader *r, enum act_key key, struct value *out)
{
    const char *from;
    bool fits = false;

    skip_space(r);
    from = r->at;
    if (r->at == r->end || (*r->at != '{' && *r->at != '['))
        return read_scalar(r, out);
    if (*r->at == '[' && read_list(r, is_vector(key), out, &fits) != STATUS_OK)
        return r->err->status;
    if (fits)
        return STATUS_OK;
    r->at = from;
    if (skip_value(r, 1) != STATUS_OK)
        return r->err->status;
    out->type = VALUE_JSON;
    out->text = (struct text){from, (size_t)(r->at - from)};
    return STATUS_OK;
}

enum status act_from_json(struct act *a, const char *json, size_t len, struct arena *arena,
                          struct error *err)
{
    struct act_reader r = {
        .start = json, .at = json, .end = json + len, .arena = arena, .err = err};
    struct field first[FIRST_FIELDS]; /* so that the arena holds exactly the existing fields */
    struct act built = {.fields = first, .cap = FIRST_FIELDS, .arena = arena};

    if (!utf8_is_valid(json, len))
        return error_set(err, STATUS_INVALID, "not UTF-8");
    skip_space(&r);
    if (!act_reader_take(&r, '{'))
        return act_reader_fail(&r, "not a JSON object");
    skip_space(&r);
    if (!act_reader_take(&r, '}')) {
        do {
            struct text key;
            struct value v;

            if (read_key(&r, &key) != STATUS_OK ||
                act_reader_value(&r, act_key_of(key.text, key.len), &v) != STATUS_OK)
                return err->status;
            if (act_set_named(&built, key, v, err) != STATUS_OK) {
                if (err->status == STATUS_EXISTS)
                    return act_reader_fail(&r, "a key that the object has already");
                return err->status;
            }
            skip_space(&r);
        } while (act_reader_take(&r, ','));
        if (!act_reader_take(&r, '}'))
            return act_reader_fail(&r, "'}' is missing");
    }
    skip_space(&r);
    if (r.at != r.end)
        return act_reader_fail(&r, "text after the end of the object");
    if (built.fields == first) {
        struct field *fields = arena_alloc(arena, built.n, sizeof(*fields));

        if (fields == NULL)
            return error_no_memory(r.err, built.n * sizeof(*fields), "a JSON value");
        memcpy(fields, first, built.n * sizeof(*fields));
        built.fields = fields;
        built.cap = built.n;
    }
    *a = built;
    return STATUS_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

static void act_json_write_value(const struct value *v, struct json_writer *w)
{
    switch ((enum value_type)v->type) {
    case VALUE_NULL:
    case VALUE_METRICS:
        json_write_null(w, NULL);
        return;
    case VALUE_TEXT:
        json_write_string(w, NULL, v->text.text, v->text.len);
        return;
    case VALUE_BOOL:
        json_write_bool(w, NULL, v->boolean);
        return;
    case VALUE_INT:
        json_write_signed(w, NULL, v->integer);
        return;
    case VALUE_REAL:
        json_write_exact(w, NULL, v->real);
        return;
    case VALUE_JSON:
        json_write_json(w, NULL, v->text.text, v->text.len);
        return;
    case VALUE_LIST:
        json_begin_array(w, NULL);
        for (size_t i = 0; i < v->list.n; i++)
            json_write_string(w, NULL, v->list.items[i].text, v->list.items[i].len);
        json_end_array(w);
        return;
    case VALUE_IDS:
        json_begin_array(w, NULL);
        for (size_t i = 0; i < v->ids.n; i++)
            json_write_signed(w, NULL, v->ids.items[i]);
        json_end_array(w);
        return;
    }
}

void act_write_json(const struct act *a, struct json_writer *w)
{
    json_begin_object(w, NULL);
    for (size_t i = 0; i < a->n; i++) {
        const struct field *f = &a->fields[i];

        if (f->key == ACT_METRICS)
            continue;
        json_write_name(w, f->name.text, f->name.len);
        act_json_write_value(&f->value, w);
    }
    json_end_object(w);
}

enum status act_to_json(const struct act *a, struct buf *out, struct error *err)
{
    struct json_writer w = json_writer_begin(out);

    act_write_json(a, &w);
    return json_writer_end(&w) == STATUS_OK ? STATUS_OK
                                            : error_no_memory(err, out->len, "an act as JSON");
}
