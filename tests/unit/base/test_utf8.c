#include "base/utf8.h"

#include <string.h>

#include "tests/unit/base/suite.h"

/* Every character is read back as written; its length is RFC 3629's. */
START_TEST(every_character_round_trips)
{
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        size_t want = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        uint32_t back = 0;
        char bytes[4];

        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        if (utf8_encode(c, bytes) != want || utf8_decode(bytes, want, &back) != want || back != c ||
            utf8_decode(bytes, want - 1, &back) != 0 || !utf8_is_valid(bytes, want))
            ck_abort_msg("U+%04X", (unsigned)c);
    }
}
END_TEST

/* The bytes are the standard's own (RFC 3629, section 7, and the ends of each length). */
START_TEST(known_bytes)
{
    static const struct {
        uint32_t c;
        const char *bytes;
    } known[] = {
        {0x41, "\x41"},
        {0x7F, "\x7F"},
        {0x80, "\xC2\x80"},
        {0x7FF, "\xDF\xBF"},
        {0x800, "\xE0\xA0\x80"},
        {0x2262, "\xE2\x89\xA2"},
        {0xD7FF, "\xED\x9F\xBF"},
        {0xE000, "\xEE\x80\x80"},
        {0xFFFF, "\xEF\xBF\xBF"},
        {0x10000, "\xF0\x90\x80\x80"},
        {0x233B4, "\xF0\xA3\x8E\xB4"},
        {0x10FFFF, "\xF4\x8F\xBF\xBF"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        char bytes[4];
        size_t n = utf8_encode(known[i].c, bytes);

        ck_assert_uint_eq(n, strlen(known[i].bytes));
        ck_assert_mem_eq(bytes, known[i].bytes, n);
    }
}
END_TEST

/* An invalid code point is written as U+FFFD. */
START_TEST(no_character_is_replaced)
{
    static const uint32_t none[] = {0xD800, 0xDFFF, 0x110000, UINT32_MAX};

    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        char bytes[4];

        ck_assert_uint_eq(utf8_encode(none[i], bytes), 3);
        ck_assert_mem_eq(bytes, "\xEF\xBF\xBD", 3);
    }
}
END_TEST

/* Bytes that are read as a character are written back the same: no long forms, surrogates or
 * numbers beyond the last. All first and second bytes, the bounds of third and fourth. */
START_TEST(nothing_else_is_valid)
{
    static const unsigned char ends[] = {0x00, 0x7F, 0x80, 0x8F, 0xBF, 0xC0, 0xFF};
    enum { N_ENDS = sizeof(ends) };

    for (unsigned i = 0; i < 0x10000 * N_ENDS * N_ENDS; i++) {
        unsigned rest = i / 0x10000;
        const char in[4] = {(char)(i >> 8 & 0xFF), (char)(i & 0xFF), (char)ends[rest % N_ENDS],
                            (char)ends[rest / N_ENDS]};
        uint32_t c = 0xABCDEF;
        size_t n = utf8_decode(in, 4, &c);
        char back[4];

        if (n == 0 ? c != 0xABCDEF : utf8_encode(c, back) != n || memcmp(in, back, n) != 0)
            ck_abort_msg("bytes %02x %02x %02x %02x", (unsigned char)in[0], (unsigned char)in[1],
                         (unsigned char)in[2], (unsigned char)in[3]);
        if (utf8_is_valid(in, n) != true || (n == 0 && utf8_is_valid(in, 4)))
            ck_abort_msg("validity of %02x %02x", (unsigned char)in[0], (unsigned char)in[1]);
    }
}
END_TEST

/* A text is valid if all of it is; NUL and the empty text are valid. */
START_TEST(validity_of_texts)
{
    ck_assert(utf8_is_valid(NULL, 0));
    ck_assert(utf8_is_valid("a\0b", 3));
    ck_assert(utf8_is_valid("é€😀", 9));
    ck_assert(!utf8_is_valid("é€😀", 8));
    ck_assert(!utf8_is_valid("a\x80", 2));
    ck_assert(!utf8_is_valid("\xff"
                             "abc",
                             4));
    ck_assert(!utf8_is_valid("ok\xC0\xAF", 4));
}
END_TEST

/* Wherever a valid text is cut, the complete part ends at the last character's end. */
START_TEST(complete_len_of_cuts)
{
    static const char text[] = "a\0é€b😀😀";
    const size_t whole = sizeof(text) - 1;
    size_t start = 0; /* of the character the cut falls into */

    ck_assert_uint_eq(utf8_complete_len(text, 0), 0);
    for (size_t len = 1; len <= whole; len++) {
        uint32_t c;

        if (len == start + utf8_decode(text + start, whole - start, &c))
            start = len;
        ck_assert_uint_eq(utf8_complete_len(text, len), start);
    }
    ck_assert_uint_eq(start, whole);
}
END_TEST

/* Bytes that no further byte can complete are not held back. */
START_TEST(complete_len_of_garbage)
{
    static const struct {
        const char *bytes;
        size_t want;
    } known[] = {
        {"\x80", 1},         {"\x80\x80\x80\x80", 4}, {"a\xFF", 2},
        {"a\xC0", 2},        {"a\xC1\x80", 3},        {"a\xF5\x80", 3},
        {"\xE0\x80", 2},     {"\xED\xA0", 2},         {"\xF0\x80\x80", 3},
        {"\xF4\x90", 2},     {"\xC3\xA9\x80", 3},     {"\xE2\x82\xAC\x80", 4},
        {"\xE2\x41\x82", 3}, {"\xE2\xE2\x82", 1},     {"\xFF\xF0\x9F\x98", 1},
        {"\xC3", 0},         {"\xE0\xA0", 0},         {"\xF4\x8F\xBF", 0},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        ck_assert_uint_eq(utf8_complete_len(known[i].bytes, strlen(known[i].bytes)), known[i].want);
}
END_TEST

/* utf8_next accepts any bytes, one U+FFFD for each maximal subpart (Unicode 15, table 3-8 and its
 * neighbours), and reads valid text as utf8_decode does. */
START_TEST(next_goes_on)
{
    static const struct {
        const char *bytes;
        uint32_t chars[8];
        size_t n_chars;
    } known[] = {
        {"a\xC3\xA9", {'a', 0xE9}, 2},
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82",
         {0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD},
         8},
        {"\xED\xA0\x80\xED\x41", {0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 'A'}, 5},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", {0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 'A'}, 5},
        {"x\xF0\x9F\x98", {'x', 0xFFFD}, 2},
    };
    uint32_t c = 7;

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const char *at = known[i].bytes;
        size_t len = strlen(at);

        for (size_t k = 0; k < known[i].n_chars; k++) {
            size_t n = utf8_next(at, len, &c);

            ck_assert_uint_gt(n, 0);
            ck_assert_uint_le(n, len);
            ck_assert_uint_eq(c, known[i].chars[k]);
            at += n;
            len -= n;
        }
        ck_assert_uint_eq(len, 0);
    }
    c = 7;
    ck_assert_uint_eq(utf8_next("", 0, &c), 0);
    ck_assert_uint_eq(c, 7);
}
END_TEST

/* Characters are counted, not bytes. */
START_TEST(count_of_characters)
{
    ck_assert_uint_eq(utf8_count(""), 0);
    ck_assert_uint_eq(utf8_count("N[,N]"), 5);
    ck_assert_uint_eq(utf8_count("N[,N\xE2\x80\xA6]"), 6);
    ck_assert_uint_eq(utf8_count("\xC3\xA9\xF0\x9F\x98\x80"), 2);
}
END_TEST

/* A line is plain without controls, ends of lines and marks that turn the direction. */
START_TEST(plain_lines)
{
    static const char *const plain[] = {"",
                                        "Ann",
                                        "\xC3\xA9",
                                        "\xF0\x9F\x98\x80",
                                        "\xC2\xA0",
                                        "\xE2\x80\xA7",
                                        "\xE2\x80\xAF",
                                        "\xE2\x81\xA5",
                                        "\xE2\x81\xAA"};
    static const char *const others[] = {
        "a\nb",         "\x1B",         "\x7F",         "\xC2\x85",     "\xC2\x9F",
        "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAA", "\xE2\x80\xAE", "\xE2\x81\xA6",
        "\xE2\x81\xA9", "\xFF",         "\xED\xA0\x80"};

    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        ck_assert_msg(utf8_is_plain_line(plain[i]), "line %zu", i);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        ck_assert_msg(!utf8_is_plain_line(others[i]), "line %zu", i);
}
END_TEST

SUITE_MAIN("utf8", every_character_round_trips, known_bytes, no_character_is_replaced,
           nothing_else_is_valid, validity_of_texts, complete_len_of_cuts, complete_len_of_garbage,
           next_goes_on, count_of_characters, plain_lines)
