#include "server/params/checkpoint_body.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static enum status read_version(struct checkpoint_body *out, uint32_t version, const void *bytes,
                                size_t size_bytes, struct arena *arena)
{
    struct error err = {0};
    struct body_reader r = {.at = bytes,
                            .end = (const unsigned char *)bytes + size_bytes,
                            .arena = arena,
                            .version = version};
    enum status rc = checkpoint_body_read(out, &r, &err);

    ck_assert_int_eq(rc, err.status);
    return rc;
}

static enum status read_back(struct checkpoint_body *out, const void *bytes, size_t size_bytes,
                             struct arena *arena)
{
    return read_version(out, CHECKPOINT_BODY_VERSION, bytes, size_bytes, arena);
}

/* A body is read as it was written; each part of it that is cut off, and one byte more, is refused,
 * and no change of a byte is read outside of it. */
START_TEST(test_body)
{
    static const struct checkpoint_client clients[] = {{"anna", 7, 6}, {"", UINT64_MAX, 1}};
    static const uint64_t steps[] = {9, 0, 4};
    const struct checkpoint_body body = {
        .config = "\0config",
        .config_size = 7,
        .n = 12,
        .n_moments = 2,
        .version = 9,
        .sha256 = {4, 5},
        .counters = {1, 2, 3, 4, 5},
        .clients = clients,
        .n_clients = 2,
        .steps = steps,
        .n_steps = 3,
    };
    struct checkpoint_body read = {0};
    struct arena arena;
    struct buf bytes;
    struct error err;
    char *cut;

    arena_init(&arena, 1 << 20);
    buf_init(&bytes, 1 << 20);
    ck_assert_int_eq(checkpoint_body_write(&bytes, &body, &err), STATUS_OK);
    ck_assert_int_eq(read_back(&read, bytes.data, bytes.len, &arena), STATUS_OK);
    ck_assert_uint_eq(read.config_size, 7);
    ck_assert_mem_eq(read.config, body.config, 7);
    ck_assert_uint_eq(read.n, 12);
    ck_assert_uint_eq(read.n_moments, 2);
    ck_assert_uint_eq(read.version, 9);
    ck_assert_mem_eq(read.sha256, body.sha256, sizeof(body.sha256));
    ck_assert_mem_eq(&read.counters, &body.counters, sizeof(body.counters));
    ck_assert_uint_eq(read.n_clients, 2);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_str_eq(read.clients[i].id, clients[i].id);
        ck_assert_uint_eq(read.clients[i].last_step, clients[i].last_step);
        ck_assert_uint_eq(read.clients[i].last_version, clients[i].last_version);
    }
    ck_assert_uint_eq(read.n_steps, 3);
    ck_assert_mem_eq(read.steps, steps, sizeof(steps));
    /* one of version 1 ends before the steps */
    ck_assert_int_eq(read_version(&read, 1, bytes.data, bytes.len - 4 - sizeof(steps), &arena),
                     STATUS_OK);
    ck_assert_uint_eq(read.n_steps, 0);
    for (size_t len = 0; len <= bytes.len; len++) {
        cut = malloc(len + 1); /* its end is the block's, for the sanitizer */
        ck_assert_ptr_nonnull(cut);
        memcpy(cut, bytes.data, len);
        cut[len] = 0;
        ck_assert_int_eq(read_back(&read, cut, len < bytes.len ? len : len + 1, &arena),
                         STATUS_DATA_LOSS);
        free(cut);
    }
    for (size_t i = 0; i < bytes.len; i++) {
        bytes.data[i] = (char)(bytes.data[i] ^ 0x41);
        (void)read_back(&read, bytes.data, bytes.len, &arena); /* some changes are other values */
        bytes.data[i] = (char)(bytes.data[i] ^ 0x41);
    }
    buf_deinit(&bytes);
    arena_deinit(&arena);
}
END_TEST

SUITE_MAIN("server/params/checkpoint_body", test_body)
