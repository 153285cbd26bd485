#include "base/json_writer.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/base/suite.h"

/* Every kind of value is written with its name in an object, without one in an array. */
START_TEST(writes)
{
    struct json_writer w;
    struct buf out;

    buf_init(&out, 1000);
    w = json_writer_begin(&out);
    json_begin_object(&w, NULL);
    json_write_string(&w, "string", "\"é\n", 4);
    json_write_string(&w, "empty", NULL, 0);
    json_write_text(&w, "text", "b");
    json_write_text(&w, "none", NULL);
    json_write_signed(&w, "signed", INT64_MIN);
    json_write_unsigned(&w, "unsigned", UINT64_MAX);
    json_write_real(&w, "real", 1.0 / 3, 6);
    json_write_real(&w, "no number", (double)NAN, 6);
    json_write_exact(&w, "exact", 0.1 + 0.2);
    json_begin_array(&w, "list");
    json_write_bool(&w, NULL, true);
    json_write_bool(&w, NULL, false);
    json_write_null(&w, NULL);
    json_begin_object(&w, NULL);
    json_end_object(&w);
    json_begin_array(&w, NULL);
    json_end_array(&w);
    json_write_json(&w, NULL, "{\"a\": 1}", 8);
    json_write_exact(&w, NULL, 2);
    json_write_exact(&w, NULL, 1e300);
    json_write_exact(&w, NULL, -(double)INFINITY);
    json_end_array(&w);
    json_write_name(&w, "a\0b", 3);
    json_write_unsigned(&w, NULL, 0);
    json_end_object(&w);
    ck_assert_int_eq(json_writer_end(&w), STATUS_OK);
    ck_assert_str_eq(out.data,
                     "{\"string\":\"\\\"é\\n\",\"empty\":\"\",\"text\":\"b\",\"none\":null,"
                     "\"signed\":-9223372036854775808,\"unsigned\":18446744073709551615,"
                     "\"real\":0.333333,\"no number\":null,\"exact\":0.30000000000000004,"
                     "\"list\":[true,false,null,{},[],{\"a\": 1},2.0,1e+300,\"-Infinity\"],"
                     "\"a\\u0000b\":0}");
    buf_deinit(&out);
}
END_TEST

/* Documents follow each other without commas, with any text around them. */
START_TEST(writes_documents)
{
    struct json_writer w;
    struct buf out;

    buf_init(&out, 100);
    w = json_writer_begin(&out);
    for (unsigned i = 0; i < 2; i++) {
        json_write_around(&w, "data: ");
        json_begin_object(&w, NULL);
        json_write_unsigned(&w, "i", i);
        json_end_object(&w);
        json_write_around(&w, "\n");
    }
    json_write_null(&w, NULL);
    json_write_null(&w, NULL);
    ck_assert_int_eq(json_writer_end(&w), STATUS_OK);
    ck_assert_str_eq(out.data, "data: {\"i\":0}\ndata: {\"i\":1}\nnullnull");
    buf_deinit(&out);
}
END_TEST

/* With blanks the text is json.dumps's of Python. */
START_TEST(writes_blanks)
{
    struct json_writer w;
    struct buf out;

    buf_init(&out, 100);
    w = json_writer_begin_spaced(&out);
    json_begin_object(&w, NULL);
    json_begin_array(&w, "a");
    json_write_null(&w, NULL);
    json_write_exact(&w, NULL, 1);
    json_end_array(&w);
    json_write_name(&w, "b", 1);
    json_begin_array(&w, NULL);
    json_end_array(&w);
    json_end_object(&w);
    ck_assert_int_eq(json_writer_end(&w), STATUS_OK);
    ck_assert_str_eq(out.data, "{\"a\": [null, 1.0], \"b\": []}");
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
    json_begin_array(&w, NULL);
    json_write_unsigned(&w, NULL, 1);
    json_write_unsigned(&w, NULL, 22222);
    json_write_text(&w, NULL, "");
    json_end_array(&w);
    json_write_around(&w, "\n");
    ck_assert_str_eq(out.data, "old[1,");
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
    json_write_unsigned(&w, NULL, 1);
    ck_assert_int_eq(json_writer_end(&w), STATUS_INVALID);
    ck_assert_uint_eq(out.len, 0);
    buf_deinit(&out);
}
END_TEST

/* A time is written in UTC to the millisecond, bytes in base64 with its padding. */
START_TEST(writes_times_and_bytes)
{
    struct json_writer w;
    struct buf out;

    buf_init(&out, 200);
    w = json_writer_begin(&out);
    json_begin_array(&w, NULL);
    json_write_time(&w, NULL, 0);
    json_write_time(&w, NULL, 1709251199007);
    for (size_t len = 0; len <= 4; len++)
        json_write_base64(&w, NULL, "\xff\x00~M", len);
    json_end_array(&w);
    ck_assert_int_eq(json_writer_end(&w), STATUS_OK);
    ck_assert_str_eq(out.data, "[\"1970-01-01T00:00:00.000Z\",\"2024-02-29T23:59:59.007Z\","
                               "\"\",\"/w==\",\"/wA=\",\"/wB+\",\"/wB+TQ==\"]");
    buf_deinit(&out);
}
END_TEST

static void check_string(const char *in, size_t len, const char *want)
{
    struct json_writer w;
    struct buf b;

    buf_init(&b, 1000);
    w = json_writer_begin(&b);
    json_write_string(&w, NULL, in, len);
    ck_assert_int_eq(json_writer_end(&w), STATUS_OK);
    ck_assert_str_eq(b.data, want);
    ck_assert_uint_eq(b.len, strlen(want));
    buf_deinit(&b);
}

/* Any bytes become one valid JSON string. */
START_TEST(escapes)
{
    check_string(NULL, 0, "\"\"");
    check_string("plain", 5, "\"plain\"");
    check_string("\"\\/", 3, "\"\\\"\\\\/\"");
    check_string("\n\r\t", 3, "\"\\n\\r\\t\"");
    check_string("\0\x1f\x7f", 3, "\"\\u0000\\u001f\x7f\"");
    check_string("é€😀", 9, "\"é€😀\"");
    /* One U+FFFD for each run that could have begun a character. */
    check_string("a\xff"
                 "b",
                 3, "\"a\uFFFDb\"");
    check_string("\xe2\x82", 2, "\"\uFFFD\"");
    check_string("\xe2\x82\x41", 3, "\"\uFFFDA\"");
    check_string("\xc0\x80", 2, "\"\uFFFD\uFFFD\"");
    check_string("\xed\xa0\x80", 3, "\"\uFFFD\uFFFD\uFFFD\"");
    check_string("\xf0\x9f\x98", 3, "\"\uFFFD\"");
}
END_TEST

/* A character that needs an escape gets it wherever it stands, in a string of any length. */
START_TEST(escapes_anywhere)
{
    static const char *const escaped[][2] = {
        {"\"", "\\\""}, {"\n", "\\n"}, {"\x1f", "\\u001f"}, {"\\", "\\\\"}, {"\xff", "\uFFFD"}};
    char in[40], want[80];

    for (size_t i = 0; i < sizeof(escaped) / sizeof(escaped[0]); i++) {
        for (size_t len = 1; len < 25; len++) {
            for (size_t at = 0; at < len; at++) {
                memset(in, '~', len);
                in[at] = escaped[i][0][0];
                (void)snprintf(want, sizeof(want), "\"%.*s%s%.*s\"", (int)at, in, escaped[i][1],
                               (int)(len - at - 1), in + at + 1);
                check_string(in, len, want);
            }
        }
    }
}
END_TEST

/* A string that does not fit leaves nothing, wherever it fails. */
START_TEST(string_is_all_or_nothing)
{
    const char in[] = "a\n\x01\"\xff!";
    struct buf b;
    size_t limit;

    for (limit = 3;; limit++) {
        struct json_writer w;

        buf_init(&b, limit);
        ck_assert_int_eq(buf_append_text(&b, "pre"), STATUS_OK);
        w = json_writer_begin(&b);
        json_write_string(&w, NULL, in, sizeof(in) - 1);
        if (json_writer_end(&w) == STATUS_OK)
            break;
        ck_assert_int_eq(w.rc, STATUS_EXHAUSTED);
        ck_assert_uint_eq(b.len, 3);
        ck_assert_str_eq(b.data, "pre");
        buf_deinit(&b);
    }
    ck_assert_str_eq(b.data, "pre\"a\\n\\u0001\\\"\uFFFD!\"");
    ck_assert_uint_eq(limit, b.len);
    buf_deinit(&b);
}
END_TEST

/* --- misuse --- */

static void write_wrongly(void (*act)(struct json_writer *w))
{
    struct json_writer w;
    struct buf out;

    buf_init(&out, 1000);
    w = json_writer_begin(&out);
    act(&w);
    (void)!json_writer_end(&w);
    buf_deinit(&out);
}

static void member_without_name(struct json_writer *w)
{
    json_begin_object(w, NULL);
    json_write_null(w, NULL);
    json_end_object(w);
}

static void entry_with_name(struct json_writer *w)
{
    json_begin_array(w, NULL);
    json_write_null(w, "a");
    json_end_array(w);
}

static void wrong_end(struct json_writer *w)
{
    json_begin_array(w, NULL);
    json_end_object(w);
}

static void end_too_much(struct json_writer *w)
{
    json_end_array(w);
}

static void no_end(struct json_writer *w)
{
    json_begin_object(w, NULL);
}

static void name_without_value(struct json_writer *w)
{
    json_begin_object(w, NULL);
    json_write_name(w, "a", 1);
    json_end_object(w);
}

static void text_inside(struct json_writer *w)
{
    json_begin_array(w, NULL);
    json_write_around(w, "data: ");
    json_end_array(w);
}

static void too_deep(struct json_writer *w)
{
    for (int i = 0; i <= JSON_WRITER_MAX_DEPTH; i++)
        json_begin_array(w, NULL);
    for (int i = 0; i <= JSON_WRITER_MAX_DEPTH; i++)
        json_end_array(w);
}

static void (*const misuses[])(struct json_writer *w) = {
    member_without_name, entry_with_name, wrong_end, end_too_much, no_end,
    name_without_value,  text_inside,     too_deep};
static size_t misuse;

static void misuse_writer(void)
{
    write_wrongly(misuses[misuse]);
}

/* What would not be JSON aborts. */
START_TEST(misuse_aborts)
{
    for (misuse = 0; misuse < sizeof(misuses) / sizeof(misuses[0]); misuse++)
        ck_assert_msg(suite_aborts(misuse_writer), "misuse %zu", misuse);
}
END_TEST

/* --- any calls --- */

enum { N_RANDOM = 3000, RANDOM_MAX_DEPTH = 8, RANDOM_MAX_CHARS = 12 };

struct random_text {
    char text[4 * RANDOM_MAX_CHARS + 1];
    size_t len;
};

static unsigned next_random(uint64_t *state, unsigned n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % n;
}

/* Characters of every length, quotes and control characters too. */
static struct random_text random_text(uint64_t *state)
{
    static const char *const characters[] = {"a",    "\"",   "\\", "/", "\n", "\t", "\r", "\x01",
                                             "\x1f", "\x7f", " ",  "é", "€",  "😀",  "{",  ","};
    struct random_text t = {.len = 0};

    for (unsigned n = next_random(state, RANDOM_MAX_CHARS); n > 0; n--) {
        const char *c = characters[next_random(state, 16)];

        memcpy(t.text + t.len, c, strlen(c));
        t.len += strlen(c);
    }
    return t;
}

static double random_real(uint64_t *state)
{
    return ldexp((double)next_random(state, UINT32_MAX) + 0.5, (int)next_random(state, 200) - 100);
}

static json_t *write_random(struct json_writer *w, const char *name, uint64_t *state, int depth);

static void write_random_entries(struct json_writer *w, json_t *list, uint64_t *state, int depth)
{
    for (unsigned n = next_random(state, 5); n > 0; n--)
        (void)json_array_append_new(list, write_random(w, NULL, state, depth));
}

static void write_random_members(struct json_writer *w, json_t *object, uint64_t *state, int depth)
{
    for (unsigned n = next_random(state, 5); n > 0; n--) {
        const struct random_text t = random_text(state);
        char name[sizeof(t.text) + 16];

        (void)snprintf(name, sizeof(name), "%u%s", n, t.text); /* no name comes twice */
        if (next_random(state, 4) == 0) {
            json_write_name(w, name, strlen(name));
            (void)json_object_set_new(object, name, write_random(w, NULL, state, depth));
        } else {
            (void)json_object_set_new(object, name, write_random(w, name, state, depth));
        }
    }
}

/* Writes any value; returns what it must be read as. */
static json_t *write_random(struct json_writer *w, const char *name, uint64_t *state, int depth)
{
    struct random_text t;
    int64_t whole;
    double real;
    json_t *made;

    switch (next_random(state, depth < RANDOM_MAX_DEPTH ? 11 : 8)) {
    case 0:
        json_write_null(w, name);
        return json_null();
    case 1:
        json_write_bool(w, name, true);
        return json_true();
    case 2:
        whole = (int64_t)next_random(state, UINT32_MAX) << next_random(state, 32);
        json_write_unsigned(w, name, (uint64_t)whole);
        return json_integer(whole);
    case 3:
        whole = -((int64_t)next_random(state, UINT32_MAX) << next_random(state, 32));
        json_write_signed(w, name, whole);
        return json_integer(whole);
    case 4:
        real = random_real(state);
        json_write_exact(w, name, real);
        return json_real(real);
    case 5:
        json_write_json(w, name, "[ null ]", 8);
        return json_pack("[n]");
    case 6:
        t = random_text(state);
        json_write_text(w, name, t.text);
        return json_string(t.text);
    case 7:
        t = random_text(state);
        t.text[t.len++] = '\0';
        json_write_string(w, name, t.text, t.len);
        return json_stringn(t.text, t.len);
    case 8:
    case 9:
        made = json_object();
        json_begin_object(w, name);
        write_random_members(w, made, state, depth + 1);
        json_end_object(w);
        return made;
    default:
        made = json_array();
        json_begin_array(w, name);
        write_random_entries(w, made, state, depth + 1);
        json_end_array(w);
        return made;
    }
}

/* Writes the document of a seed; returns what it must be read as. */
static json_t *write_document(struct buf *out, uint64_t seed, enum status *ret_rc)
{
    uint64_t state = seed;
    struct json_writer w = seed % 2 == 0 ? json_writer_begin(out) : json_writer_begin_spaced(out);
    json_t *made;

    json_begin_array(&w, NULL);
    made = json_array();
    write_random_entries(&w, made, &state, 1);
    json_end_array(&w);
    *ret_rc = json_writer_end(&w);
    return made;
}

/* Whatever is written is read by another parser as the same value; in a buffer that is a byte too
 * short it fails, and leaves nothing. */
START_TEST(any_calls_are_read_back)
{
    for (uint64_t seed = 0; seed < N_RANDOM; seed++) {
        struct buf out, small;
        json_t *made, *read;
        enum status rc;

        buf_init(&out, SIZE_MAX);
        made = write_document(&out, seed, &rc);
        ck_assert_int_eq(rc, STATUS_OK);
        read = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        ck_assert_msg(json_equal(made, read), "seed %llu: %s", (unsigned long long)seed, out.data);
        json_decref(read);
        json_decref(made);
        buf_init(&small, out.len - 1);
        json_decref(write_document(&small, seed, &rc));
        ck_assert_int_eq(rc, STATUS_EXHAUSTED);
        ck_assert_uint_eq(small.len, 0);
        buf_deinit(&small);
        buf_deinit(&out);
    }
}
END_TEST

SUITE_MAIN("base/json_writer", writes, writes_documents, writes_blanks, first_failure_sticks,
           takes_failures, writes_times_and_bytes, escapes, escapes_anywhere,
           string_is_all_or_nothing, misuse_aborts, any_calls_are_read_back)
