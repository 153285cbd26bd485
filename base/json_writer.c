/* Each value is written in two steps: writer_before puts what separates the value from the one
 * before, and its name; then the value's own text follows. A failure of either is kept in the
 * writer, while depth and separators are counted on, so that a caller need not stop. */
#include "base/json_writer.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"

enum status json_writer_end(struct json_writer *w)
{
    assert(w->depth == 0);
    if (w->rc != STATUS_OK) {
        w->out->len = w->start;
        if (w->out->data != NULL)
            w->out->data[w->start] = '\0';
    }
    return w->rc;
}

/* Makes room for len more bytes; false: the writer has failed. */
static bool writer_reserve(struct json_writer *w, size_t len)
{
    if (w->rc == STATUS_OK && w->out->cap - w->out->len <= len)
        w->rc = buf_reserve(w->out, len);
    return w->rc == STATUS_OK;
}

static void writer_put(struct json_writer *w, const char *text, size_t len)
{
    if (w->rc == STATUS_OK)
        w->rc = buf_append(w->out, text, len);
}

static void writer_put_char(struct json_writer *w, char c)
{
    char *to;

    if (!writer_reserve(w, 1))
        return;
    to = w->out->data + w->out->len++;
    to[0] = c;
    to[1] = '\0';
}

/* Whether a byte is no ASCII character that stands for itself in a string. */
static bool must_escape(char c)
{
    return (signed char)c < ' ' || c == '"' || c == '\\';
}

/* The same of one of eight bytes. */
static bool is_any_special(uint64_t bytes)
{
    const uint64_t ones = UINT64_MAX / 255;
    const uint64_t quote = bytes ^ ones * '"', backslash = bytes ^ ones * '\\';

    return ((bytes | (bytes - ones * ' ') | (quote - ones) | (backslash - ones)) & ones << 7) != 0;
}

static bool copy_eight(char *to, const char *text)
{
    uint64_t bytes;

    memcpy(&bytes, text, 8);
    memcpy(to, &bytes, 8);
    return !is_any_special(bytes);
}

/* Copies 4 to 8 characters: the first four and the last four. */
static bool copy_four_twice(char *to, const char *text, size_t len)
{
    uint32_t first, last;

    memcpy(&first, text, 4);
    memcpy(&last, text + len - 4, 4);
    memcpy(to, &first, 4);
    memcpy(to + len - 4, &last, 4);
    return !is_any_special(first | (uint64_t)last << 32);
}

/* Copies the leading characters that stand for themselves; returns how many there are. to has room
 * for all. */
static size_t copy_plain(char *to, const char *text, size_t len)
{
    size_t n = 0;

    if (len >= 4 && len < 8 && copy_four_twice(to, text, len))
        return len;
    while (len - n >= 8 && copy_eight(to + n, text + n))
        n += 8;
    if (len - n < 8 && len >= 8 && copy_eight(to + len - 8, text + len - 8))
        return len;
    for (; n < len && !must_escape(text[n]); n++)
        to[n] = text[n];
    return n;
}

enum { ESCAPE_MAX_BYTES = 8 };

/* Writes a character as it stands in a string; returns its length. */
static size_t escape(uint32_t c, char out[ESCAPE_MAX_BYTES])
{
    static const char letters[] = "\"\\\n\r\t", names[] = "\"\\nrt";
    const char *letter = c == 0 || c > 0x7f ? NULL : strchr(letters, (int)c);

    if (letter != NULL) {
        out[0] = '\\';
        out[1] = names[letter - letters];
        return 2;
    }
    return c >= 0x20 ? utf8_encode(c, out)
                     : (size_t)snprintf(out, ESCAPE_MAX_BYTES, "\\u%04x", (unsigned)c);
}

/* Goes on with a string behind its first at characters, at one that may need an escape. */
static void writer_put_escaped(struct json_writer *w, const char *text, size_t at, size_t len)
{
    char escaped[ESCAPE_MAX_BYTES];
    size_t start;
    uint32_t c;

    while (at < len) {
        at += utf8_next(text + at, len - at, &c);
        writer_put(w, escaped, escape(c, escaped));
        start = at;
        while (at < len && !must_escape(text[at]))
            at++;
        writer_put(w, text + start, at - start);
    }
    writer_put_char(w, '"');
}

/* Here alone a string gets its quotes and escapes, by which it never becomes shorter. */
static void writer_put_string(struct json_writer *w, const char *text, size_t len)
{
    size_t n;
    char *to;

    if (!writer_reserve(w, len + 2))
        return;
    to = w->out->data + w->out->len;
    to[0] = '"';
    n = copy_plain(to + 1, text, len);
    if (n < len) {
        w->out->len += n + 1;
        writer_put_escaped(w, text, n, len);
        return;
    }
    to[n + 1] = '"';
    to[n + 2] = '\0';
    w->out->len += n + 2;
}

static void writer_separate(struct json_writer *w, char separator)
{
    writer_put_char(w, separator);
    if (w->is_spaced)
        writer_put_char(w, ' ');
}

static bool writer_is_in_object(const struct json_writer *w)
{
    return w->depth > 0 && (w->objects >> (w->depth - 1) & 1) != 0;
}

static void writer_name(struct json_writer *w, const char *name, size_t len)
{
    if (w->has_before)
        writer_separate(w, ',');
    w->has_before = true;
    writer_put_string(w, name, len);
    writer_separate(w, ':');
}

static void writer_before(struct json_writer *w, const char *name)
{
    assert((name != NULL) == (writer_is_in_object(w) && !w->has_name));
    if (name != NULL) {
        writer_name(w, name, strlen(name));
        return;
    }
    if (w->has_before && !w->has_name)
        writer_separate(w, ',');
    w->has_before = w->depth > 0;
    w->has_name = false;
}

static void writer_value(struct json_writer *w, const char *name, const char *text, size_t len)
{
    writer_before(w, name);
    writer_put(w, text, len);
}

static void writer_open(struct json_writer *w, const char *name, bool is_object)
{
    assert(w->depth < JSON_WRITER_MAX_DEPTH);
    writer_before(w, name);
    writer_put_char(w, is_object ? '{' : '[');
    w->objects &= ~(UINT64_C(1) << w->depth);
    w->objects |= (uint64_t)is_object << w->depth;
    w->depth++;
    w->has_before = false;
}

static void writer_close(struct json_writer *w, bool is_object)
{
    assert(w->depth > 0 && writer_is_in_object(w) == is_object && !w->has_name);
    writer_put_char(w, is_object ? '}' : ']');
    w->depth--;
    w->has_before = w->depth > 0;
}

void json_begin_object(struct json_writer *w, const char *name)
{
    writer_open(w, name, true);
}

void json_end_object(struct json_writer *w)
{
    writer_close(w, true);
}

void json_begin_array(struct json_writer *w, const char *name)
{
    writer_open(w, name, false);
}

void json_end_array(struct json_writer *w)
{
    writer_close(w, false);
}

void json_write_empty_array(struct json_writer *w, const char *name)
{
    writer_value(w, name, "[]", 2);
}

void json_write_string(struct json_writer *w, const char *name, const char *text, size_t len)
{
    writer_before(w, name);
    writer_put_string(w, text, len);
}

void json_write_text(struct json_writer *w, const char *name, const char *text)
{
    if (text == NULL)
        json_write_null(w, name);
    else
        json_write_string(w, name, text, strlen(text));
}

void json_write_format(struct json_writer *w, const char *name, const char *format, ...)
{
    struct buf text;
    va_list args;

    buf_init(&text, w->out->limit_bytes);
    va_start(args, format);
    json_writer_fail(w, buf_vprintf(&text, format, args));
    va_end(args);
    json_write_string(w, name, text.data, text.len);
    buf_deinit(&text);
}

static void writer_number(struct json_writer *w, const char *name, bool is_negative, uint64_t size)
{
    char text[24], *const end = text + sizeof(text), *at = end;

    do {
        *--at = (char)('0' + size % 10);
        size /= 10;
    } while (size > 0);
    if (is_negative)
        *--at = '-';
    writer_value(w, name, at, (size_t)(end - at));
}

void json_write_unsigned(struct json_writer *w, const char *name, uint64_t value)
{
    writer_number(w, name, false, value);
}

void json_write_signed(struct json_writer *w, const char *name, int64_t value)
{
    writer_number(w, name, value < 0, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void json_write_real(struct json_writer *w, const char *name, double value, int digits)
{
    char text[40];
    int n = snprintf(text, sizeof(text), "%.*g", digits, value);

    assert(n > 0 && (size_t)n < sizeof(text));
    if (isfinite(value))
        writer_value(w, name, text, (size_t)n);
    else
        json_write_null(w, name);
}

void json_write_exact(struct json_writer *w, const char *name, double value)
{
    char text[40];

    if (!isfinite(value)) {
        json_write_text(w, name, isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity");
        return;
    }
    for (int n = 15; n <= 17; n++) {
        (void)snprintf(text, sizeof(text), "%.*g", n, value);
        if (strtod(text, NULL) == value)
            break;
    }
    writer_value(w, name, text, strlen(text));
    if (strpbrk(text, ".e") == NULL)
        writer_put(w, ".0", 2);
}

void json_write_bool(struct json_writer *w, const char *name, bool value)
{
    writer_value(w, name, value ? "true" : "false", value ? 4 : 5);
}

void json_write_null(struct json_writer *w, const char *name)
{
    writer_value(w, name, "null", 4);
}

void json_write_base64(struct json_writer *w, const char *name, const void *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = data;
    char out[4];

    writer_before(w, name);
    writer_put_char(w, '"');
    for (size_t i = 0; i < len; i += 3) {
        const size_t n = len - i < 3 ? len - i : 3; /* bytes of this group */
        uint32_t bits = (uint32_t)at[i] << 16;

        bits |= n > 1 ? (uint32_t)at[i + 1] << 8 : 0;
        bits |= n > 2 ? at[i + 2] : 0;
        for (size_t k = 0; k < 4; k++)
            out[k] = k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
        writer_put(w, out, sizeof(out));
    }
    writer_put_char(w, '"');
}

void json_write_time(struct json_writer *w, const char *name, uint64_t unix_ms)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm t = {0};
    char text[96];

    (void)gmtime_r(&seconds, &t);
    (void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", t.tm_year + 1900,
                   t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                   (unsigned)(unix_ms % 1000));
    json_write_text(w, name, text);
}

void json_write_json(struct json_writer *w, const char *name, const char *json, size_t len)
{
    writer_value(w, name, json, len);
}

void json_write_name(struct json_writer *w, const char *name, size_t len)
{
    assert(writer_is_in_object(w) && !w->has_name);
    writer_name(w, name, len);
    w->has_name = true;
}

void json_write_around(struct json_writer *w, const char *text)
{
    assert(w->depth == 0);
    writer_put(w, text, strlen(text));
}

void json_write_aroundf(struct json_writer *w, const char *format, ...)
{
    va_list args;

    assert(w->depth == 0);
    va_start(args, format);
    if (w->rc == STATUS_OK)
        w->rc = buf_vprintf(w->out, format, args);
    va_end(args);
}
