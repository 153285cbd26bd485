/* Writes JSON to a buffer. The first failure sticks: nothing is written after it, and callers check
 * it once, at the end. */
#ifndef SERVER_JSON_WRITER_H
#define SERVER_JSON_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct json_writer {
    struct buf *out;
    size_t start; /* length of out when the writer began */
    enum status rc;
};

static inline struct json_writer json_writer_begin(struct buf *out)
{
    return (struct json_writer){.out = out, .start = out->len, .rc = STATUS_OK};
}

/* OK, or the first failure: out is then as it was at the beginning. */
enum status json_writer_end(struct json_writer *w) MUST_CHECK;

/* Records rc, unless it is OK or an earlier failure is recorded. */
static inline void json_writer_fail(struct json_writer *w, enum status rc)
{
    if (w->rc == STATUS_OK)
        w->rc = rc;
}

/* Raw JSON. */
void json_write(struct json_writer *w, const char *text);
void json_write_bytes(struct json_writer *w, const char *data, size_t len);
/* A string, quoted and escaped. */
void json_write_string(struct json_writer *w, const char *text, size_t len);
/* The same of bytes in base64. */
void json_write_base64(struct json_writer *w, const void *data, size_t len);
/* A time as RFC 3339 has it, quoted: "2026-01-31T23:59:59.125Z". */
void json_write_time(struct json_writer *w, uint64_t unix_ms);
/* Raw JSON in printf's format. */
#define json_writef(w, ...) \
    ((w)->rc == STATUS_OK ? (void)((w)->rc = buf_printf((w)->out, __VA_ARGS__)) : (void)0)

#endif
