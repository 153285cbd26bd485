#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/constraint/constraint.h"
#include "agents/lm/grammar/engine.h"
#include "tests/unit/agents/lm/grammar/byte_vocab.h"
#include "tests/unit/base/suite.h"

static const struct grammar_module *module;
static void *vocab;

/* The closing of a text that matches the schema so far: "" if it may end, "none" if none is found.
 * It is an instance's end, and the engine is where it was. */
static void close_text(const char *schema, const char *so_far, char *out, size_t cap)
{
    const struct constraint *c;
    const char *left_out;
    char why[200] = "";
    struct arena arena;
    struct error err;
    void *compiled, *engine;
    bool no_memory, is_spent;
    size_t len;

    arena_init(&arena, 1 << 20);
    ck_assert_msg(constraint_of_schema_text(&c, schema, strlen(schema), true, &left_out, &arena,
                                            &err) == STATUS_OK,
                  "%s: %s", schema, err.text);
    compiled = module->compile(vocab, c->form, c->text, c->len, &no_memory, why, sizeof(why));
    ck_assert_msg(compiled != NULL, "%s: %s", schema, why);
    engine = module->matcher_open(compiled, &is_spent);
    for (const char *at = so_far; *at != '\0'; at++)
        ck_assert_msg(module->matcher_accept_text(engine, at, 1), "%s: %s", schema, so_far);
    len = module->matcher_ending(engine, out, cap - 1);
    if (len == SIZE_MAX) {
        snprintf(out, cap, "none");
    } else {
        out[len] = '\0';
        ck_assert_msg(module->matcher_accept_text(engine, out, len), "%s: %s", so_far, out);
        ck_assert_msg(module->matcher_may_end(engine), "%s: %s", so_far, out);
    }
    module->matcher_close(engine);
    module->compiled_close(compiled);
    arena_deinit(&arena);
}

/* What is open is closed, and what is required gets a short value. */
START_TEST(test_closings)
{
    static const struct {
        const char *schema, *so_far, *closing;
    } rows[] = {
        {"{\"type\":\"object\"}", "", "{}"},
        {"{\"type\":\"object\"}", "{\"a\": [1, {\"b", "\": 0}]}"},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"object\",\"properties\":{\"k\":"
         "{"
         "\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":7},\"minItems\":2}},"
         "\"required\":"
         "[\"k\"]}}",
         "{\"x\": {\"k\": [9", ", 7]}}"},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+(-[a-z]+)*@ab\\\\.c$\"}", "\"xy-", "n@ab.c\""},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":1000}", "\"a", "..\""},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"01234567-89ab-cdef-0123-",
         "000000000000\""},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":3}", "[null, nu",
         "ll, null]"},
        {"{\"type\":\"object\"}", "{\"a\": \"x\\", "n\"}"},
        {"{\"type\":\"object\"}", "{\"a\": \"}]\\\"", "\"}"},
        {"{\"type\":\"object\"}", "{\"a\": \"\xC3", "\x80\"}"},
        {"{\"type\":\"object\"}", "{\"a\": \"\xE0", "\xA0\x80\"}"},
        {"{\"type\":\"object\"}", "{\"a\": \"\xF0", NULL},
        {"{\"type\":\"object\"}", "{\"a\": 12", "}"},
        {"{\"type\":\"object\"}", "{\"a\": -", "0}"},
        {"{\"type\":\"integer\"}", "12", ""},
        {"{\"type\":\"integer\",\"minimum\":150,\"maximum\":160}", "", "150"},
        {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":3}", "[true",
         ", true, true]"},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"hello\",\"help\"]},\"minItems\":1}", "[\"hel",
         "p\"]"},
        {"{\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"},"
         "\"c\":{\"type\":\"string\",\"minLength\":3}},\"required\":[\"a\",\"c\"]}",
         "{\"a\": \"Once upon", "\", \"c\": \"...\"}"},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", "\"2024-01-31T10:00:00.000000", "Z\""},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", "\"", NULL},
        {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-0", NULL},
        {"{\"type\":\"string\",\"format\":\"time\"}", "\"2", NULL},
        {"{\"type\":\"string\",\"format\":\"email\"}", "\"a.b", NULL},
        {"{\"type\":\"string\",\"format\":\"email\"}", "\"a@b.", NULL},
        {"{\"type\":\"string\",\"format\":\"uri\"}", "\"ht", NULL},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"12", NULL},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}", "\"1:", NULL},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"12", NULL},
        {"{\"type\":\"string\",\"format\":\"hostname\"}", "\"", NULL},
        {"{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-[0-9]{2,4}$\"}", "\"A", NULL},
        {"{\"type\":\"string\",\"pattern\":\"^[a-zA-Z0-9]+-(x|yy)$\"}", "\"a", NULL},
        {"{\"type\":\"string\",\"minLength\":200}", "\"a", NULL},
        {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{"
         "\"type\":\"number\"},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
         "n\"},{\"type\":\"null\"}]}},"
         "\"required\":[\"v\",\"next\"]}}}",
         "{\"v\": 1.5, \"next\": {\"v\"", ": 0, \"next\": null}}"},
    };
    char out[256];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        close_text(rows[i].schema, rows[i].so_far, out, sizeof(out));
        ck_assert_msg(strcmp(out, "none") != 0, "none: %s: %s", rows[i].schema, rows[i].so_far);
        if (rows[i].closing != NULL)
            ck_assert_str_eq(out, rows[i].closing);
    }
}
END_TEST

/* A closing that has no room is none. */
START_TEST(test_none)
{
    char out[256];

    close_text("{\"type\":\"object\"}", "{\"a\": [1, {\"b", out, 5);
    ck_assert_str_eq(out, "none");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_closings, test_none};
    const char *path = getenv("PARLEY_GRAMMAR_MODULE");
    struct error err;
    int failed;

    if (path == NULL || access(path, R_OK) != 0) {
        printf("the grammar module is not built\n");
        return 77;
    }
    if (engine_load(&module, &err) != STATUS_OK) {
        printf("%s\n", err.text);
        return EXIT_FAILURE;
    }
    vocab = byte_vocab_open(module);
    failed = suite_run("closing", tests, 2);
    module->vocab_close(vocab);
    return failed;
}
