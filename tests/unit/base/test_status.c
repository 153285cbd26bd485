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

/* error_because fills all that a program reads, and takes no field for "". */
START_TEST(because_fills)
{
    struct error err;

    memset(&err, 'x', sizeof(err));
    ck_assert_int_eq(error_because(&err, STATUS_EXISTS, REASON_TURN_BODY_DIFFERS, "turn",
                                   "turn %d is not so", 3),
                     STATUS_EXISTS);
    ck_assert_int_eq(err.status, STATUS_EXISTS);
    ck_assert_str_eq(error_reason(&err), "TURN_BODY_DIFFERS");
    ck_assert_str_eq(err.field, "turn");
    ck_assert_str_eq(err.text, "turn 3 is not so");
    ck_assert_uint_eq(err.retry_after_ms, 0);
    ck_assert_uint_eq(err.have_version + err.want_version, 0);
    (void)error_because(&err, STATUS_ABORTED, REASON_TURN_GAP, err.field, "%s again", err.text);
    ck_assert_str_eq(err.field, "turn");
    ck_assert_str_eq(err.text, "turn 3 is not so again");
    (void)error_because(&err, STATUS_ABORTED, REASON_TURN_GAP, NULL, "no field");
    ck_assert_str_eq(err.field, "");
}
END_TEST

/* An error gets its field from a layer that knows it, its text stays; foreign bytes become one line
 * of UTF-8. */
START_TEST(field_comes_later)
{
    struct error err;

    (void)error_set(&err, STATUS_NOT_FOUND, "there is no model 'x'");
    ck_assert_int_eq(error_name_field(&err, "model"), STATUS_NOT_FOUND);
    ck_assert_str_eq(err.field, "model");
    ck_assert_str_eq(err.text, "there is no model 'x'");
    (void)error_name_field(&err, "name");
    ck_assert_str_eq(err.field, "name");
    (void)error_field(&err, "a\n\xff", "is foreign");
    ck_assert_str_eq(err.field, "a??");
    (void)error_set(&err, STATUS_INVALID, "cut");
    (void)error_name_field(&err, "€€€€€€€€€€€€€€€€€€€€");
    ck_assert_uint_eq(strlen(err.field), 45);
    ck_assert(utf8_is_valid(err.field, 45));
}
END_TEST

/* Each reason is a word of its own, as google.rpc.ErrorInfo wants it: [A-Z][A-Z0-9_]+, at most 63.
 */
START_TEST(reasons_are_words)
{
    for (int i = 1; i < N_REASONS; i++) {
        const char *name = reason_name((enum reason)i);

        ck_assert_ptr_nonnull(name);
        ck_assert_uint_ge(strlen(name), 3);
        ck_assert_uint_le(strlen(name), 47);
        ck_assert_uint_eq(strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), strlen(name));
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(name, reason_name((enum reason)j));
    }
}
END_TEST

/* Without a reason of its own an error has the status's name, or says that a field is wrong. */
START_TEST(reason_by_default)
{
    struct error err;

    (void)error_set(&err, STATUS_UNAVAILABLE, "away");
    ck_assert_str_eq(error_reason(&err), "UNAVAILABLE");
    (void)error_set(&err, STATUS_INVALID, "wrong");
    ck_assert_str_eq(error_reason(&err), "INVALID_ARGUMENT");
    (void)error_name_field(&err, "n");
    ck_assert_str_eq(error_reason(&err), "INVALID_FIELD");
    (void)error_field(&err, "n", "is wrong");
    ck_assert_str_eq(error_reason(&err), "INVALID_FIELD");
    (void)error_no_memory(&err, 1, "it");
    ck_assert_str_eq(error_reason(&err), "OUT_OF_MEMORY");
    (void)error_set(&err, STATUS_NOT_FOUND, "none");
    ck_assert_str_eq(error_reason(&err), "NOT_FOUND");
}
END_TEST

/* Every RESOURCE_EXHAUSTED has a retry delay; the default is one second. */
START_TEST(exhausted_has_a_hint)
{
    struct error err;

    (void)error_set(&err, STATUS_EXHAUSTED, "full");
    ck_assert_uint_eq(error_retry_ms(&err), 1000);
    err.retry_after_ms = 7;
    ck_assert_uint_eq(error_retry_ms(&err), 7);
    (void)error_set(&err, STATUS_UNAVAILABLE, "away");
    ck_assert_uint_eq(error_retry_ms(&err), 0);
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

/* Running out of memory says how much, if that is known, and for what. Programs read the reason. */
START_TEST(no_memory_names_the_need)
{
    struct error err;

    ck_assert_int_eq(error_no_memory(&err, UINT64_MAX, "the vocabulary"), STATUS_EXHAUSTED);
    ck_assert_int_eq(err.status, STATUS_EXHAUSTED);
    ck_assert_str_eq(err.text, "out of memory (18446744073709551615 bytes for the vocabulary)");
    ck_assert_int_eq(error_no_memory(&err, 0, "the request"), STATUS_EXHAUSTED);
    ck_assert_str_eq(err.text, "out of memory for the request");
    ck_assert_str_eq(error_reason(&err), "OUT_OF_MEMORY");
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

SUITE_MAIN("status", set_fills, field_is_named, because_fills, field_comes_later, reasons_are_words,
           reason_by_default, exhausted_has_a_hint, prefix_keeps_the_rest, arguments_may_alias,
           long_text_is_cut, text_is_one_clean_line, no_memory_names_the_need, names_are_grpcs)
