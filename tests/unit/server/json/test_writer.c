#include "server/json/writer.h"

#include <check.h>

#include "tests/unit/base/suite.h"

/* Output is in order, with strings quoted and escaped. */
START_TEST(writes)
{
    struct json_writer w;
    struct buf out;

    buf_init(&out, 64);
    w = json_writer_begin(&out);
    json_write(&w, "{\"a\":");
    json_write_string(&w, "\"é\n", 4);
    json_writef(&w, ",\"b\":%d", -7);
    json_write_bytes(&w, "}]", 1);
    ck_assert_int_eq(json_writer_end(&w), STATUS_OK);
    ck_assert_str_eq(out.data, "{\"a\":\"\\\"é\\n\",\"b\":-7}");
    buf_deinit(&out);
}
END_TEST

/* After a lack of room nothing is written, even if it would fit; the end reports it, and the buffer
 * is as before the writer. */
START_TEST(first_failure_sticks)
{
    struct json_writer w;
    struct buf out;

    buf_init(&out, 8);
    ck_assert_int_eq(buf_append_text(&out, "old"), STATUS_OK);
    w = json_writer_begin(&out);
    json_write(&w, "[1");
    json_write(&w, ",22222");
    json_write(&w, "]");
    json_writef(&w, "%u", 3u);
    json_write_string(&w, "", 0);
    json_write_bytes(&w, "]", 1);
    ck_assert_str_eq(out.data, "old[1");
    ck_assert_int_eq(json_writer_end(&w), STATUS_EXHAUSTED);
    ck_assert_str_eq(out.data, "old");
    ck_assert_uint_eq(out.len, 3);
    buf_deinit(&out);
}
END_TEST

/* A failure from outside sticks as well, but does not replace the first one. */
START_TEST(takes_failures)
{
    struct json_writer w;
    struct buf out;

    buf_init(&out, 8);
    w = json_writer_begin(&out);
    json_writer_fail(&w, STATUS_OK);
    json_writer_fail(&w, STATUS_INVALID);
    json_writer_fail(&w, STATUS_INTERNAL);
    json_write(&w, "1");
    ck_assert_int_eq(json_writer_end(&w), STATUS_INVALID);
    ck_assert_uint_eq(out.len, 0);
    buf_deinit(&out);
}
END_TEST

/* A time is written in UTC to the millisecond. */
START_TEST(writes_times)
{
    struct json_writer w;
    struct buf out;

    buf_init(&out, 64);
    w = json_writer_begin(&out);
    json_write_time(&w, 0);
    json_write_time(&w, 1709251199007);
    ck_assert_int_eq(json_writer_end(&w), STATUS_OK);
    ck_assert_str_eq(out.data, "\"1970-01-01T00:00:00.000Z\"\"2024-02-29T23:59:59.007Z\"");
    buf_deinit(&out);
}
END_TEST

SUITE_MAIN("server/json/writer", writes, first_failure_sticks, takes_failures, writes_times)
