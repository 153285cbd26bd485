#include "base/base64.h"

#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "tests/unit/base/suite.h"

/* What json_write_base64 writes of any bytes is read as the same bytes, with its padding or
 * without, and in the alphabet of URLs. */
START_TEST(test_round_trip)
{
    uint8_t bytes[200], back[600];
    struct json_writer w;
    struct buf text;
    size_t n;

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 151 + 7);
    buf_init(&text, 1 << 10);
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        buf_clear(&text);
        w = json_writer_begin(&text);
        json_write_base64(&w, NULL, bytes, len);
        ck_assert_int_eq(json_writer_end(&w), STATUS_OK);
        for (size_t n_text = text.len - 2;; n_text--) {
            ck_assert_uint_le(base64_max_bytes(n_text), sizeof(back));
            if (n_text % 4 != 3 || text.data[n_text] != '=') { /* one = of two is no padding */
                ck_assert(base64_decode(back, &n, text.data + 1, n_text));
                ck_assert_uint_eq(n, len);
                ck_assert_uint_le(n, base64_max_bytes(n_text));
                ck_assert_int_eq(memcmp(back, bytes, len), 0);
            }
            if (n_text == 0 || text.data[n_text] != '=')
                break;
        }
        for (size_t i = 0; i < text.len; i++) {
            text.data[i] = text.data[i] == '+' ? '-' : text.data[i];
            text.data[i] = text.data[i] == '/' ? '_' : text.data[i];
        }
        ck_assert(base64_decode(back, &n, text.data + 1, text.len - 2));
        ck_assert(n == len && memcmp(back, bytes, len) == 0);
    }
    buf_deinit(&text);
}
END_TEST

/* Other text is refused. */
START_TEST(test_refused)
{
    static const char *const texts[] = {
        "a",    "=",    "==",    "a=",   "ab=",    "abc==", "abcd=", "abcde",
        "ab=c", "a b=", "ab\n=", "ab,d", "ab\xff", "====",  "ab==cd"};
    uint8_t out[16];
    size_t n;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        ck_assert_msg(!base64_decode(out, &n, texts[i], strlen(texts[i])), "%s", texts[i]);
}
END_TEST

SUITE_MAIN("base/base64", test_round_trip, test_refused)
