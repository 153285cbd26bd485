/* Takes the chunks of a request's body apart (RFC 9112, 7.1): libwebsockets hands them over as they
 * come on the wire. */
#ifndef SERVER_HTTP_DECHUNK_H
#define SERVER_HTTP_DECHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

enum dechunk_state {
    DECHUNK_SIZE,
    DECHUNK_EXTENSION,
    DECHUNK_SIZE_END,
    DECHUNK_DATA,
    DECHUNK_DATA_CR,
    DECHUNK_DATA_LF,
    DECHUNK_TRAILER,
    DECHUNK_TRAILER_LF,
    DECHUNK_DONE,
};

/* Zeroed memory is a beginning. */
struct dechunk {
    enum dechunk_state state;
    uint64_t left;        /* of the chunk's data */
    unsigned n_digits;    /* of its size */
    size_t n_extra;       /* bytes of extensions and trailers, which are thrown away */
    bool is_line_started; /* of the trailer */
};

/* Appends to out what of data belongs to the body. *ret_used is less than len only when the body is
 * whole. STATUS_INVALID: these are no chunks; EXHAUSTED: out's limit. */
enum status dechunk_feed(struct dechunk *d, const char *data, size_t len, struct buf *out,
                         size_t *ret_used, struct error *err) MUST_CHECK;

static inline bool dechunk_is_done(const struct dechunk *d)
{
    return d->state == DECHUNK_DONE;
}

#endif
