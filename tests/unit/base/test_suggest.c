#include "base/suggest.h"

#include "tests/unit/base/suite.h"
#include <check.h>

static const char *nearest(const char *wanted)
{
    static const char *const words[] = {"--kv",  "--kv-bytes",     "--kv-host-bytes",
                                        "--ttl", "--http-timeout", "--check"};
    struct suggest s;

    suggest_init(&s, wanted);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        suggest_try(&s, words[i]);
    return s.word;
}

/* A letter that is wrong, missing, too many or swapped is forgiven; dash and underscore are one. */
START_TEST(test_near)
{
    ck_assert_str_eq(nearest("--kv-byte"), "--kv-bytes");
    ck_assert_str_eq(nearest("--kv_bytes"), "--kv-bytes");
    ck_assert_str_eq(nearest("--kv-btyes"), "--kv-bytes");
    ck_assert_str_eq(nearest("--chek"), "--check");
    ck_assert_str_eq(nearest("--tttl"), "--ttl");
    ck_assert_str_eq(nearest("--http-time"), "--http-timeout");
}
END_TEST

/* What is far from all, empty or too long is like none. */
START_TEST(test_far)
{
    ck_assert_ptr_null(nearest("--nothing-of-it"));
    ck_assert_ptr_null(nearest(""));
    ck_assert_ptr_null(nearest("--kv-bytes-and-much-more-than-any-name-has-in-all-of-this"));
}
END_TEST

SUITE_MAIN("base/suggest", test_near, test_far)
