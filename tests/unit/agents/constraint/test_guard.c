#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/guard.h"
#include "base/alloc.h"
#include "tests/unit/base/suite.h"

static char rewritten[1 << 20], names[4096];

static enum status guard(const char *schema, bool strict, struct error *err)
{
    json_t *read = json_loads(schema, JSON_DECODE_ANY, NULL);
    struct buf out, left_out;
    size_t work = GUARD_MAX_WORK;
    enum status rc;

    ck_assert_msg(read != NULL, "%s", schema);
    buf_init(&out, sizeof(rewritten) - 1);
    buf_init(&left_out, sizeof(names) - 1);
    rc = guard_schema(&out, read, strict, &left_out, &work, err);
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

/* Rules that the grammar of a schema has; "r" and a number stand for a rule. */
START_TEST(test_rules)
{
    static const struct sample rows[] = {
        {"{\"const\":[1,\"a\"]}", "r0 ::= \"[1, \\u0022a\\u0022]\"\n"},
        {"{\"enum\":[1,\"a\"],\"type\":\"integer\"}", "r0 ::= \"1\"\n"},
        {"{\"enum\":[1,\"a\",\"b\"],\"type\":[\"integer\",\"string\"],\"pattern\":\"^c$\"}",
         "r0 ::= \"1\"\n"},
        {"{\"enum\":[null,true,1.0]}", "r0 ::= \"null\" | \"true\" | \"1\"\n"},
        {"{\"enum\":[0.1,[1e-7],0.30000000000000004]}",
         "r0 ::= \"0.1\" | \"[1e-7]\" | \"0.30000000000000004\"\n"},
        {"{\"allOf\":[{\"type\":\"null\"}]}", "r0 ::= \"null\"\n"},
        {"{\"type\":[\"null\",\"boolean\"]}", "r0 ::= \"true\" | \"false\" | \"null\"\n"},
        {"{\"type\":\"string\",\"enum\":[\"a\"]}", "Regex(\"*@61611,;22222,;!\")\n"},
        {"{\"type\":\"string\",\"pattern\":\"^a*$\"}", "Regex(\"*@22221,61610,;!\")\n"},
        {"{\"type\":\"string\",\"maxLength\":5000}", "r4 ::= r3 | r1 r2\nr5 ::= r3 | r1 r4\n"},
        {"{\"type\":\"array\",\"maxItems\":0}", "::= \"]\"\n"},
        {"{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/b\":{\"type\":\"null\"}}}",
         "r0 ::= r1\nr1 ::= \"null\"\n"},
        {"{\"$ref\":\"#x\",\"$defs\":{\"a\":{\"$anchor\":\"x\",\"type\":\"null\"}}}",
         "r1 ::= \"null\"\n"},
        {"{\"$ref\":\"http://a/b\",\"$defs\":{\"a\":{\"$id\":\"http://a/b\",\"type\":\"null\"}}}",
         "r1 ::= \"null\"\n"},
        {"{\"$dynamicRef\":\"#x\",\"$defs\":{\"a\":{\"$dynamicAnchor\":\"x\",\"type\":\"null\"}}}",
         "::= \"null\"\n"},
        {"{\"$id\":\"http://a/b\",\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{"
         "\"$recursiveRef\":\"#\"}}]}",
         "\"null\""},
        /* names as drafts before 2019 have them, without a base of their own */
        {"{\"$ref\":\"#x\",\"$defs\":{\"a\":{\"$id\":\"#x\",\"allOf\":[{\"$ref\":\"#/$defs/b\"}]},"
         "\"b\":{\"type\":\"null\"}}}",
         "::= \"null\"\n"},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$id\":\"#/$defs/a\",\"allOf\":[{\"$ref\":"
         "\"#/$defs/"
         "b\"}],\"$defs\":{\"c\":{\"$id\":\"c\",\"type\":\"null\"}}},\"b\":{\"$ref\":\"c\"}}}",
         "::= \"null\"\n"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}"
         "}",
         "r8 ::= \"b\\u0022: \" r2 r5 | \"a\\u0022: \" r2 r4\n"
         "r3 ::= \"}\" | \", \\\"\" r8\nr1 ::= \"{}\" | \"{\\\"\" r8\n"},
        {"{\"type\":\"object\",\"properties\":{\"a\\n\\\"\":{\"type\":\"null\"}},\"required\":["
         "\"a\\n\\\"\"]}",
         "::= \"a\\u005cn\\u005c\\u0022\\u0022: \" r"},
        {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"maxProperties\":0}",
         "::= \"{}\"\n"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},"
         "\"additionalProperties\":{\"type\":\"null\"}}",
         "r1 ::= \"{}\" | \"{\\\"\" r7 | \"{\\\"\" r6\n"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;

        ck_assert_msg(guard(rows[i].schema, true, &err) == STATUS_OK, "%s: %s", rows[i].schema,
                      err.text);
        ck_assert_msg(strstr(rewritten, rows[i].says) != NULL, "%s: %s", rows[i].schema, rewritten);
        ck_assert_str_eq(names, "");
    }
}
END_TEST

/* Objects of which the first two have no member of each other's, but for the third's opposite. */
#define OVERLAP                                                                                \
    "{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"]},"                    \
    "{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"string\"}},\"required\":[\"b\"]}," \
    "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{\"type\":\"null\"}},\"required\":["  \
    "\"a\"]}"

/* Schemas that ask for the same have the same grammar. */
START_TEST(test_same)
{
    static const struct sample rows[] = {
        {"true", "{\"title\":\"x\",\"default\":1,\"x-mine\":2}"},
        {"{\"type\":\"number\"}", "{\"type\":[\"integer\",\"number\"]}"},
        {"{\"type\":\"integer\",\"minimum\":2}", "{\"type\":\"integer\",\"minimum\":1.5}"},
        {"{\"type\":\"integer\",\"minimum\":2}", "{\"type\":\"integer\",\"exclusiveMinimum\":1}"},
        {"{\"type\":\"integer\",\"minimum\":2}",
         "{\"type\":\"integer\",\"exclusiveMinimum\":true,\"minimum\":1}"},
        {"{\"type\":\"object\",\"properties\":{\"b\":{}},\"required\":[\"b\"]}",
         "{\"type\":\"object\",\"required\":[\"b\"]}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":9},\"b\":{}}"
         ","
         "\"required\":[\"a\",\"b\"]}",
         "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
         "\"required\":[\"a\"]},{\"properties\":{\"b\":true,\"a\":{\"maximum\":9}},\"required\":["
         "\"b\",\"a\"]}]}"},
        {"{\"type\":\"integer\",\"maximum\":1}",
         "{\"$ref\":\"#/$defs/a\",\"maximum\":1,\"$defs\":{\"a\":{\"type\":\"integer\"}}}"},
        {"{\"type\":\"string\",\"pattern\":\"^a{2,3}$\"}",
         "{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":2,\"maxLength\":3}"},
        {"{\"type\":\"string\",\"pattern\":\"^a{1,6}$\"}",
         "{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^a+$\"},{\"pattern\":\"^.{0,6}$\"}]}"},
        {"{\"type\":\"string\",\"pattern\":\"^[ac]$\"}",
         "{\"type\":\"string\",\"pattern\":\"^[abc]$\",\"not\":{\"const\":\"b\"}}"},
        {"{\"type\":\"integer\",\"multipleOf\":6}",
         "{\"type\":\"integer\",\"allOf\":[{\"multipleOf\":2},{\"multipleOf\":1.5}]}"},
        {"{\"enum\":[\"b\"]}", "{\"enum\":[\"a\",\"b\"],\"not\":{\"enum\":[\"a\"]}}"},
        {"{\"enum\":[\"bb\"]}", "{\"enum\":[\"a\",\"bb\"],\"minLength\":2}"},
        {"{\"enum\":[3]}", "{\"enum\":[1,3,\"a\"],\"type\":\"number\",\"exclusiveMinimum\":2}"},
        {"{\"enum\":[0.1,1e-7]}",
         "{\"enum\":[0.1,0.7,0,1e-7],\"exclusiveMinimum\":0,\"maximum\":0.1}"},
        {"{\"enum\":[-0.3,3]}", "{\"enum\":[-0.3,0.2,3,0.45],\"multipleOf\":0.3}"},
        {"{\"type\":\"null\"}",
         "{\"anyOf\":[{\"type\":\"null\"},false,{\"enum\":[1],\"type\":\"null\"}]}"},
        {"{\"type\":[\"null\",\"boolean\"]}",
         "{\"not\":{\"type\":[\"string\",\"number\",\"object\",\"array\"]}}"},
        /* of oneOf, what the other alternatives do not match */
        {"{\"type\":\"string\",\"not\":{\"type\":\"string\",\"pattern\":\"^a\"}}",
         "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"string\",\"pattern\":\"^a\"}]}"},
        {"{\"type\":\"string\",\"pattern\":\"^[^a]*$\"}",
         "{\"type\":\"string\",\"not\":{\"pattern\":\"a\"}}"},
        {"{\"anyOf\":[{\"type\":\"integer\",\"exclusiveMaximum\":1},{\"type\":\"integer\","
         "\"exclusiveMinimum\":1}]}",
         "{\"oneOf\":[{\"type\":\"integer\"},{\"const\":1.0}]}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"b\"],"
         "\"additionalProperties\":false}",
         "{\"oneOf\":[{\"$ref\":\"#/$defs/x\"},{\"type\":\"object\",\"properties\":{\"a\":{},"
         "\"b\":{}},\"additionalProperties\":false}],\"$defs\":{\"x\":{\"type\":\"object\","
         "\"properties\":{\"a\":{}},\"additionalProperties\":false}}}"},
        {"{\"type\":\"object\",\"properties\":{\"b\":{}},\"required\":[\"b\"]}",
         "{\"required\":[\"b\"],\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},"
         "\"required\":[\"a\"]},{\"type\":\"object\",\"properties\":{\"b\":{}},\"required\":["
         "\"b\"]}]}"},
        {"{\"required\":[],\"oneOf\":[" OVERLAP "]}", "{\"oneOf\":[" OVERLAP "]}"},
        {"{\"anyOf\":[{\"type\":\"string\",\"minLength\":6},{\"type\":\"string\",\"maxLength\":2}]"
         "}",
         "{\"oneOf\":[{\"$ref\":\"#/$defs/"
         "x\",\"minLength\":3},{\"type\":\"string\",\"maxLength\":5}],\"$defs\":{\"x\":{\"type\":"
         "\"string\"}}}"},
        {"{\"type\":\"string\",\"maxLength\":2}",
         "{\"oneOf\":[{\"type\":\"string\",\"maxLength\":9223372036854775807},{\"type\":\"string\","
         "\"minLength\":3}]}"},
        /* of names, what stands behind a reference, and a limit that no name reaches */
        {"{\"type\":\"object\",\"propertyNames\":{\"minLength\":3}}",
         "{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/x\"},\"$defs\":{\"x\":{"
         "\"minLength\":3}}}"},
        {"{\"type\":\"string\",\"pattern\":\"^(x|[^a][\\\\s\\\\S]*)?$\"}",
         "{\"type\":\"string\",\"not\":{\"pattern\":\"^(?!x$)(?=a)\"}}"},
        {"{\"type\":\"object\",\"additionalProperties\":false,\"patternProperties\":{\"^a(b|c["
         "\\\\s\\\\S]+)$\":"
         "{\"type\":\"null\"},\"^a(c|[^bc][\\\\s\\\\S]*|b[\\\\s\\\\S]+)?$\":{\"type\":\"integer\"}}"
         "}",
         "{\"type\":\"object\",\"additionalProperties\":false,\"patternProperties\":{\"^(?!ac$)a(b$"
         "|c)\":"
         "{\"type\":\"null\"},\"^(?!ab$)(?!ac[\\\\s\\\\S])a\":{\"type\":\"integer\"}}}"},
        {"{\"type\":\"object\",\"properties\":{\"z\":{\"type\":\"null\"},\"x1\":{\"maxLength\":1}},"
         "\"patternProperties\":{\"^x\":{\"type\":\"string\"}},\"additionalProperties\":false}",
         "{\"allOf\":[{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"string\"}},"
         "\"properties\":{"
         "\"z\":{}},\"additionalProperties\":false},{\"properties\":{\"x1\":{\"maxLength\":1},"
         "\"y\":{}}},"
         "{\"properties\":{\"y\":{},\"z\":{\"type\":\"null\"}}}]}"},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{}},\"additionalProperties\":{"
         "\"type\":\"integer\"},\"properties\":{\"x1\":{\"type\":\"string\"},\"y\":{\"type\":"
         "\"integer\"}}}",
         "{\"allOf\":[{\"type\":\"object\",\"patternProperties\":{\"^x\":{}},"
         "\"additionalProperties\":{\"type\":\"integer\"}},{\"properties\":{\"x1\":{\"type\":"
         "\"string\"},\"y\":{}}}]}"},
        /* of names, alternatives */
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^(a.*|b|cd)$\"}}",
         "{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"pattern\":\"^a.*$\"},{\"const\":"
         "\"b\"},{"
         "\"type\":\"string\",\"enum\":[\"cd\",3]},{\"type\":\"null\"}]}}"},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^(?!x[\\\\s\\\\S])\"}}",
         "{\"type\":\"object\",\"propertyNames\":{\"not\":{\"pattern\":\"^x\",\"minLength\":2}}}"},
        {"{\"type\":\"object\",\"propertyNames\":{\"minLength\":1}}",
         "{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"minLength\":1},{\"pattern\":\"^a$"
         "\"}]}}"},
        {"{\"type\":\"object\",\"additionalProperties\":{}}",
         "{\"type\":\"object\",\"additionalProperties\":{},\"propertyNames\":{\"anyOf\":[{"
         "\"pattern\":"
         "\"^a\"},{}]}}"},
        {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":1000000000}}",
         "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":1e300}}"},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[^xy]*$\",\"maxLength\":4}}",
         "{\"type\":\"object\",\"propertyNames\":{\"allOf\":[{\"not\":{\"pattern\":\"x\"}},{"
         "\"not\":{"
         "\"pattern\":\"y\"}}],\"not\":{\"minLength\":5}}}"},
        /* beyond the limit */
        {"{\"type\":\"string\",\"maxLength\":65536}", "{\"type\":\"string\",\"maxLength\":70000}"},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":65536}",
         "{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":70000}"},
        {"{\"type\":\"array\",\"maxItems\":4096}", "{\"type\":\"array\",\"maxItems\":5000}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}}}",
         "{\"type\":\"object\",\"properties\":{\"a\":{}},\"maxProperties\":5000}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":"
         "\"null\"},"
         "\"maxProperties\":4096}",
         "{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":"
         "\"null\"},"
         "\"maxProperties\":5000}"},
        /* exactly, beyond 2^53 */
        {"{\"type\":\"integer\",\"minimum\":9007199254740993}",
         "{\"type\":\"integer\",\"allOf\":[{\"minimum\":9007199254740992},{\"minimum\":"
         "9007199254740993}]}"},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"}}",
         "{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{"
         "\"type\":\"null\"},\"minProperties\":0}"},
        {"{\"type\":\"array\",\"maxItems\":1,\"prefixItems\":[{\"type\":\"null\"}]}",
         "{\"type\":\"array\",\"items\":[{\"type\":\"null\"}],\"additionalItems\":false,"
         "\"uniqueItems\":true}"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"minItems\":1}",
         "{\"type\":\"array\",\"contains\":{\"const\":1}}"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"enum\":[1]},{\"enum\":[1,2]}],\"items\":{"
         "\"enum\":"
         "[2]},\"minItems\":2}",
         "{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"contains\":{\"const\":1},"
         "\"maxContains\":2,"
         "\"minItems\":2}"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"const\":1}],\"minItems\":2}",
         "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"contains\":{\"const\":1}}"},
        {"{\"type\":\"integer\",\"maximum\":2}",
         "{\"type\":\"integer\",\"not\":{\"minimum\":2.5}}"},
        {"{\"type\":\"array\",\"maxItems\":1}", "{\"type\":\"array\",\"not\":{\"minItems\":2}}"},
        {"{\"type\":\"object\",\"minProperties\":2}",
         "{\"allOf\":[{\"type\":\"object\",\"minProperties\":1},{\"minProperties\":2}]}"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static char first[sizeof(rewritten)];
        struct error err;

        ck_assert_msg(guard(rows[i].schema, true, &err) == STATUS_OK, "%s: %s", rows[i].schema,
                      err.text);
        memcpy(first, rewritten, sizeof(first));
        ck_assert_msg(guard(rows[i].says, true, &err) == STATUS_OK, "%s: %s", rows[i].says,
                      err.text);
        ck_assert_msg(strcmp(first, rewritten) == 0, "%s\n%s\n%s\n%s", rows[i].schema, first,
                      rows[i].says, rewritten);
    }
}
END_TEST

/* The grammar is hardly longer than the schema, times a constant: so with 2,000 optional members.
 */
START_TEST(test_linear)
{
    size_t sizes[2];

    for (size_t k = 0; k < 2; k++) {
        struct buf schema;
        struct error err;

        buf_init(&schema, 1 << 20);
        ck_assert_int_eq(buf_append_text(&schema, "{\"type\":\"object\",\"properties\":{\"a\":{}"),
                         STATUS_OK);
        for (size_t i = 0; i < (k == 0 ? 1000 : 2000); i++)
            ck_assert_int_eq(buf_printf(&schema, ",\"m%04zu\":{\"type\":\"integer\"}", i),
                             STATUS_OK);
        ck_assert_int_eq(buf_append_text(&schema, "}}"), STATUS_OK);
        ck_assert_msg(guard(schema.data, true, &err) == STATUS_OK, "%s", err.text);
        sizes[k] = strlen(rewritten);
        buf_deinit(&schema);
    }
    ck_assert_uint_lt(sizes[1], sizes[0] / 2 * 5);
}
END_TEST

#define A10 "aaaaaaaaaa"
#define A150 A10 A10 A10 A10 A10 A10 A10 A10 A10 A10 A10 A10 A10 A10 A10

/* What cannot be enforced is refused where strict, by path and keyword; else it is left out, and
 * named. */
START_TEST(test_unenforced)
{
    static const struct sample rows[] = {
        {"{\"not\":{\"pattern\":\"(?<=a)b\"}}", "#/anyOf/0 not"},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":2}", "# uniqueItems"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"uniqueItems\":true,\"contains\":{},"
         "\"minItems\":2}}}",
         "#/properties/a uniqueItems"},
        {"{\"contains\":{\"format\":\"date\"},\"maxContains\":1}", "#/maxContains not"},
        {"{\"contains\":{},\"minContains\":65}", "# minContains"},
        {"{\"type\":\"object\",\"patternProperties\":{\"(?<=a)b\":{}}}", "# patternProperties"},
        {"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"pattern\":\"(?<=a)b\"},{"
         "\"maxLength\":1}]}}",
         "#/propertyNames pattern"},
        {"{\"type\":\"object\",\"minProperties\":17}", "# minProperties"},
        {"{\"additionalProperties\":false,\"patternProperties\":{\"^aa?$\":{}},"
         "\"minProperties\":2}",
         "# minProperties"},
        {"{\"$dynamicRef\":\"#x\",\"$defs\":{\"a\":{\"$id\":\"http://"
         "a\",\"$dynamicAnchor\":\"x\"}}}",
         "# $dynamicRef"},
        {"{\"type\":\"integer\",\"multipleOf\":123457}", "# multipleOf"},
        {"{\"const\":[1.8446744073709552e19]}", "# const"},
        {"{\"enum\":[1,{\"a\":-1e19}]}", "# enum"},
        {"{\"type\":\"integer\",\"minimum\":9223372036854775808.0}", "# minimum"},
        {"{\"type\":\"string\",\"minLength\":1000000000}", "# minLength"},
        {"{\"type\":\"string\",\"pattern\":\"a(?=a)\"}", "# pattern"},
        {"{\"type\":\"string\",\"pattern\":\"^(ab?){300}$\",\"maxLength\":500}", "# maxLength"},
        {"{\"allOf\":[{\"type\":\"array\",\"prefixItems\":[{}]},{\"prefixItems\":[{}]}]}",
         "# allOf"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "# oneOf"},
        {"{\"oneOf\":[{\"format\":\"ipv4\"},{\"format\":\"hostname\"}]}", "# oneOf"},
        {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"" A150
         "foo\"],\"propertyNames\":{\"pattern\":\"foo\",\"maxLength\":2000}},{\"type\":\"object\","
         "\"required\":[\"" A150 "foo\"],\"properties\":{\"" A150
         "foo\":{\"type\":\"integer\"}}}]}",
         "# oneOf"},
        {"{\"oneOf\":[{\"type\":\"object\",\"patternProperties\":{\"^x\":{}},"
         "\"additionalProperties\":{\"type\":\"string\"},\"required\":[\"xa\"]},{\"type\":"
         "\"object\",\"properties\":{\"xa\":{\"type\":\"integer\"}},\"required\":[\"xa\"]}]}",
         "# oneOf"},
        {"{\"anyOf\":[{\"not\":{\"format\":\"date\"}}]}", "#/anyOf/0 not"},
        {"{\"if\":{\"multipleOf\":2},\"then\":{\"maximum\":2}}", "# if"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *keyword = strchr(rows[i].says, ' ') + 1;
        struct error err;

        ck_assert_msg(guard(rows[i].schema, true, &err) == STATUS_INVALID, "%s", rows[i].schema);
        ck_assert_msg(strstr(err.text, keyword) != NULL, "%s: %s", rows[i].schema, err.text);
        ck_assert_msg(guard(rows[i].schema, false, &err) == STATUS_OK, "%s: %s", rows[i].schema,
                      err.text);
        ck_assert_str_eq(names, rows[i].says);
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
        "{\"not\":{}}",
        "{\"type\":\"object\",\"anyOf\":[{\"type\":\"null\"}]}",
        "{\"type\":\"string\",\"pattern\":\"^a$\",\"minLength\":2}",
        "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}",
        "{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}",
        "{\"type\":\"object\",\"minProperties\":1,\"additionalProperties\":false}",
        "{\"allOf\":[{\"enum\":[1]},{\"enum\":[2]}]}",
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;

        ck_assert_msg(guard(rows[i], false, &err) == STATUS_INVALID, "%s: %s", rows[i], rewritten);
        ck_assert_msg(strstr(err.text, "#") != NULL, "%s", err.text);
    }
}
END_TEST

#define EURO_10 "€€€€€€€€€€"
#define EURO_40 EURO_10 EURO_10 EURO_10 EURO_10

/* A reference that leads in a circle says so, a size that is too large what it may be, and of a
 * long name there is the end, from a character on. */
START_TEST(test_reasons)
{
    static const char long_name[] = "{\"properties\":{\"" EURO_40 "z\":{\"type\":0}}}";
    struct error err;

    ck_assert_int_eq(guard("{\"type\":\"object\",\"minProperties\":5000}", true, &err),
                     STATUS_INVALID);
    ck_assert_ptr_nonnull(
        strstr(err.text, "'minProperties' is larger than the compiler's limit, 16"));
    ck_assert_int_eq(
        guard("{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":70000}", true, &err),
        STATUS_INVALID);
    ck_assert_ptr_nonnull(
        strstr(err.text, "'minLength' is larger than the compiler's limit, 65,536"));
    ck_assert_int_eq(guard("{\"$ref\":\"#\"}", false, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "do not end in a schema"));
    ck_assert_int_eq(guard(long_name, true, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "the schema at ...€€"));
    ck_assert_ptr_nonnull(strstr(err.text, "€z: 'type'"));
}
END_TEST

/* Depth, and the number of schemas and values, have bounds. */
START_TEST(test_bounds)
{
    enum { DEEP = 1000, MANY = 20000 };
    struct buf schema;
    struct error err;

    buf_init(&schema, 1 << 20);
    for (int i = 0; i < DEEP; i++)
        ck_assert_int_eq(buf_append_text(&schema, "{\"type\":\"array\",\"items\":"), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&schema, "true"), STATUS_OK);
    for (int i = 0; i < DEEP; i++)
        ck_assert_int_eq(buf_append_text(&schema, "}"), STATUS_OK);
    ck_assert_int_eq(guard(schema.data, false, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "the schema at .../items/"));
    ck_assert_ptr_nonnull(strstr(err.text, "'schemas' are nested too deeply"));
    buf_clear(&schema);
    ck_assert_int_eq(buf_append_text(&schema, "{\"enum\":[0"), STATUS_OK);
    for (int i = 1; i < MANY; i++)
        ck_assert_int_eq(buf_printf(&schema, ",%d", i), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&schema, "]}"), STATUS_OK);
    ck_assert_int_eq(guard(schema.data, false, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "too many"));
    buf_clear(&schema);
    ck_assert_int_eq(buf_append_text(&schema, "{\"required\":[\"a\""), STATUS_OK);
    for (int i = 1; i < MANY; i++)
        ck_assert_int_eq(buf_append_text(&schema, ",\"a\""), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&schema, "]}"), STATUS_OK);
    ck_assert_int_eq(guard(schema.data, false, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "too many"));
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

/* An object with n members, which each have their number in their schema. */
static enum status guard_members(const char *form, int n, struct error *err)
{
    struct buf schema;
    enum status rc;

    buf_init(&schema, 1 << 20);
    ck_assert_int_eq(buf_append_text(&schema, "{\"properties\":{\"n\":{}"), STATUS_OK);
    for (int i = 1; i <= n; i++) {
        ck_assert_int_eq(buf_printf(&schema, ",\"n%d\":{\"type\":\"string\",", i), STATUS_OK);
        ck_assert_int_eq(buf_printf(&schema, form, i), STATUS_OK);
        ck_assert_int_eq(buf_append_text(&schema, "}"), STATUS_OK);
    }
    ck_assert_int_eq(buf_append_text(&schema, "}}"), STATUS_OK);
    rc = guard(schema.data, true, err);
    buf_deinit(&schema);
    return rc;
}

/* The work for a schema is bounded; what stands in many places is made once. */
START_TEST(test_work)
{
    static const struct {
        const char *form, *says; /* NULL: it is taken */
        int n;
    } rows[] = {
        {"\"format\":\"uri\",\"minLength\":1", NULL, 1000},
        {"\"pattern\":\"^[ab]*a[ab]{8}$\"", NULL, 1000},
        {"\"maxLength\":5000", NULL, 1000},
        {"\"maxLength\":%d000", NULL, 10},
        {"\"pattern\":\"^[ab]*a[ab]{8}c{%d}$\"", "'pattern' cannot be enforced: it needs", 1000},
        {"\"not\":{\"enum\":[\"%1$dx\",\"y%1$d\"]},\"format\":\"uri\"", "too much work", 1000},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = {0};
        const enum status rc = guard_members(rows[i].form, rows[i].n, &err);

        ck_assert_msg(rc == (rows[i].says == NULL ? STATUS_OK : STATUS_INVALID), "%s: %s",
                      rows[i].form, err.text);
        ck_assert_msg(rows[i].says == NULL || strstr(err.text, rows[i].says) != NULL, "%s: %s",
                      rows[i].form, err.text);
    }
}
END_TEST

/* Alternatives that may match one value are compared with each other, up to a number. */
START_TEST(test_alternatives)
{
    struct buf schema;
    struct error err;

    for (int n = 3; n <= 1000; n += 997) {
        buf_init(&schema, 1 << 20);
        ck_assert_int_eq(buf_append_text(&schema, "{\"oneOf\":[{\"const\":0}"), STATUS_OK);
        for (int i = 1; i < n; i++)
            ck_assert_int_eq(
                buf_printf(&schema, ",{\"type\":\"object\",\"properties\":{\"a\":{\"const\":%d}}}",
                           i),
                STATUS_OK);
        ck_assert_int_eq(buf_append_text(&schema, "]}"), STATUS_OK);
        ck_assert_int_eq(guard(schema.data, true, &err), n == 3 ? STATUS_OK : STATUS_INVALID);
        ck_assert_msg(n == 3 || strstr(err.text, "'oneOf' has too many alternatives") != NULL, "%s",
                      err.text);
        buf_deinit(&schema);
    }
}
END_TEST

/* Without memory a schema is refused as such, whichever allocation fails; of the thousands of a
 * long string, some are tried. */
START_TEST(test_no_memory)
{
    static const char *const rows[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^[ab]+$\","
        "\"maxLength\":3},\"b\":{\"enum\":[\"x\",1]}},\"patternProperties\":{\"^c\":{\"minimum\":1}"
        "},"
        "\"additionalProperties\":{\"type\":\"string\",\"format\":\"date\"}}",
        "{\"type\":\"string\",\"pattern\":\"^[a-z]{1,900}$\"}",
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (long n = 0, left = -1; left < 0; n += i == 1 ? 101 : 1) {
            struct error err;
            enum status rc;

            fault_after = n;
            rc = guard(rows[i], true, &err);
            left = fault_after;
            fault_after = -1;
            ck_assert_msg(rc == STATUS_OK || (left < 0 && rc == STATUS_EXHAUSTED), "%ld: %s", n,
                          err.text);
        }
}
END_TEST

SUITE_MAIN("guard", test_rules, test_same, test_linear, test_unenforced, test_wrong, test_reasons,
           test_bounds, test_work, test_alternatives, test_no_memory)
