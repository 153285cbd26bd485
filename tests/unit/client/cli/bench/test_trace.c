#include "client/cli/bench/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

static enum status read_text(struct trace *t, const char *text, struct error *err)
{
    char path[] = "/tmp/trace-XXXXXX";
    int fd = mkstemp(path);
    enum status rc;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    rc = trace_read(t, path, err);
    (void)unlink(path);
    return rc;
}

START_TEST(shapes)
{
    struct trace t;
    struct error err;

    ck_assert_int_eq(
        read_text(&t,
                  "{\"timestamp\": 1500, \"input_length\": 10, \"output_length\": 3}\n\n"
                  "{\"timestamp\": 2000, \"prompt\": \"Hello!\"}\n"
                  "{\"timestamp\": 2000, \"id\": \"x\", \"conversations\": [{\"from\": \"human\", "
                  "\"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}, {\"from\": \"human\", "
                  "\"value\": \"c\"}]}\n",
                  &err),
        STATUS_OK);
    ck_assert_uint_eq(t.n, 3);
    ck_assert_uint_eq(t.max_turns, 2);
    ck_assert_double_eq(t.at_s[0], 0);
    ck_assert_double_eq(t.at_s[1], 0.5);
    ck_assert_uint_eq(t.items[0].turns[0].input_tokens, 10);
    ck_assert_uint_eq(t.items[0].turns[0].output_tokens, 3);
    ck_assert_ptr_null(t.items[0].turns[0].text);
    ck_assert_str_eq(t.items[1].turns[0].text, "Hello!");
    ck_assert_str_eq(t.items[2].turns[1].text, "c");
    trace_deinit(&t);
}
END_TEST

/* ShareGPT's own file is one array, in which some conversations have no text of a human. */
START_TEST(array)
{
    struct trace t;
    struct error err;

    ck_assert_int_eq(read_text(&t,
                               "\xef\xbb\xbf\n [{\"id\": \"a\", \"conversations\": []},\n"
                               "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"},\n"
                               "{\"from\": \"gpt\", \"value\": \"b\"}]}, {\"prompt\": \"c\"}]\n",
                               &err),
                     STATUS_OK);
    ck_assert_uint_eq(t.n, 2);
    ck_assert_str_eq(t.items[0].turns[0].text, "a");
    ck_assert_str_eq(t.items[1].turns[0].text, "c");
    trace_deinit(&t);
    ck_assert_int_eq(read_text(&t, "\xef\xbb\xbf{\"prompt\": \"a\"}\n", &err), STATUS_OK);
    ck_assert_uint_eq(t.n, 1);
    trace_deinit(&t);
}
END_TEST

/* A mistake is named with its line. */
START_TEST(mistakes)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "has no conversations"},
        {"{\"input_length\": 5}\n[]\n", ":2: the line is not a JSON object"},
        {"{\"input_length\": 0}\n", ":1: the line has a length"},
        {"{\"input_length\": 5.5}\n", "has a length"},
        {"{}\n", "has no input_length"},
        {"{\"conversations\": [{\"from\": \"gpt\", \"value\": \"b\"}]}", "no text of a human"},
        {"{\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"timestamp\": 5}\n", ":2: the line differs"},
        {"{\"prompt\": \"a\", \"timestamp\": 5}\n{\"prompt\": \"a\"}\n", ":2: the line differs"},
        {"{\"prompt\": \"a\", \"timestamp\": 5}\n{\"prompt\": \"a\", \"timestamp\": 4}\n",
         "is earlier"},
        {"{\"prompt\": \"a\", \"timestamp\": \"5\"}\n", "is not a number"},
        {"[{\"prompt\": \"a\"},\n5]\n", "item 2 is not a JSON object"},
        {"[{\"prompt\": \"a\"},\n{]\n", ":2: not valid JSON"},
        {"[]\n", "has no conversations"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trace t;
        struct error err;

        ck_assert_int_eq(read_text(&t, cases[i].text, &err), STATUS_INVALID);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "%s: %s", cases[i].text, err.text);
        trace_deinit(&t);
    }
}
END_TEST

SUITE_MAIN("client/cli/bench/trace", shapes, array, mistakes)
