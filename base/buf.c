/* Appends bytes and formatted text to a buffer that grows up to a bound. The formatter knows the
 * few directives that are used and depends on no locale. */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { FIRST_CAP = 64 };

void buf_init(struct buf *b, size_t limit_bytes)
{
    *b = (struct buf){.limit_bytes = limit_bytes};
}

void buf_deinit(struct buf *b)
{
    if (b == NULL)
        return;
    free(b->data);
    buf_init(b, b->limit_bytes);
}

enum status buf_reserve(struct buf *b, size_t len)
{
    size_t need, cap;
    char *data;

    b->is_full = len > b->limit_bytes - b->len || len >= SIZE_MAX - b->len;
    if (b->is_full)
        return STATUS_EXHAUSTED;
    need = b->len + len + 1;
    if (need <= b->cap)
        return STATUS_OK;
    cap = b->cap == 0 ? FIRST_CAP : b->cap;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : 2 * cap;
    if (cap - 1 > b->limit_bytes)
        cap = b->limit_bytes + 1;
    data = try_realloc(b->data, cap, 1);
    if (data == NULL)
        return STATUS_EXHAUSTED;
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return STATUS_OK;
}

static void buf_cut(struct buf *b, size_t len)
{
    b->len = len;
    if (b->data != NULL)
        b->data[len] = '\0';
}

enum status buf_append(struct buf *b, const void *data, size_t len)
{
    enum status rc;

    if (len == 0)
        return STATUS_OK;
    rc = buf_reserve(b, len);
    if (rc != STATUS_OK)
        return rc;
    memcpy(b->data + b->len, data, len);
    buf_cut(b, b->len + len);
    return STATUS_OK;
}

enum status buf_append_text(struct buf *b, const char *text)
{
    return buf_append(b, text, strlen(text));
}

/* Writes digits backwards from end; returns where they begin. */
static char *write_number(char *end, unsigned long long n, unsigned base)
{
    do {
        *--end = "0123456789abcdef"[n % base];
        n /= base;
    } while (n > 0);
    return end;
}

static unsigned long long next_number(va_list *args, size_t n_longs, bool is_size)
{
    if (is_size)
        return va_arg(*args, size_t);
    if (n_longs == 0)
        return va_arg(*args, unsigned);
    return n_longs == 1 ? va_arg(*args, unsigned long) : va_arg(*args, unsigned long long);
}

/* Appends one directive, after its '%': %s, %u, %x with or without z, l, ll. False: another one. */
static bool append_directive(struct buf *b, const char **fmt, va_list *args, enum status *ret_rc)
{
    const char *at = *fmt;
    char digits[24], *const end = digits + sizeof(digits), *begin;
    bool is_size = *at == 'z';
    size_t n_longs = 0;

    if (*at == 's') {
        *fmt = at + 1;
        *ret_rc = buf_append_text(b, va_arg(*args, const char *));
        return true;
    }
    for (at += is_size; !is_size && n_longs < 2 && *at == 'l'; at++)
        n_longs++;
    if (*at != 'u' && *at != 'x')
        return false;
    begin = write_number(end, next_number(args, n_longs, is_size), *at == 'u' ? 10 : 16);
    *fmt = at + 1;
    *ret_rc = buf_append(b, begin, (size_t)(end - begin));
    return true;
}

/* Formats the few directives that nearly all texts use, several times as fast as the library.
 * False: fmt has others, and nothing is appended. */
static bool append_simple(struct buf *b, const char *fmt, va_list *args, enum status *ret_rc)
{
    size_t start = b->len;
    enum status rc = STATUS_OK;
    bool is_simple = true;

    while (*fmt != '\0' && rc == STATUS_OK && is_simple) {
        size_t n = strcspn(fmt, "%");

        rc = buf_append(b, fmt, n);
        fmt += n;
        if (rc == STATUS_OK && *fmt == '%') {
            fmt++;
            is_simple = append_directive(b, &fmt, args, &rc);
        }
    }
    if (!is_simple || rc != STATUS_OK)
        buf_cut(b, start);
    *ret_rc = rc;
    return is_simple;
}

enum status buf_vprintf(struct buf *b, const char *fmt, va_list args)
{
    size_t room;
    enum status rc;
    va_list again;
    bool is_simple;
    int n;

    va_copy(again, args);
    is_simple = append_simple(b, fmt, &again, &rc);
    va_end(again);
    if (is_simple)
        return rc;
    /* First into the free space, which mostly suffices. */
    room = b->cap - b->len;
    va_copy(again, args);
    n = vsnprintf(room == 0 ? NULL : b->data + b->len, room, fmt, again);
    va_end(again);
    if (n >= 0 && (size_t)n < room) {
        b->len += (size_t)n;
        return STATUS_OK;
    }
    buf_cut(b, b->len); /* removes what was written past the end */
    if (n < 0)
        return STATUS_EXHAUSTED; /* longer than an int can hold */
    rc = buf_reserve(b, (size_t)n);
    if (rc != STATUS_OK)
        return rc;
    n = vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
    assert(n >= 0);
    b->len += (size_t)n;
    return STATUS_OK;
}

enum status buf_printf(struct buf *b, const char *fmt, ...)
{
    enum status rc;
    va_list args;

    va_start(args, fmt);
    rc = buf_vprintf(b, fmt, args);
    va_end(args);
    return rc;
}

void buf_clear(struct buf *b)
{
    buf_cut(b, 0);
}

void buf_consume(struct buf *b, size_t len)
{
    assert(len <= b->len);
    if (len == 0)
        return;
    memmove(b->data, b->data + len, b->len - len);
    buf_cut(b, b->len - len);
}
