/* Reads and frames a chunk of numbers without a copy: the ParamsChunk in field 2 of a ParamsUpload,
 * a ParamsCreateRequest or a ParamsDownload. A received chunk is read in place, in pieces; to send
 * one, a frame is made around data that stays in place. */
#ifndef PROTO_CHUNK_H
#define PROTO_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct chunk {
    uint64_t offset;
    uint32_t crc; /* crc32c of data */
    size_t size_bytes;
    size_t first, at; /* data begins at byte `at` of piece `first` */
};

/* CHUNK_NONE: another message, to be decoded. CHUNK_BAD: a chunk with a field twice, or with one
 * other than offset, data and crc32c. */
enum chunk_read { CHUNK_READ, CHUNK_NONE, CHUNK_BAD };
enum chunk_read chunk_read(struct chunk *out, const struct iovec *pieces, size_t n_pieces,
                           size_t size_bytes);

/* Copies data to `to` and returns its crc32c; taken (may be NULL) is called with each part once it
 * is copied. */
uint32_t chunk_copy(void *to, const struct chunk *c, const struct iovec *pieces,
                    void (*taken)(void *arg, const void *data, size_t size_bytes), void *arg);

/* The bytes of such a message before and after data. */
struct chunk_frame {
    uint8_t head[48], tail[8];
    size_t n_head, n_tail;
};

void chunk_frame(struct chunk_frame *out, uint64_t offset, size_t size_bytes, uint32_t crc);

#endif
