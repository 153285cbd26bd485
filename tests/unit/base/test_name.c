#include "base/name.h"

#include <locale.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include <check.h>

static bool is_name(const char *text, size_t max_bytes, const char *marks)
{
    return name_is_valid(text, strlen(text), max_bytes, marks);
}

/* Letters, digits and the marks of its kind make a name, in any place. */
START_TEST(names_are_valid)
{
    ck_assert(is_name("a", 1, NAME_MARKS));
    ck_assert(is_name("Az09._-", 7, NAME_MARKS));
    ck_assert(is_name("-x", 63, NAME_MARKS));
    ck_assert(is_name("me@here", 63, NAME_MARKS "@"));
    ck_assert(is_name("a/b", 63, NAME_MARKS "/"));
    ck_assert(is_name("word", 63, ""));
}
END_TEST

/* Nothing, too much, another mark and a byte that is no ASCII make none, whatever the locale. */
START_TEST(others_are_not)
{
    static const char *const texts[] = {"",    "too-long", "a b",      "a/b",
                                        "a@b", "\xe9",     "\xc3\xa9", "a\n"};

    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
            ck_assert_msg(!is_name(texts[k], 7, NAME_MARKS), "'%s'", texts[k]);
        (void)setlocale(LC_ALL, ""); /* where there is none, the first one stays */
    }
    ck_assert(!is_name("a.b", 7, "_"));
    ck_assert(!name_is_valid("a\0b", 3, 7, NAME_MARKS));
}
END_TEST

/* A span ends at the first other byte, or at the length. */
START_TEST(spans_end)
{
    ck_assert_uint_eq(name_span("get_it(", 7, NAME_MARKS), 6);
    ck_assert_uint_eq(name_span("get_it(", 3, NAME_MARKS), 3);
    ck_assert_uint_eq(name_span("(", 1, NAME_MARKS), 0);
}
END_TEST

/* A name is in a text as a word of its own, in any case; what is beyond ASCII is of a word. */
START_TEST(names_are_words)
{
    static const char *const with[] = {"Max", "ask max.", "\xe2\x80\x94, MAX\n", "maxi, max-"};
    static const char *const without[] = {"",      "maxi",        "climax",
                                          "max_1", "max\xc3\xa9", "9max ma x"};

    for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++)
        ck_assert_msg(name_is_in(with[i], "Max"), "'%s'", with[i]);
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
        ck_assert_msg(!name_is_in(without[i], "Max"), "'%s'", without[i]);
}
END_TEST

SUITE_MAIN("base/name", names_are_valid, others_are_not, spans_end, names_are_words)
