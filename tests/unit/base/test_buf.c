#include "base/buf.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"

/* Appends make one run of bytes, NUL-ended at every moment. */
START_TEST(append_grows)
{
    struct buf b;

    buf_init(&b, SIZE_MAX);
    ck_assert_ptr_null(b.data);
    for (size_t i = 0; i < 5000; i++) {
        char byte = (char)('a' + i % 26);

        ck_assert_int_eq(buf_append(&b, &byte, 1), STATUS_OK);
        ck_assert_uint_eq(b.len, i + 1);
        ck_assert_int_eq(b.data[b.len], '\0');
    }
    for (size_t i = 0; i < b.len; i++)
        ck_assert_int_eq(b.data[i], (char)('a' + i % 26));
    buf_deinit(&b);
    ck_assert_ptr_null(b.data);
    ck_assert_uint_eq(b.len, 0);
    buf_deinit(NULL);
}
END_TEST

/* Any bytes can be appended, NUL too; appending none does nothing. */
START_TEST(append_takes_any_bytes)
{
    struct buf b;

    buf_init(&b, 100);
    ck_assert_int_eq(buf_append(&b, NULL, 0), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&b, ""), STATUS_OK);
    ck_assert_ptr_null(b.data);
    ck_assert_int_eq(buf_append(&b, "a\0b", 3), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&b, "c"), STATUS_OK);
    ck_assert_uint_eq(b.len, 4);
    ck_assert_mem_eq(b.data, "a\0bc", 5);
    buf_deinit(&b);
}
END_TEST

/* An append up to the limit succeeds, to the last byte; one beyond it fails, and nothing is
 * lost. */
START_TEST(limit_holds)
{
    char bytes[64];
    struct buf b;

    memset(bytes, 'x', sizeof(bytes));
    for (size_t limit = 0; limit < sizeof(bytes); limit++) {
        buf_init(&b, limit);
        ck_assert_int_eq(buf_append(&b, bytes, limit + 1), STATUS_EXHAUSTED);
        ck_assert_uint_eq(b.len, 0);
        ck_assert_int_eq(buf_append(&b, bytes, limit), STATUS_OK);
        ck_assert_int_eq(buf_append(&b, "y", 1), STATUS_EXHAUSTED);
        ck_assert_int_eq(buf_append(&b, bytes, SIZE_MAX), STATUS_EXHAUSTED);
        ck_assert_int_eq(buf_printf(&b, "%d", 1), STATUS_EXHAUSTED);
        ck_assert_int_eq(buf_reserve(&b, 1), STATUS_EXHAUSTED);
        ck_assert(b.is_full);
        ck_assert_uint_eq(b.len, limit);
        ck_assert_uint_le(b.cap, limit + 1);
        if (limit > 0) {
            ck_assert_mem_eq(b.data, bytes, limit);
            ck_assert_int_eq(b.data[limit], '\0');
        }
        buf_deinit(&b);
        ck_assert_uint_eq(b.limit_bytes, limit);
    }
}
END_TEST

/* Printed text is whole, whether it fits the free space, fills it, or needs more. */
START_TEST(printf_prints_whole)
{
    char want[400];
    struct buf b;

    for (int width = 1; width < 300; width++) {
        buf_init(&b, 1000);
        ck_assert_int_eq(buf_append_text(&b, "head "), STATUS_OK);
        ck_assert_int_eq(buf_printf(&b, "%0*d %s", width, 7, "tail"), STATUS_OK);
        (void)snprintf(want, sizeof(want), "head %0*d %s", width, 7, "tail");
        ck_assert_str_eq(b.data, want);
        ck_assert_uint_eq(b.len, strlen(want));
        buf_deinit(&b);
    }
    buf_init(&b, 1000);
    ck_assert_int_eq(buf_printf(&b, "%s", ""), STATUS_OK);
    ck_assert_uint_eq(b.len, 0);
    buf_deinit(&b);
}
END_TEST

/* A print that goes beyond the limit leaves every byte before it, and the NUL after them. */
START_TEST(printf_loses_nothing)
{
    struct buf b;

    buf_init(&b, 200);
    ck_assert_int_eq(buf_append_text(&b, "kept"), STATUS_OK);
    for (int width = 197; width < 600; width++) {
        ck_assert_int_eq(buf_printf(&b, "%*d", width, 7), STATUS_EXHAUSTED);
        ck_assert_uint_eq(b.len, 4);
        ck_assert_str_eq(b.data, "kept");
    }
    ck_assert_int_eq(buf_printf(&b, "%*d", 196, 7), STATUS_OK);
    ck_assert_uint_eq(b.len, 200);
    buf_deinit(&b);
}
END_TEST

/* The directives that buf_printf formats itself give the library's text, also mixed with others;
 * beyond the limit they append nothing. */
START_TEST(printf_prints_as_the_library)
{
    static const unsigned long long numbers[] = {0,  1,  9,          10,         15,
                                                 16, 99, UINT32_MAX, 1ull << 32, ULLONG_MAX};
    char want[400];
    struct buf b;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        unsigned long long n = numbers[i];

        buf_init(&b, 1000);
        ck_assert_int_eq(buf_printf(&b, "%s:%u %lu %llu %zu|%x %lx %llx %zx|%s", "a", (unsigned)n,
                                    (unsigned long)n, n, (size_t)n, (unsigned)n, (unsigned long)n,
                                    n, (size_t)n, ""),
                         STATUS_OK);
        (void)snprintf(want, sizeof(want), "%s:%u %lu %llu %zu|%x %lx %llx %zx|%s", "a",
                       (unsigned)n, (unsigned long)n, n, (size_t)n, (unsigned)n, (unsigned long)n,
                       n, (size_t)n, "");
        ck_assert_str_eq(b.data, want);
        ck_assert_uint_eq(b.len, strlen(want));
        buf_clear(&b);
        ck_assert_int_eq(buf_printf(&b, "%llu %%%5.2f %u%%", n, 0.5, 7u), STATUS_OK);
        (void)snprintf(want, sizeof(want), "%llu %%%5.2f %u%%", n, 0.5, 7u);
        ck_assert_str_eq(b.data, want);
        buf_deinit(&b);
    }
    for (size_t limit = 4; limit < 13; limit++) {
        buf_init(&b, limit);
        ck_assert_int_eq(buf_append_text(&b, "kept"), STATUS_OK);
        ck_assert_int_eq(buf_printf(&b, "%s-%u-%zx", "abc", 12u, (size_t)255), STATUS_EXHAUSTED);
        ck_assert_str_eq(b.data, "kept");
        ck_assert_uint_eq(b.len, 4);
        buf_deinit(&b);
    }
    buf_init(&b, 13);
    ck_assert_int_eq(buf_printf(&b, "kept%s-%u-%zx", "abc", 12u, (size_t)255), STATUS_OK);
    ck_assert_str_eq(b.data, "keptabc-12-ff");
    buf_deinit(&b);
}
END_TEST

/* Consuming drops from the front, clearing drops all; both keep the memory. */
START_TEST(consume_and_clear)
{
    struct buf b;
    size_t cap;

    buf_init(&b, 100);
    buf_clear(&b);
    buf_consume(&b, 0);
    ck_assert_int_eq(buf_append_text(&b, "abcdef"), STATUS_OK);
    cap = b.cap;
    buf_consume(&b, 2);
    ck_assert_str_eq(b.data, "cdef");
    buf_consume(&b, 0);
    ck_assert_str_eq(b.data, "cdef");
    buf_consume(&b, 4);
    ck_assert_uint_eq(b.len, 0);
    ck_assert_str_eq(b.data, "");
    ck_assert_int_eq(buf_append_text(&b, "gh"), STATUS_OK);
    buf_clear(&b);
    ck_assert_uint_eq(b.len, 0);
    ck_assert_str_eq(b.data, "");
    ck_assert_uint_eq(b.cap, cap);
    buf_deinit(&b);
}
END_TEST

static void consume_too_much(void)
{
    struct buf b;

    buf_init(&b, 100);
    if (buf_append_text(&b, "ab") == STATUS_OK)
        buf_consume(&b, 3);
}

/* Consuming more than the buffer holds aborts. */
START_TEST(consume_too_much_aborts)
{
    ck_assert(suite_aborts(consume_too_much));
}
END_TEST

SUITE_MAIN("buf", append_grows, append_takes_any_bytes, limit_holds, printf_prints_whole,
           printf_prints_as_the_library, printf_loses_nothing, consume_and_clear,
           consume_too_much_aborts)
