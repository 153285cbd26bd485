#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/guard.h"
#include "tests/unit/base/suite.h"

static char rewritten[1 << 16], names[4096];

static enum status guard(const char *schema, bool strict, struct error *err)
{
    json_t *read = json_loads(schema, JSON_DECODE_ANY, NULL);
    struct buf out, left_out;
    enum status rc;

    ck_assert_msg(read != NULL, "%s", schema);
    buf_init(&out, sizeof(rewritten) - 1);
    buf_init(&left_out, sizeof(names) - 1);
    rc = guard_schema(&out, read, strict, &left_out, err);
    memcpy(rewritten, out.len > 0 ? out.data : "", out.len + 1);
    memcpy(names, left_out.len > 0 ? left_out.data : "", left_out.len + 1);
    buf_deinit(&out);
    buf_deinit(&left_out);
    json_decref(read);
    return rc;
}

struct sample {
    const char *schema, *says;
};

/* Members without a type are about values of one type alone; objects with named members are closed;
 * what says nothing about instances goes; schemas that hold together become one. */
START_TEST(test_rewrites)
{
    static const struct sample rows[] = {
        {"true", "{}"},
        {"{\"title\":\"x\",\"default\":1,\"x-mine\":2}", "{}"},
        {"{\"type\":\"string\",\"description\":\"d\"}", "{\"type\":\"string\"}"},
        {"{\"type\":[\"integer\",\"number\"]}", "{\"type\":\"number\"}"},
        {"{\"type\":\"integer\",\"minimum\":1.5}", "{\"minimum\":2,\"type\":\"integer\"}"},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":1.5}",
         "{\"exclusiveMinimum\":1,\"type\":\"integer\"}"},
        {"{\"const\":1}", "{\"enum\":[1]}"},
        {"{\"enum\":[1,\"a\"],\"type\":\"string\"}", "{\"enum\":[\"a\"]}"},
        {"{\"allOf\":[{\"type\":\"null\"}]}", "{\"type\":\"null\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":true}}",
         "{\"properties\":{\"a\":{}},\"type\":\"object\",\"additionalProperties\":false}"},
        {"{\"type\":\"object\",\"required\":[\"b\"]}",
         "{\"properties\":{\"b\":{}},\"required\":[\"b\"],\"type\":\"object\","
         "\"additionalProperties\":false}"},
        {"{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/b\":{\"type\":\"null\"}}}",
         "{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d0\":{\"type\":\"null\"}}}"},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
         "\"required\":[\"a\"]},{\"properties\":{\"b\":true,\"a\":{\"maximum\":9}},\"required\":["
         "\"b\",\"a\"]}]}",
         "{\"properties\":{\"a\":{\"maximum\":9,\"type\":\"integer\"},\"b\":{}},\"required\":["
         "\"a\",\"b\"],\"type\":\"object\",\"additionalProperties\":false}"},
        {"{\"allOf\":[{},{\"minimum\":1,\"maxLength\":7},{\"minimum\":2,\"maxLength\":8,\"type\":["
         "\"number\",\"string\"]},{\"type\":[\"integer\",\"string\",\"null\"]}]}",
         "{\"minimum\":2,\"maxLength\":7,\"type\":[\"integer\",\"string\"]}"},
        {"{\"$ref\":\"#/$defs/a\",\"maximum\":1,\"$defs\":{\"a\":{\"type\":\"integer\"}}}",
         "{\"maximum\":1,\"type\":\"integer\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"oneOf\":[{"
         "\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},{\"properties\":{\"k\":{"
         "\"const\":\"x\"}},\"required\":[\"k\"]},false]}",
         "{\"anyOf\":[{\"properties\":{\"a\":{\"type\":\"null\"},\"k\":{\"enum\":[1]}},"
         "\"required\":[\"k\"],\"type\":\"object\",\"additionalProperties\":false},{\"properties\":"
         "{\"a\":{\"type\":\"null\"},\"k\":{\"enum\":[\"x\"]}},\"required\":[\"k\"],\"type\":"
         "\"object\",\"additionalProperties\":false}]}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"allOf\":[{"
         "\"properties\":{\"b\":{\"type\":\"null\"}}}],\"unevaluatedProperties\":false}",
         "{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},\"type\":"
         "\"object\",\"additionalProperties\":false}"},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":{"
         "\"type\":\"integer\"}},{\"properties\":{\"b\":{\"minimum\":1}},\"additionalProperties\":{"
         "}}]}",
         "{\"properties\":{\"a\":{},\"b\":{\"minimum\":1,\"type\":\"integer\"}},\"type\":"
         "\"object\",\"additionalProperties\":false}"},
        {"{\"allOf\":[{\"type\":\"object\",\"additionalProperties\":false},{\"properties\":{\"b\":{"
         "}}}]}",
         "{\"properties\":{},\"type\":\"object\",\"additionalProperties\":false}"},
        {"{\"type\":\"object\",\"properties\":{\"a\\n\\\"\":{\"type\":\"null\"}},\"required\":["
         "\"b\\\\\",\"a\\n\\\"\"]}",
         "{\"properties\":{\"a\\\\n\\\\\\\"\":{\"type\":\"null\"},\"b\\\\\\\\\":{}},\"required\":["
         "\"b\\\\\\\\\",\"a\\\\n\\\\\\\"\"],\"type\":\"object\",\"additionalProperties\":false}"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        json_t *want, *have;

        ck_assert_msg(guard(rows[i].schema, true, &err) == STATUS_OK, "%s: %s", rows[i].schema,
                      err.text);
        want = json_loads(rows[i].says, 0, NULL);
        have = json_loads(rewritten, 0, NULL);
        ck_assert_msg(json_equal(want, have), "%s: %s", rows[i].schema, rewritten);
        json_decref(want);
        json_decref(have);
        ck_assert_str_eq(names, "");
    }
}
END_TEST

/* What cannot be enforced is refused where strict, by path and keyword; else it is left out, and
 * named. */
START_TEST(test_unenforced)
{
    static const struct sample rows[] = {
        {"{\"not\":{}}", "# not"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "# uniqueItems"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"contains\":{}}}}",
         "#/properties/a contains"},
        {"{\"type\":\"object\",\"patternProperties\":{\"a\":{}}}", "# patternProperties"},
        {"{\"type\":\"object\",\"minProperties\":1}", "# minProperties"},
        {"{\"type\":\"number\",\"multipleOf\":2}", "# multipleOf"},
        {"{\"type\":\"string\",\"maxLength\":1000000000}", "# maxLength"},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "# pattern"},
        {"{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":3}", "# maxLength"},
        {"{\"type\":\"string\",\"format\":\"regex\"}", "# format"},
        {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "# allOf"},
        {"{\"allOf\":[{\"type\":\"null\"},{\"not\":{}}]}", "#/allOf/1 not"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "# oneOf"},
        {"{\"anyOf\":[{\"not\":{}}]}", "#/anyOf/0 not"},
        {"{\"type\":\"object\",\"anyOf\":[{\"type\":\"null\"}]}", "# anyOf"},
        {"{\"$ref\":\"#/$defs/a\",\"maximum\":1,\"$defs\":{\"a\":{\"enum\":[1]}}}", "# maximum"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *keyword = strchr(rows[i].says, ' ') + 1;
        struct error err;

        ck_assert_msg(guard(rows[i].schema, true, &err) == STATUS_INVALID, "%s", rows[i].schema);
        ck_assert_msg(strstr(err.text, keyword) != NULL, "%s: %s", rows[i].schema, err.text);
        ck_assert_msg(guard(rows[i].schema, false, &err) == STATUS_OK, "%s: %s", rows[i].schema,
                      err.text);
        ck_assert_str_eq(names, rows[i].says);
        ck_assert_msg(strstr(rewritten, keyword) == NULL || strcmp(keyword, "oneOf") == 0, "%s",
                      rewritten);
    }
}
END_TEST

/* Schemas that are wrong, or that nothing matches, are refused whether strict or not. */
START_TEST(test_wrong)
{
    static const char *const rows[] = {
        "false",
        "3",
        "{\"type\":\"text\"}",
        "{\"type\":3}",
        "{\"enum\":[]}",
        "{\"enum\":[1],\"type\":\"string\"}",
        "{\"anyOf\":[]}",
        "{\"anyOf\":[false]}",
        "{\"$ref\":\"#/nowhere\"}",
        "{\"$ref\":\"http://example.com/\"}",
        "{\"$ref\":\"#\"}",
        "{\"type\":\"string\",\"minLength\":-1}",
        "{\"type\":\"object\",\"properties\":[]}",
        "{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}",
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;

        ck_assert_msg(guard(rows[i], false, &err) == STATUS_INVALID, "%s: %s", rows[i], rewritten);
        ck_assert_msg(strstr(err.text, "#") != NULL, "%s", err.text);
    }
}
END_TEST

/* Depth, and the number of schemas and values, have bounds. */
START_TEST(test_bounds)
{
    enum { DEEP = 1000, MANY = 5000 };
    struct buf schema;
    struct error err;

    buf_init(&schema, 1 << 20);
    for (int i = 0; i < DEEP; i++)
        ck_assert_int_eq(buf_append_text(&schema, "{\"type\":\"array\",\"items\":"), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&schema, "true"), STATUS_OK);
    for (int i = 0; i < DEEP; i++)
        ck_assert_int_eq(buf_append_text(&schema, "}"), STATUS_OK);
    ck_assert_int_eq(guard(schema.data, false, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "nested too deeply"));
    buf_clear(&schema);
    ck_assert_int_eq(buf_append_text(&schema, "{\"enum\":[0"), STATUS_OK);
    for (int i = 1; i < MANY; i++)
        ck_assert_int_eq(buf_printf(&schema, ",%d", i), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&schema, "]}"), STATUS_OK);
    ck_assert_int_eq(guard(schema.data, false, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "too many values"));
    buf_clear(&schema);
    ck_assert_int_eq(buf_append_text(&schema, "{\"required\":[\"a\""), STATUS_OK);
    for (int i = 1; i < MANY; i++)
        ck_assert_int_eq(buf_append_text(&schema, ",\"a\""), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&schema, "]}"), STATUS_OK);
    ck_assert_int_eq(guard(schema.data, false, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "too many names"));
    buf_clear(&schema);
    ck_assert_int_eq(buf_append_text(&schema, "{\"$defs\":{\"a\":{\"properties\":{\"0\":{}"),
                     STATUS_OK);
    for (int i = 1; i < DEEP; i++)
        ck_assert_int_eq(buf_printf(&schema, ",\"%d\":{}", i), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&schema, "}}},\"allOf\":[{\"$ref\":\"#/$defs/a\"}"),
                     STATUS_OK);
    for (int i = 1; i < DEEP; i++)
        ck_assert_int_eq(buf_append_text(&schema, ",{\"$ref\":\"#/$defs/a\"}"), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&schema, "]}"), STATUS_OK);
    ck_assert_int_eq(guard(schema.data, false, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "are combined with others are too many"));
    buf_deinit(&schema);
}
END_TEST

SUITE_MAIN("guard", test_rewrites, test_unenforced, test_wrong, test_bounds)
