#include "proto/words.h"

#include <check.h>

#include "parley/v1/content.pb-c.h"
#include "tests/unit/base/suite.h"

/* A value is its name without the enum's prefix; nothing was chosen: nothing is written; a value
 * of a later version is its number. */
START_TEST(test_words)
{
    const ProtobufCEnumDescriptor *type = &parley__v1__finish_reason__descriptor;
    char word[WORD_CHARS];

    ck_assert_str_eq(enum_word(word, type, PARLEY__V1__FINISH_REASON__FINISH_REASON_TOOL_CALLS),
                     "tool_calls");
    ck_assert_str_eq(enum_word(word, type, 0), "");
    ck_assert_str_eq(enum_word(word, type, 4711), "4711");
    ck_assert_str_eq(enum_word(word, type, -1), "-1");
}
END_TEST

SUITE_MAIN("proto/words", test_words)
