#include "base/json_widen.h"

#include <check.h>
#include <string.h>

#include "tests/unit/base/suite.h"

/* Only integers that do not fit get a fraction, wherever they end. */
START_TEST(test_widen)
{
    static const struct {
        const char *text, *wide;
    } rows[] = {
        {"", ""},
        {"[9223372036854775807,-9223372036854775808]",
         "[9223372036854775807,-9223372036854775808]"},
        {"[9223372036854775808,-9223372036854775809]",
         "[9223372036854775808.0,-9223372036854775809.0]"},
        {"{\"12345678901234567890\": 12345678901234567890}",
         "{\"12345678901234567890\": 12345678901234567890.0}"},
        {"\"\\\"12345678901234567890\"", "\"\\\"12345678901234567890\""},
        {"[12345678901234567890.5, 1e400, 12345678901234567890E1]",
         "[12345678901234567890.5, 1e400, 12345678901234567890E1]"},
        {"18446744073709551615", "18446744073709551615.0"},
        {"\"\\", "\"\\"},
        {"-", "-"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out;

        buf_init(&out, 1 << 10);
        ck_assert_int_eq(json_widen(&out, rows[i].text, strlen(rows[i].text)), STATUS_OK);
        ck_assert_str_eq(out.len > 0 ? out.data : "", rows[i].wide);
        buf_deinit(&out);
    }
}
END_TEST

/* A buffer without room says so. */
START_TEST(test_full)
{
    struct buf out;

    buf_init(&out, 21);
    ck_assert_int_eq(json_widen(&out, "18446744073709551615", 20), STATUS_EXHAUSTED);
    buf_deinit(&out);
}
END_TEST

SUITE_MAIN("json_widen", test_widen, test_full)
