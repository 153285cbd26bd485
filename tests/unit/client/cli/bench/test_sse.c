#include "client/cli/bench/sse.h"

#include <string.h>

#include "tests/unit/base/suite.h"

/* The events' data, each in brackets. */
static void note(void *arg, const char *data, size_t len)
{
    char *text = arg;

    ck_assert_uint_eq(strlen(data), len);
    (void)strncat(text, "[", 2);
    (void)strncat(text, data, 200 - strlen(text));
    (void)strncat(text, "]", 2);
}

/* The events of a stream that comes n bytes at a time. */
static const char *events(const char *stream, size_t n)
{
    static char text[256];
    struct sse s;

    text[0] = '\0';
    sse_init(&s, 1000);
    for (size_t at = 0; at < strlen(stream); at += n) {
        size_t left = strlen(stream) - at;

        ck_assert_int_eq(sse_feed(&s, stream + at, left < n ? left : n, note, text), STATUS_OK);
    }
    sse_deinit(&s);
    return text;
}

/* However a stream is cut, its events are the same: any of the three ends of a line, comments and
 * other fields left out, one space after the colon taken off, lines of one event joined. */
START_TEST(events_of_a_stream)
{
    static const struct {
        const char *stream, *events;
    } cases[] = {
        {"data: a\n\ndata: b\n\n", "[a][b]"},
        {"data:a\r\n\r\ndata:  b\r\rdata: c\n\n", "[a][ b][c]"},
        {": ping\n\nevent: x\nid: 1\ndata: a\nretry: 5\n\n\n\n", "[a]"},
        {"data: a\ndata\ndata: b\ndata:\n\n", "[a\nb\n]"},
        {"data:\n\n", "[]"},
        {"data: not ended\n", ""},
        {"data: [DONE]\n\n", "[[DONE]]"},
        {"", ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t n = 1; n < 20; n++)
            ck_assert_str_eq(events(cases[i].stream, n), cases[i].events);
}
END_TEST

/* A line or an event beyond the limit is refused, and a stream that is cleared begins afresh. */
START_TEST(limits)
{
    char text[64] = "";
    struct sse s;

    sse_init(&s, 8);
    ck_assert_int_eq(sse_feed(&s, "data: 12345678", 14, note, text), STATUS_EXHAUSTED);
    sse_clear(&s);
    ck_assert_int_eq(sse_feed(&s, "data:123\ndata:456\ndata:78\n", 26, note, text),
                     STATUS_EXHAUSTED);
    sse_clear(&s);
    ck_assert_int_eq(sse_feed(&s, "data:a\r", 7, note, text), STATUS_OK);
    sse_clear(&s);
    ck_assert_int_eq(sse_feed(&s, "\ndata:b\n\n", 9, note, text), STATUS_OK);
    ck_assert_str_eq(text, "[b]");
    sse_deinit(&s);
}
END_TEST

SUITE_MAIN("client/cli/bench/sse", events_of_a_stream, limits)
