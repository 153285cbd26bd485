#include "proto/chunk.h"

#include <string.h>

#include "base/checksum.h"

/* A position in the pieces of a message. */
struct cursor {
    const struct iovec *pieces; /* [n_pieces] */
    size_t n_pieces;
    size_t piece, at; /* at < the piece's size, unless all is read */
    size_t left;      /* of the message */
};

static bool skip(struct cursor *c, size_t n)
{
    if (n > c->left)
        return false;
    c->left -= n;
    c->at += n;
    while (c->piece < c->n_pieces && c->at >= c->pieces[c->piece].iov_len) {
        c->at -= c->pieces[c->piece].iov_len;
        c->piece++;
    }
    return true;
}

static bool read_byte(struct cursor *c, uint8_t *out)
{
    if (c->left == 0)
        return false;
    *out = ((const uint8_t *)c->pieces[c->piece].iov_base)[c->at];
    return skip(c, 1);
}

static bool cursor_read_varint(struct cursor *c, uint64_t *out)
{
    uint8_t byte = 0x80;

    *out = 0;
    for (unsigned shift = 0; shift < 64 && (byte & 0x80) != 0; shift += 7) {
        if (!read_byte(c, &byte))
            return false;
        *out |= (uint64_t)(byte & 0x7f) << shift;
    }
    return (byte & 0x80) == 0;
}

static bool read_fixed32(struct cursor *c, uint32_t *out)
{
    uint8_t byte;

    *out = 0;
    for (unsigned i = 0; i < 4; i++) {
        if (!read_byte(c, &byte))
            return false;
        *out |= (uint32_t)byte << 8 * i;
    }
    return true;
}

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static uint64_t tag(unsigned field, unsigned wire)
{
    return (uint64_t)field << 3 | wire;
}

/* The fields of a ParamsChunk, each once at most, in any order. */
static bool read_chunk(struct chunk *out, struct cursor *c)
{
    unsigned seen = 0;

    *out = (struct chunk){0};
    while (c->left > 0) {
        uint64_t key, n;
        unsigned field;

        if (!cursor_read_varint(c, &key))
            return false;
        field = (unsigned)(key >> 3 & 7);
        if ((seen & 1u << field) != 0)
            return false;
        seen |= 1u << field;
        if (key == tag(1, WIRE_VARINT)) {
            if (!cursor_read_varint(c, &out->offset))
                return false;
        } else if (key == tag(2, WIRE_BYTES)) {
            if (!cursor_read_varint(c, &n) || n > c->left)
                return false;
            out->first = c->piece;
            out->at = c->at;
            out->size_bytes = (size_t)n;
            (void)skip(c, (size_t)n); /* cannot fail: n <= left */
        } else if (key == tag(3, WIRE_FIXED32)) {
            if (!read_fixed32(c, &out->crc))
                return false;
        } else {
            return false;
        }
    }
    return true;
}

static bool is_chunk(struct cursor *c)
{
    uint64_t key, n;

    return cursor_read_varint(c, &key) && key == tag(2, WIRE_BYTES) && cursor_read_varint(c, &n) &&
           n == c->left;
}

enum chunk_read chunk_read(struct chunk *out, const struct iovec *pieces, size_t n_pieces,
                           size_t size_bytes)
{
    struct cursor c = {.pieces = pieces, .n_pieces = n_pieces, .left = size_bytes};

    (void)skip(&c, 0); /* skips empty pieces */
    if (!is_chunk(&c))
        return CHUNK_NONE;
    return read_chunk(out, &c) ? CHUNK_READ : CHUNK_BAD;
}

uint32_t chunk_copy(void *to, const struct chunk *c, const struct iovec *pieces,
                    void (*taken)(void *arg, const void *data, size_t size_bytes), void *arg)
{
    size_t left = c->size_bytes, at = c->at;
    char *next = to;
    uint32_t crc = 0;

    for (size_t i = c->first; left > 0; i++, at = 0) {
        size_t n = pieces[i].iov_len - at;

        n = n < left ? n : left;
        memcpy(next, (const char *)pieces[i].iov_base + at, n);
        crc = crc32c(crc, next, n); /* while it is in the cache */
        if (taken != NULL)
            taken(arg, next, n);
        next += n;
        left -= n;
    }
    return crc;
}

static size_t put_varint(uint8_t *out, uint64_t value)
{
    size_t n = 0;

    for (; value >= 0x80; value >>= 7)
        out[n++] = (uint8_t)(value | 0x80);
    out[n++] = (uint8_t)value;
    return n;
}

void chunk_frame(struct chunk_frame *out, uint64_t offset, size_t size_bytes, uint32_t crc)
{
    uint8_t inner[24];
    size_t n = 0;

    n += put_varint(inner + n, tag(1, WIRE_VARINT));
    n += put_varint(inner + n, offset);
    n += put_varint(inner + n, tag(2, WIRE_BYTES));
    n += put_varint(inner + n, size_bytes);
    out->n_tail = put_varint(out->tail, tag(3, WIRE_FIXED32));
    for (unsigned i = 0; i < 4; i++)
        out->tail[out->n_tail++] = (uint8_t)(crc >> 8 * i);
    out->n_head = put_varint(out->head, tag(2, WIRE_BYTES));
    out->n_head += put_varint(out->head + out->n_head, n + size_bytes + out->n_tail);
    memcpy(out->head + out->n_head, inner, n);
    out->n_head += n;
}
