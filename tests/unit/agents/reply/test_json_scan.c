#include "agents/reply/json_scan.h"

#include <check.h>
#include <jansson.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static const char *const texts[] = {
    "{}",
    " {\n} ",
    "{\"a\":1}",
    "{\"a\":[]}",
    "{\"a\":[1,2,[{}]]}",
    "{\"a\":{\"b\":\"c\"},\"d\":0}",
    "{\"a\":-0.5e+10}",
    "{\"a\":1E5}",
    "{\"a\":1e-5,\"b\":10}",
    "{\"a\":true,\"b\":false,\"c\":null}",
    "{\"a\\u00e9\\\"\":\"\\\\\\/\\b\\f\\n\\r\\t\"}",
    "{\"\":\"{[}]\"}",
    "{\"a\" : \"\xc3\xa9\" , \"b\":[ ]}",
    /* not one object */
    "",
    " ",
    "[]",
    "1",
    "\"a\"",
    "{",
    "}",
    "{}}",
    "{} x",
    "{]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "{\"a\":[1,]}",
    "{\"a\":[,1]}",
    "{\"a\":[1 2]}",
    "{\"a\":01}",
    "{\"a\":-}",
    "{\"a\":1.}",
    "{\"a\":.5}",
    "{\"a\":1e}",
    "{\"a\":1e+}",
    "{\"a\":1.5.5}",
    "{\"a\":1e5e5}",
    "{\"a\":+1}",
    "{\"a\":tru}",
    "{\"a\":nulll}",
    "{\"a\":True}",
    "{a:1}",
    "{'a':1}",
    "{\"a\":'b'}",
    "{\"a\":\"\\x41\"}",
    "{\"a\":\"\\u00g0\"}",
    "{\"a\":\"b\nc\"}",
    "{\"a\":\"b}",
    "{\"a\":1]}",
    "{\"a\":[1}}",
    "{\"a\" 1}",
    "{\"a\":1 \"b\":2}",
    "{1:2}",
    "{\"a\":1}{\"b\":2}",
    "{\"a\":NaN}",
};

/* The verdict is another parser's. */
START_TEST(test_verdicts)
{
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *read = json_loads(texts[i], JSON_REJECT_DUPLICATES, NULL);

        ck_assert_msg(json_scan_is_object(texts[i], strlen(texts[i])) == json_is_object(read), "%s",
                      texts[i]);
        json_decref(read);
    }
}
END_TEST

/* What is none is known at the first character that cannot be. */
START_TEST(test_soon)
{
    static const char text[] = "{\"a\": [1, tX";
    enum json_scanned is = JSON_SCAN_MORE;
    struct json_scan s = {0};
    size_t n = 0;

    while (is == JSON_SCAN_MORE)
        is = json_scan_add(&s, text[n++]);
    ck_assert(is == JSON_SCAN_WRONG && text[n] == '\0');
}
END_TEST

/* Deeper levels than there is room for are refused. */
START_TEST(test_depth)
{
    enum json_scanned is = JSON_SCAN_MORE;
    struct json_scan s = {0};
    size_t n = 0;

    for (; is == JSON_SCAN_MORE; n++)
        is = json_scan_add(&s, '[');
    ck_assert_int_eq(is, JSON_SCAN_WRONG);
    ck_assert_uint_eq(n, JSON_SCAN_MAX_DEPTH + 1);
}
END_TEST

SUITE_MAIN("json_scan", test_verdicts, test_soon, test_depth)
