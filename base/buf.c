#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

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

/* Room for len more bytes and the NUL. */
static enum status reserve(struct buf *b, size_t len)
{
    size_t need, cap;
    char *data;

    if (len > b->limit_bytes - b->len || len >= SIZE_MAX - b->len)
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

static void cut(struct buf *b, size_t len)
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
    rc = reserve(b, len);
    if (rc != STATUS_OK)
        return rc;
    memcpy(b->data + b->len, data, len);
    cut(b, b->len + len);
    return STATUS_OK;
}

enum status buf_append_text(struct buf *b, const char *text)
{
    return buf_append(b, text, strlen(text));
}

enum status buf_printf(struct buf *b, const char *fmt, ...)
{
    size_t room = b->cap - b->len;
    enum status rc;
    va_list args;
    int n;

    /* First into the room there is, which mostly suffices. */
    va_start(args, fmt);
    n = vsnprintf(room == 0 ? NULL : b->data + b->len, room, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < room) {
        b->len += (size_t)n;
        return STATUS_OK;
    }
    cut(b, b->len); /* what was written past the end is none of the buffer's */
    if (n < 0)
        return STATUS_EXHAUSTED; /* longer than an int can tell */
    rc = reserve(b, (size_t)n);
    if (rc != STATUS_OK)
        return rc;
    va_start(args, fmt);
    n = vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
    va_end(args);
    assert(n >= 0);
    b->len += (size_t)n;
    return STATUS_OK;
}

static enum status append_json_char(struct buf *b, uint32_t c)
{
    char bytes[4];

    switch (c) {
    case '"':
        return buf_append(b, "\\\"", 2);
    case '\\':
        return buf_append(b, "\\\\", 2);
    case '\n':
        return buf_append(b, "\\n", 2);
    case '\r':
        return buf_append(b, "\\r", 2);
    case '\t':
        return buf_append(b, "\\t", 2);
    default:
        if (c < 0x20)
            return buf_printf(b, "\\u%04x", (unsigned)c);
        return buf_append(b, bytes, utf8_encode(c, bytes));
    }
}

enum status buf_append_json(struct buf *b, const char *text, size_t len)
{
    size_t start = b->len;
    size_t at = 0;
    enum status rc;

    rc = buf_append(b, "\"", 1);
    while (rc == STATUS_OK && at < len) {
        uint32_t c;

        at += utf8_next(text + at, len - at, &c);
        rc = append_json_char(b, c);
    }
    if (rc == STATUS_OK)
        rc = buf_append(b, "\"", 1);
    if (rc != STATUS_OK)
        cut(b, start);
    return rc;
}

void buf_clear(struct buf *b)
{
    cut(b, 0);
}

void buf_consume(struct buf *b, size_t len)
{
    assert(len <= b->len);
    if (len == 0)
        return;
    memmove(b->data, b->data + len, b->len - len);
    cut(b, b->len - len);
}
