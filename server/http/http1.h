/* HTTP/1's framing, by RFC 9112: cuts bytes into a head, a body and trailers, and hands them to an
 * exchange. What the grammar does not allow is refused, never repaired: a line ends in CR and LF, a
 * value is on one line, a length is a number. Loop. */
#ifndef SERVER_HTTP_HTTP1_H
#define SERVER_HTTP_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct exchange;

enum http1_state {
    HTTP1_REQUEST_LINE,
    HTTP1_FIELDS,
    HTTP1_BODY, /* of a known length */
    HTTP1_CHUNK_LINE,
    HTTP1_CHUNK,
    HTTP1_CHUNK_END, /* the end of line behind a chunk */
    HTTP1_TRAILERS,
};

struct http1 {
    enum http1_state state;
    struct buf line; /* one whose end has not come */
    size_t n_bytes;  /* of the lines of the head or of the trailers so far */
    uint64_t left;   /* of the body or of the chunk */
};

void http1_init(struct http1 *h);
void http1_deinit(struct http1 *h);

/* Reads on, until x is no longer being read. Returns the number of bytes that were used. */
size_t http1_read(struct http1 *h, struct exchange *x, const char *data, size_t len);

#endif
