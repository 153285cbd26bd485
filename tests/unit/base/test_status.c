#include "base/status.h"

#include <string.h>

#include "base/utf8.h"
#include "tests/unit/base/suite.h"

/* error_set fills everything and returns the status it was given. */
START_TEST(set_fills)
{
    struct error err;

    memset(&err, 'x', sizeof(err));
    ck_assert_int_eq(error_set(&err, STATUS_EXHAUSTED, "%d wait already", 7), STATUS_EXHAUSTED);
    ck_assert_int_eq(err.status, STATUS_EXHAUSTED);
    ck_assert_uint_eq(err.retry_after_ms, 0);
    ck_assert_str_eq(err.field, "");
    ck_assert_str_eq(err.text, "7 wait already");
}
END_TEST

/* error_field names the field twice: for a program in field, for a person in the text. */
START_TEST(field_is_named)
{
    char long_name[100];
    struct error err;

    memset(&err, 'x', sizeof(err));
    ck_assert_int_eq(error_field(&err, "top_p", "is %g", 1.5), STATUS_INVALID);
    ck_assert_int_eq(err.status, STATUS_INVALID);
    ck_assert_str_eq(err.field, "top_p");
    ck_assert_str_eq(err.text, "top_p is 1.5");
    ck_assert_uint_eq(err.retry_after_ms, 0);

    memset(long_name, 'n', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    (void)error_field(&err, long_name, "is long");
    ck_assert_uint_eq(strlen(err.field), sizeof(err.field) - 1);
    ck_assert_mem_eq(err.text, err.field, strlen(err.field));
    ck_assert_str_eq(err.text + strlen(err.field), " is long");
}
END_TEST

/* error_prefix names the thing and keeps all else. */
START_TEST(prefix_keeps_the_rest)
{
    struct error err;

    (void)error_field(&err, "n", "is 0");
    err.retry_after_ms = 50;
    ck_assert_int_eq(error_prefix(&err, "model '%s'", "m"), STATUS_INVALID);
    ck_assert_str_eq(err.text, "model 'm': n is 0");
    ck_assert_str_eq(err.field, "n");
    ck_assert_uint_eq(err.retry_after_ms, 50);
}
END_TEST

/* A message may quote the one it replaces. */
START_TEST(arguments_may_alias)
{
    struct error err;

    (void)error_set(&err, STATUS_UNKNOWN, "inner");
    (void)error_set(&err, STATUS_INTERNAL, "outer (%s)", err.text);
    ck_assert_str_eq(err.text, "outer (inner)");
    (void)error_prefix(&err, "%s", err.text);
    ck_assert_str_eq(err.text, "outer (inner): outer (inner)");
    (void)error_field(&err, "f", "%s", err.text);
    ck_assert_str_eq(err.text, "f outer (inner): outer (inner)");
    (void)error_field(&err, err.field, "again");
    ck_assert_str_eq(err.text, "f again");
    ck_assert_str_eq(err.field, "f");
}
END_TEST

/* Texts that are too long are cut between characters, wherever the cut falls. */
START_TEST(long_text_is_cut)
{
    char text[2 * ERROR_TEXT_MAX + 1] = "";
    struct error err;

    for (size_t i = 0; i + 3 < sizeof(text); i += 3)
        memcpy(text + i, "€", 4);
    for (int shift = 0; shift < 4; shift++) {
        (void)error_set(&err, STATUS_UNKNOWN, "%.*s%s", shift, "xxx", text);
        ck_assert_uint_le(strlen(err.text), ERROR_TEXT_MAX - 1);
        ck_assert_uint_ge(strlen(err.text), ERROR_TEXT_MAX - 3);
        ck_assert(utf8_is_valid(err.text, strlen(err.text)));
        (void)error_prefix(&err, "ab");
        ck_assert_mem_eq(err.text, "ab: ", 4);
        ck_assert(utf8_is_valid(err.text, strlen(err.text)));
        ck_assert_uint_ge(strlen(err.text), ERROR_TEXT_MAX - 3);
        (void)error_prefix(&err, "%s", text); /* leaves no room for the rest */
        ck_assert(utf8_is_valid(err.text, strlen(err.text)));
        (void)error_field(&err, "f", "%s", text);
        ck_assert(utf8_is_valid(err.text, strlen(err.text)));
    }
}
END_TEST

/* With any bytes in a foreign name, the text is one line of UTF-8 without controls. */
START_TEST(text_is_one_clean_line)
{
    struct error err;

    (void)error_set(&err, STATUS_UNKNOWN, "%s", "a\nb\x1b\x7f\xff€\xc2\x85.");
    ck_assert_str_eq(err.text, "a?b???€??.");
    (void)error_set(&err, STATUS_UNKNOWN, "%s", "cut \xe2\x82");
    ck_assert_str_eq(err.text, "cut ");
    (void)error_set(&err, STATUS_UNKNOWN, "fine");
    (void)error_prefix(&err, "%s", "\xc3(\n");
    ck_assert_str_eq(err.text, "?(?: fine");
}
END_TEST

/* Running out of memory says how much, for what. */
START_TEST(no_memory_names_the_need)
{
    struct error err;

    ck_assert_int_eq(error_no_memory(&err, UINT64_MAX, "the vocabulary"), STATUS_EXHAUSTED);
    ck_assert_int_eq(err.status, STATUS_EXHAUSTED);
    ck_assert_str_eq(err.text, "out of memory (18446744073709551615 bytes for the vocabulary)");
}
END_TEST

/* The numbers and names are gRPC's; any other number is UNKNOWN. */
START_TEST(names_are_grpcs)
{
    static const char *const names[] = {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    };

    for (int i = 0; i < 17; i++)
        ck_assert_str_eq(status_name((enum status)i), names[i]);
    ck_assert_str_eq(status_name((enum status)17), "UNKNOWN");
    ck_assert_str_eq(status_name((enum status) - 1), "UNKNOWN");
}
END_TEST

SUITE_MAIN("status", set_fills, field_is_named, prefix_keeps_the_rest, arguments_may_alias,
           long_text_is_cut, text_is_one_clean_line, no_memory_names_the_need, names_are_grpcs)
