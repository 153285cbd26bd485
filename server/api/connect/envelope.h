/* The messages of a stream in Connect's form: each is a byte of flags, its length in four bytes,
 * big-endian, and its bytes. */
#ifndef SERVER_API_CONNECT_ENVELOPE_H
#define SERVER_API_CONNECT_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

enum { ENVELOPE_HEAD_BYTES = 5, ENVELOPE_COMPRESSED = 1, ENVELOPE_END = 2 };

/* A client's whole body, which is borrowed. */
struct envelope_reader {
    const char *at, *end;
    bool is_gzip; /* Connect-Content-Encoding */
    struct buf inflated;
};

/* Takes Connect-Content-Encoding; NULL: there is none. UNIMPLEMENTED: it is not known. An inflated
 * message has at most max_bytes. */
enum status envelope_reader_init(struct envelope_reader *r, const char *body, size_t len,
                                 const char *coding, size_t max_bytes,
                                 struct error *err) MUST_CHECK;
void envelope_reader_deinit(struct envelope_reader *r);

/* The next message, valid until the next call. *out is NULL: there is no more. */
enum status envelope_read(const char **out, size_t *ret_len, struct envelope_reader *r,
                          struct error *err) MUST_CHECK;

/* Inflates a message of gzip's form, which replaces what out has. */
enum status envelope_inflate(struct buf *out, const char *data, size_t len,
                             struct error *err) MUST_CHECK;

/* Begins a message: its bytes are appended next. Returns where, for envelope_end. */
enum status envelope_begin(struct buf *out, unsigned flags, size_t *ret_start) MUST_CHECK;
void envelope_end(struct buf *out, size_t start);

#endif
