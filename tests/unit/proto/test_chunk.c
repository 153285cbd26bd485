#include "proto/chunk.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "parley/v1/params.pb-c.h"
#include "tests/unit/base/suite.h"

enum { MAX_BYTES = 1024, N_DATA = 300 };

/* A ParamsUpload with a chunk, as protobuf writes it; returns its size. */
static size_t upload(uint8_t out[MAX_BYTES], uint64_t offset, uint8_t *data, size_t n, uint32_t crc)
{
    Parley__V1__ParamsUpload m = PARLEY__V1__PARAMS_UPLOAD__INIT;
    Parley__V1__ParamsChunk c = PARLEY__V1__PARAMS_CHUNK__INIT;

    c.offset = offset;
    c.data.data = data;
    c.data.len = n;
    c.crc32c = crc;
    m.what_case = PARLEY__V1__PARAMS_UPLOAD__WHAT_CHUNK;
    m.chunk = &c;
    ck_assert_uint_le(parley__v1__params_upload__get_packed_size(&m), MAX_BYTES);
    return parley__v1__params_upload__pack(&m, out);
}

static void fill(uint8_t data[N_DATA])
{
    for (size_t i = 0; i < N_DATA; i++)
        data[i] = (uint8_t)(i * 31 + 5);
}

static void count(void *arg, const void *data, size_t size_bytes)
{
    *(size_t *)arg += size_bytes;
}

/* Whatever pieces a message comes in, the chunk is the same. */
START_TEST(test_pieces)
{
    uint8_t data[N_DATA], bytes[MAX_BYTES], copy[N_DATA];
    struct iovec pieces[MAX_BYTES];
    size_t size;

    fill(data);
    size = upload(bytes, 1 << 20, data, N_DATA, 0x12345678);
    for (size_t each = 1; each <= size; each++) {
        size_t n = 0, n_seen = 0;
        struct chunk c;

        pieces[n++] = (struct iovec){bytes, 0}; /* an empty one is skipped */
        for (size_t at = 0; at < size; at += each)
            pieces[n++] = (struct iovec){bytes + at, size - at < each ? size - at : each};
        ck_assert_int_eq(chunk_read(&c, pieces, n, size), CHUNK_READ);
        ck_assert_uint_eq(c.offset, 1 << 20);
        ck_assert_uint_eq(c.crc, 0x12345678);
        ck_assert_uint_eq(c.size_bytes, N_DATA);
        ck_assert_uint_eq(chunk_copy(copy, &c, pieces, count, &n_seen), crc32c(0, data, N_DATA));
        ck_assert_mem_eq(copy, data, N_DATA);
        ck_assert_uint_eq(n_seen, N_DATA);
    }
}
END_TEST

/* A frame round data is the message that protobuf reads. */
START_TEST(test_frame)
{
    static const size_t sizes[] = {4, 100, 127, 128, N_DATA};
    uint8_t data[N_DATA], bytes[MAX_BYTES];

    fill(data);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t offset = i == 0 ? 0 : UINT64_C(1) << 13 * i;
        Parley__V1__ParamsDownload *m;
        struct chunk_frame f;

        chunk_frame(&f, offset, sizes[i], 0xdeadbeef);
        memcpy(bytes, f.head, f.n_head);
        memcpy(bytes + f.n_head, data, sizes[i]);
        memcpy(bytes + f.n_head + sizes[i], f.tail, f.n_tail);
        m = parley__v1__params_download__unpack(NULL, f.n_head + sizes[i] + f.n_tail, bytes);
        ck_assert_ptr_nonnull(m);
        ck_assert_int_eq(m->what_case, PARLEY__V1__PARAMS_DOWNLOAD__WHAT_CHUNK);
        ck_assert_uint_eq(m->chunk->offset, offset);
        ck_assert_uint_eq(m->chunk->crc32c, 0xdeadbeef);
        ck_assert_uint_eq(m->chunk->data.len, sizes[i]);
        ck_assert_mem_eq(m->chunk->data.data, data, sizes[i]);
        parley__v1__params_download__free_unpacked(m, NULL);
    }
}
END_TEST

/* What is cut is no chunk; what has more than a chunk's fields is a bad one. */
START_TEST(test_others)
{
    uint8_t data[N_DATA], bytes[MAX_BYTES];
    struct iovec piece;
    struct chunk c;
    size_t size;

    fill(data);
    size = upload(bytes, 8, data, N_DATA, 1);
    for (size_t n = 0; n < size; n++) {
        uint8_t *exact = xalloc(n + 1); /* so that a sanitizer sees a read behind the end */

        memcpy(exact, bytes, n);
        piece = (struct iovec){exact, n};
        ck_assert_int_eq(chunk_read(&c, &piece, 1, n), CHUNK_NONE);
        free(exact);
    }
    ck_assert_int_eq(chunk_read(&c, NULL, 0, 0), CHUNK_NONE);
    piece = (struct iovec){(uint8_t[]){0x12, 4, 0x08, 1, 0x08, 2}, 6}; /* offset twice */
    ck_assert_int_eq(chunk_read(&c, &piece, 1, 6), CHUNK_BAD);
    piece = (struct iovec){(uint8_t[]){0x12, 2, 0x20, 1}, 4}; /* field 4 */
    ck_assert_int_eq(chunk_read(&c, &piece, 1, 4), CHUNK_BAD);
    piece = (struct iovec){(uint8_t[]){0x12, 2, 0x12, 9}, 4}; /* data that is not there */
    ck_assert_int_eq(chunk_read(&c, &piece, 1, 4), CHUNK_BAD);
    piece = (struct iovec){(uint8_t[]){0x0a, 0}, 2}; /* a header */
    ck_assert_int_eq(chunk_read(&c, &piece, 1, 2), CHUNK_NONE);
}
END_TEST

SUITE_MAIN("proto/chunk", test_pieces, test_frame, test_others)
