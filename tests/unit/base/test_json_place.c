#include "base/json_place.h"

#include "tests/unit/base/suite.h"

/* A value that begins with a bracket ends with its own; brackets and quotes within strings, and
 * what a backslash escapes, close nothing. */
START_TEST(ends)
{
    static const char *const values[] = {"{}", "[[],{}]", "{\"a\":\"}\"}", "[\"\\\"]\",1]",
                                         "[\"\\\\\"]"};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct json_place p = {0};
        const char *at = values[i];

        while (!json_place_add(&p, *at))
            ck_assert_msg(*++at != '\0', "%s", values[i]);
        ck_assert_msg(at[1] == '\0', "%s", values[i]);
    }
}
END_TEST

SUITE_MAIN("json_place", ends)
