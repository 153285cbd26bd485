#include "base/checksum.h"

#include <string.h>

#include "base/alloc.h"
#include "tests/unit/base/suite.h"

/* The check value of the algorithm, and two of RFC 3720's. */
START_TEST(test_crc32c)
{
    uint8_t zeros[32] = {0}, ones[32];

    memset(ones, 0xff, sizeof(ones));
    ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(crc32c(0, zeros, 32), 0x8a9136aa);
    ck_assert_uint_eq(crc32c(0, ones, 32), 0x62a8ab43);
    ck_assert_uint_eq(crc32c(0, "", 0), 0);
    ck_assert_uint_eq(crc32c_by_table(0, "123456789", 9), 0xe3069283);
}
END_TEST

/* Pieces give the same as the whole, with the instruction and without, at any alignment. */
START_TEST(test_crc32c_in_pieces)
{
    uint8_t bytes[300];
    uint32_t whole;

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
    whole = crc32c_by_table(0, bytes, sizeof(bytes));
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        uint32_t head = crc32c(0, bytes, cut);

        ck_assert_uint_eq(crc32c(head, bytes + cut, sizeof(bytes) - cut), whole);
        ck_assert_uint_eq(crc32c_by_table(head, bytes + cut, sizeof(bytes) - cut), whole);
    }
}
END_TEST

/* FIPS 180's "abc", in pieces, and again in the state after sha256_take. */
START_TEST(test_sha256)
{
    static const uint8_t want[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
                                   0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
                                   0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    uint8_t got[SHA256_BYTES];
    struct sha256 *s;
    struct error err;

    ck_assert_int_eq(sha256_open(&s, &err), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        sha256_add(s, "ab", 2);
        sha256_add(s, "c", 1);
        sha256_take(s, got);
        ck_assert_mem_eq(got, want, sizeof(want));
    }
    sha256_close(s);
}
END_TEST

START_TEST(test_secrets)
{
    ck_assert(secret_is("open sesame", "open sesame!", 11) && secret_is("", "", 0));
    ck_assert(!secret_is("open sesame", "Open sesame", 11));
    ck_assert(!secret_is("open sesame", "open sesamE", 11));
    ck_assert(secret_is("a\0b", "a\0b", 3) && !secret_is("a\0b", "a\0c", 3));
}
END_TEST

/* Without memory opening fails. */
START_TEST(test_fault)
{
    struct sha256 *s;
    struct error err;

    fault_after = 0;
    ck_assert_int_eq(sha256_open(&s, &err), STATUS_EXHAUSTED);
    fault_after = -1;
    sha256_close(NULL);
}
END_TEST

SUITE_MAIN("base/checksum", test_crc32c, test_crc32c_in_pieces, test_sha256, test_secrets,
           test_fault)
