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

/* A reader of the messages in a client's whole body, which is borrowed. */
struct envelope_reader {
    const char *at, *end;
    bool is_gzip; /* Connect-Content-Encoding */
    struct buf inflated;
};

/* Begins to read a body. coding is the value of Connect-Content-Encoding, or NULL. An inflated
 * message has at most max_bytes. UNIMPLEMENTED for a coding that is not known. */
enum status envelope_reader_init(struct envelope_reader *r, const char *body, size_t len,
                                 const char *coding, size_t max_bytes,
                                 struct error *err) MUST_CHECK;
void envelope_reader_deinit(struct envelope_reader *r);

/* Reads the next message, which is valid until the next call. *out is NULL behind the last one. */
enum status envelope_read(const char **out, size_t *ret_len, struct envelope_reader *r,
                          struct error *err) MUST_CHECK;

/* Inflates a message in gzip's form into out, whose bytes are replaced. */
enum status envelope_inflate(struct buf *out, const char *data, size_t len,
                             struct error *err) MUST_CHECK;

/* Begins a message, whose bytes the caller appends next. *ret_start is for envelope_end, which puts
 * in the message's length. */
enum status envelope_begin(struct buf *out, unsigned flags, size_t *ret_start) MUST_CHECK;
void envelope_end(struct buf *out, size_t start);

#endif
