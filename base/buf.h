/* A growing run of bytes with a ceiling. Always ends in a NUL that is not counted, once non-empty.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct buf {
    char *data; /* NULL while empty */
    size_t len, cap, limit_bytes;
    bool is_full; /* the last append that failed was past the limit; else it had no memory */
};

void buf_init(struct buf *b, size_t limit_bytes);
void buf_deinit(struct buf *b); /* as after buf_init */

/* Makes room for len more bytes and the NUL, for a caller that writes them himself.
 * STATUS_EXHAUSTED past the limit or without memory; the buffer is then as before. */
enum status buf_reserve(struct buf *b, size_t len) MUST_CHECK;
/* These fail in the same way. The appended bytes may not lie in the buffer itself. */
enum status buf_append(struct buf *b, const void *data, size_t len) MUST_CHECK;
enum status buf_append_text(struct buf *b, const char *text) MUST_CHECK;
enum status buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3) MUST_CHECK;
enum status buf_vprintf(struct buf *b, const char *fmt, va_list args) PRINTF_LIKE(2, 0) MUST_CHECK;

void buf_clear(struct buf *b);               /* len = 0, memory kept */
void buf_consume(struct buf *b, size_t len); /* drops the first len bytes */

#endif
