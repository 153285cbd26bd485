#include <check.h>
#include <string.h>

#include "agents/constraint/pattern.h"
#include "tests/unit/base/suite.h"

#define ANY "[^\"\\\\\\x00-\\x1f]*"

static enum status rewrite(const char *pattern, char out[4096], struct error *err)
{
    struct buf text;
    enum status rc;

    buf_init(&text, 4095);
    rc = pattern_to_json_text(&text, pattern, strlen(pattern), err);
    memcpy(out, text.len > 0 ? text.data : "", text.len + 1);
    buf_deinit(&text);
    return rc;
}

/* A pattern is found anywhere unless it has anchors; what JSON escapes is matched by its escape,
 * and never stands raw. */
START_TEST(test_rewrites)
{
    static const struct {
        const char *pattern, *says;
    } rows[] = {
        {"^a$", "\\u0061"},
        {"a", ANY "\\u0061" ANY},
        {"^a", "\\u0061" ANY},
        {"^a$|b$", "\\u0061|" ANY "\\u0062"},
        {"^[a-c]{2}$", "[\\u0061-\\u0063]{2}"},
        {"^\"$", "\\\\\""},
        {"^\\\\$", "\\\\\\\\"},
        {"^\\n$", "\\\\n"},
        {"^[\"a]$", "[\\u0061]"},
        {"^(?:a|b)+?$", "(\\u0061|\\u0062)+"},
        {"^\\d$", "[\\u0030-\\u0039]"},
        {"^[^b-\\uFFFF]$", "[\\u0020-\\u0021\\u0023-\\u005B\\u005D-\\u0061\\u{10000}-\\u{10FFFF}]"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        char out[4096];

        ck_assert_msg(rewrite(rows[i].pattern, out, &err) == STATUS_OK, "%s: %s", rows[i].pattern,
                      err.text);
        ck_assert_str_eq(out, rows[i].says);
    }
}
END_TEST

/* What the engine would match otherwise, or not at all, is refused. */
START_TEST(test_refusals)
{
    static const char *const rows[] = {
        "(?=a)",   "(?<n>a)",     "\\bа",  "\\p{L}", "\\1",     "a^b",       "(^a)",
        "a$b",     "*",           "a{",    "[a",     "(a",      "a)",        "[\"\\\\]",
        "a{1001}", "(a{40}){40}", "[b-a]", "\\",     "\\uD800", "[\\b]x\\c",
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        char out[4096];

        ck_assert_msg(rewrite(rows[i], out, &err) == STATUS_UNIMPLEMENTED, "%s: %s", rows[i], out);
    }
}
END_TEST

/* Groups multiply the repetitions inside them, neighbours do not. */
START_TEST(test_bounds)
{
    struct error err;

    ck_assert_int_eq(pattern_check_bounds("a{900}b{900}", 12, &err), STATUS_OK);
    ck_assert_int_eq(pattern_check_bounds("(a{30}b{30}){30}", 16, &err), STATUS_OK);
    ck_assert_int_eq(pattern_check_bounds("(a{30}(b{5}){7}){30}", 20, &err), STATUS_UNIMPLEMENTED);
    ck_assert_int_eq(pattern_check_bounds("(a){2,1001}", 11, &err), STATUS_UNIMPLEMENTED);
}
END_TEST

SUITE_MAIN("pattern", test_rewrites, test_refusals, test_bounds)
