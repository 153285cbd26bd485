/* The framing of HTTP/1, by RFC 9112: cuts bytes into a head, a body and trailers, and gives these
 * to an exchange. Bytes that the grammar does not allow are refused and never repaired: a line ends
 * in CR and LF, a value is on one line, a length is a number. All functions are called on the loop.
 */
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
    HTTP1_BODY, /* a body of a known length */
    HTTP1_CHUNK_LINE,
    HTTP1_CHUNK,
    HTTP1_CHUNK_END, /* the end of line behind a chunk */
    HTTP1_TRAILERS,
};

struct http1 {
    enum http1_state state;
    struct buf line; /* the part of a line whose end has not come */
    size_t n_bytes;  /* how many bytes of the head's or the trailers' lines have come */
    uint64_t left;   /* how many bytes of the body or the chunk have not come */
};

void http1_init(struct http1 *h);
void http1_deinit(struct http1 *h);

/* Reads bytes until x needs no more. Returns how many bytes were used. */
size_t http1_read(struct http1 *h, struct exchange *x, const char *data, size_t len);

#endif
