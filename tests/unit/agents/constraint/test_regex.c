#include "agents/constraint/guard.h"
#include "agents/constraint/regex.h"
#include "agents/constraint/string_automaton.h"

#include <check.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static enum status compile(struct regex *out, const char *pattern, struct arena *arena,
                           struct error *err)
{
    size_t work = GUARD_MAX_WORK;

    return regex_compile(out, pattern, strlen(pattern), &work, arena, err);
}

/* The pattern is found in the texts of the first list, which end with NULL, and in no other's. */
START_TEST(test_matches)
{
    static const struct {
        const char *pattern, *in[5], *not_in[5];
    } rows[] = {
        {"^a$", {"a"}, {"", "aa", "ba"}},
        {"a", {"a", "bab", "a\n"}, {"", "b"}},
        {"^a", {"a", "ab"}, {"ba"}},
        {"^a$|b$", {"a", "b", "ab"}, {"aa", "ba"}},
        {"^[a-c]{2}$", {"ab"}, {"a", "abc", "ad"}},
        {"^(?:a|b)+?$", {"ab", "b"}, {"", "c"}},
        {"(^a)|(b$)", {"ax", "xb"}, {"xa", "bx"}},
        {"^a{0}$", {""}, {"a"}},
        {"^a{2,}$", {"aa", "aaaa"}, {"a"}},
        {"^a{,2}$", {"a{,2}"}, {"aa"}},
        {"^.$", {"a", "\xc3\xa9", "\xf0\x9f\x98\x80"}, {"", "\n", "ab"}},
        {"^\\W$", {"-", "\xc3\xa9"}, {"a", "_"}},
        {"^[^\\d\\s]$", {"a", "\xc3\xa9"}, {"1", " ", "\xc2\xa0"}},
        {"^\\u{1F600}\\uD83D\\uDE00$", {"\xf0\x9f\x98\x80\xf0\x9f\x98\x80"}, {"a"}},
        {"^\\x41\\u0042\\cA\\t\\/\\-$", {"AB\x01\t/-"}, {"AB"}},
        {"\\bab\\b", {"ab", "x ab", "ab-x", "\u00e9ab"}, {"xab", "abx", "ab_", "a b"}},
        {"a\\B", {"ab", "bab"}, {"a", "ba b"}},
        {"^\\B$|\\b\\b1\\b$", {"", "1", " 1"}, {"a", "01", "1 "}},
        {"^(\\b[a-z]|-\\b)*$", {"a", "a-b", "b"}, {"ab", "a-", "-", "-a-b-"}},
        {"\\b^a|a$\\b", {"ab", "ba"}, {"bab", "-b"}},
        {"^[\\]\\-a\\b]$", {"]", "-", "a", "\b"}, {"b", "\\"}},
        {"^[]$", {NULL}, {"", "a", "]"}},
        {"^[^]$", {"a", "\n"}, {""}},
        {"^(?=.*[A-Z])(?=.*\\d).{4,}$", {"abC1", "1Cab"}, {"abcd", "C1", "ABCD"}},
        {"^(?!foo$)(?!.*x)[a-z]+$", {"fooo", "fo"}, {"foo", "ax", ""}},
        {"^(?<y>\\d{4})-(?P<m>\\d\\d)$", {"2024-01"}, {"2024-1"}},
        {"^((a|b)?c){2}$", {"cc", "acbc"}, {"c", "abc"}},
        {"a$b", {NULL}, {"ab", "a", "a\nb"}},
        {"^\\p{L}+$",
         {"a", "\xc3\xa9\xce\xb1", "\xe4\xb8\xad", "\xf0\x9d\x92\x9c"},
         {"", "1", "a b"}},
        {"^\\P{L}$", {"1", "\xe2\x82\xac"}, {"a", "\xce\xb1"}},
        {"^[\\p{Lu}\\p{Nd}_-]+$", {"A_1-", "\xc3\x89\xd9\xa3"}, {"a", "\xc3\xa9"}},
        {"^[^\\p{L}\\s]$", {"1", "_"}, {"a", " ", "\xce\xb1"}},
        {"^\\p{Script=Greek}\\p{sc=Cyrl}$", {"\xce\xb1\xd0\xb4"}, {"ab", "\xd0\xb4\xce\xb1"}},
        {"^\\p{scx=Deva}$", {"\xe0\xa5\xa4", "\xe0\xa4\x85"}, {"a"}},
        {"^\\p{Script=Devanagari}$", {"\xe0\xa4\x85"}, {"\xe0\xa5\xa4"}},
        {"^\\p{Emoji_Presentation}$", {"\xf0\x9f\x98\x80"}, {"1", "a"}},
        {"^\\p{General_Category=Uppercase_Letter}\\p{gc=Ll}$", {"Ab"}, {"aB"}},
        {"^\\p{ASCII}\\p{Any}\\p{Assigned}$", {"a\xc3\xa9z"}, {"\xc3\xa9zz"}},
        {"^(?=.*\\p{Lu})(?!.*\\p{P}).{2,}$", {"aB"}, {"ab", "B!"}},
        {"^$", {""}, {"a"}},
        {"", {"", "a"}, {NULL}},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct regex r;
        struct arena arena;
        struct error err;

        arena_init(&arena, 16 << 20);
        ck_assert_msg(compile(&r, rows[i].pattern, &arena, &err) == STATUS_OK, "%s: %s",
                      rows[i].pattern, err.text);
        for (int is_in = 0; is_in < 2; is_in++)
            for (const char *const *text = is_in ? rows[i].in : rows[i].not_in; *text != NULL;
                 text++) {
                bool is_found = true;

                for (size_t k = 0; k < r.n_parts; k++)
                    is_found = is_found &&
                               automaton_matches(&r.parts[k].automaton, *text, strlen(*text)) !=
                                   r.parts[k].is_excluded;
                ck_assert_msg(is_found == (is_in != 0), "%s: '%s'", rows[i].pattern, *text);
            }
        arena_deinit(&arena);
    }
}
END_TEST

/* What has no automaton, or is wrong, is refused. */
START_TEST(test_refusals)
{
    static const char *const rows[] = {
        "a(?=a)",
        "(?<=a)b",
        "\\pL",
        "\\p{L",
        "\\p{}",
        "\\p{l}",
        "\\p{Greek}",
        "\\p{Script=greek}",
        "\\p{Script=Klingon}",
        "\\p{scx=Common}",
        "\\p{gc=Alphabetic}",
        "\\p{Alphabetic=Yes}",
        "\\p{RGI_Emoji}",
        "[\\p{Changes_When_NFKC_Casefolded}]",
        "\\1",
        "(?i)a",
        "*",
        "[a",
        "(a",
        "a)",
        "[b-a]",
        "\\",
        "\\uD800",
        "a{5000}",
        "a{3,2}",
        "(?!a)b",
        "^(?!b)?b",
        "^(?=a)*b",
        "^(?=a)+b",
        "^(?!a){0}a",
        "[\\q]",
        "\\k<a>",
        "(?=a",
        "((a{900}){900}){9}",
        "{3}",
        "a{2}{3}",
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct regex r;
        struct arena arena;
        struct error err;

        arena_init(&arena, 16 << 20);
        ck_assert_msg(compile(&r, rows[i], &arena, &err) == STATUS_UNIMPLEMENTED, "%s", rows[i]);
        arena_deinit(&arena);
    }
}
END_TEST

/* What would be too large an automaton, or take too long, is refused soon. */
START_TEST(test_budget)
{
    struct regex r;
    struct arena arena;
    struct error err;
    size_t work = 1000;

    arena_init(&arena, 64 << 20);
    ck_assert_int_eq(compile(&r, "a.{20}$", &arena, &err), STATUS_UNIMPLEMENTED);
    ck_assert_int_eq(regex_compile(&r, "^a{900}$", 8, &work, &arena, &err), STATUS_UNIMPLEMENTED);
    arena_deinit(&arena);
}
END_TEST

/* A set that is repeated is found as such. */
START_TEST(test_repeated)
{
    struct char_range room[CHAR_SET_MAX];
    struct char_set set = {room, 0, CHAR_SET_MAX}, small = {room, 0, 1};
    size_t least, most, work = GUARD_MAX_WORK;

    ck_assert(regex_is_repeated_set("^[a-z]{2,9}$", 12, &work, &set, &least, &most));
    ck_assert_uint_eq(least, 2);
    ck_assert_uint_eq(most, 9);
    ck_assert(char_set_has(&set, 'q') && !char_set_has(&set, 'Q'));
    ck_assert(regex_is_repeated_set("^\\d+$", 5, &work, &set, &least, &most));
    ck_assert_uint_eq(most, SIZE_MAX);
    ck_assert(regex_is_repeated_set("^\\p{L}{0,9}$", 12, &work, &set, &least, &most));
    ck_assert(char_set_has(&set, 0x3B1) && !char_set_has(&set, '1'));
    ck_assert(!regex_is_repeated_set("^[a-cx]+$", 9, &work, &small, &least, &most));
    ck_assert(regex_is_repeated_set("^((?:[a-z]*))$", 14, &work, &set, &least, &most));
    ck_assert(!regex_is_repeated_set("^([a-z]*b)$", 11, &work, &set, &least, &most));
    ck_assert(!regex_is_repeated_set("^([a-z]*)*$", 11, &work, &set, &least, &most));
    ck_assert(!regex_is_repeated_set("^()$", 4, &work, &set, &least, &most));
    ck_assert(!regex_is_repeated_set("^[a-z]+", 7, &work, &set, &least, &most));
    ck_assert(!regex_is_repeated_set("^[a-z]+b$", 9, &work, &set, &least, &most));
    ck_assert(!regex_is_repeated_set("^(?:a|b)+$", 10, &work, &set, &least, &most));
}
END_TEST

/* A length that is too long to be counted bounds each loop: no text is longer, or shorter. */
START_TEST(test_long)
{
    static const char *const patterns[] = {
        "^arn:aws[a-z-]*:kms:[a-z0-9-]*:\\d{12}:(key|alias)/.+$",
        "^(a(b(c(d)*e)*f)*g)+$",
        "(foo|bar)+x?(baz)+",
        "^(ab|cd|ef)+(:[0-9]+x)*$",
    };
    static const char *const texts[] = {"arn:aws:kms:eu-1:123456789012:key/a", "abcefg", "foobaz",
                                        "abcd:12x:3x"};

    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        struct string_rules r;
        struct automaton a;
        struct arena arena;
        struct error err;
        size_t work = GUARD_MAX_WORK, least, most;

        arena_init(&arena, 16 << 20);
        string_rules_init(&r, &work, &arena);
        ck_assert_int_eq(string_rules_add_pattern(&r, patterns[i], strlen(patterns[i]), &err),
                         STATUS_OK);
        r.least = 3;
        r.most = 2048;
        ck_assert_msg(string_rules_join(&r, &a, &err) == STATUS_OK, "%s", err.text);
        ck_assert_int_eq(automaton_lengths(&a, &least, &most, &err), STATUS_OK);
        ck_assert(least >= 3 && most <= 2048);
        ck_assert_msg(automaton_matches(&a, texts[i], strlen(texts[i])), "%s", texts[i]);
        ck_assert(!automaton_matches(&a, "ab", 2));
        arena_deinit(&arena);
    }
}
END_TEST

SUITE_MAIN("regex", test_matches, test_refusals, test_budget, test_repeated, test_long)
