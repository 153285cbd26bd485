#include "base/json_extent.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"

/* Each value counts once, and each name of a member; what strings hold does not. */
START_TEST(counts)
{
    static const struct {
        const char *text;
        size_t n_numbers, n_others;
    } known[] = {
        {"", 0, 0},
        {"0", 1, 0},
        {"-1.5e+10", 1, 0},
        {"[]", 0, 1},
        {" [ true , false,null ] ", 3, 1},
        {"{\"a\": 1, \"b\": {\"c\": [2, 3]}}", 3, 6},
        {"\"[1, 2, {\"", 0, 1},
        {"[\"a\\\"b,1\", \"\\\\\", 7]", 1, 3},
        {"[\"open, 1, 2", 0, 2},
        {"[\"ends with a slash\\", 0, 2},
        {"[1,1,1,1,1,1,1]", 7, 1},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const size_t len = strlen(known[i].text);
        struct json_extent limit = {known[i].n_numbers, known[i].n_others};

        ck_assert_msg(json_extent_fits(known[i].text, len, &limit), "%s", known[i].text);
        if (limit.n_numbers > 0) {
            limit.n_numbers--;
            ck_assert_msg(!json_extent_fits(known[i].text, len, &limit), "%s", known[i].text);
            limit.n_numbers++;
        }
        if (limit.n_others > 0) {
            limit.n_others--;
            ck_assert_msg(!json_extent_fits(known[i].text, len, &limit), "%s", known[i].text);
        }
    }
}
END_TEST

/* A string of four megabytes, each byte escaped, is read once: looking for its end anew behind each
 * escape would take minutes, and Check ends the test. */
START_TEST(escapes_are_read_once)
{
    enum { N_ESCAPES = 2 << 20, LEN = 2 * N_ESCAPES + 2 };
    const struct json_extent limit = {0, 1}, less = {0, 0};
    char *text = malloc(LEN);

    ck_assert_ptr_nonnull(text);
    for (size_t i = 1; i < LEN - 1; i += 2)
        memcpy(text + i, i % 4 == 1 ? "\\n" : "\\\"", 2);
    text[0] = text[LEN - 1] = '"';
    ck_assert(json_extent_fits(text, LEN, &limit) && !json_extent_fits(text, LEN, &less));
    for (size_t i = 1; i < LEN - 1; i += 2)
        memcpy(text + i, "\\n", 2);
    ck_assert(json_extent_fits(text, LEN, &limit) && !json_extent_fits(text, LEN, &less));
    free(text);
}
END_TEST

SUITE_MAIN("json_extent", counts, escapes_are_read_once)
