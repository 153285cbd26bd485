#include "agents/lm/grammar/module.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/constraint/constraint.h"
#include "agents/lm/grammar/engine.h"
#include "base/buf.h"
#include "tests/unit/agents/lm/grammar/byte_vocab.h"
#include "tests/unit/base/suite.h"

enum { N_IDS = 257, N_WORDS = (N_IDS + 31) / 32, FORCED_CAP = 256 };

static const struct grammar_module *module;
static void *vocab;

static void *compiled_of(int form, const char *text, char *why, size_t why_bytes)
{
    const struct constraint given = {(enum constraint_form)form, text, strlen(text)}, *c = &given;
    bool no_memory = true;
    const char *left_out;
    struct arena arena;
    struct error err;
    void *compiled;

    arena_init(&arena, 1 << 22);
    if (form == CONSTRAINT_SCHEMA)
        ck_assert_msg(constraint_of_schema_text(&c, text, strlen(text), true, &left_out, &arena,
                                                &err) == STATUS_OK,
                      "%s", err.text);
    compiled = module->compile(vocab, form, c->text, c->len, &no_memory, why, why_bytes);
    ck_assert(!no_memory);
    arena_deinit(&arena);
    return compiled;
}

static void *compiled_well(int form, const char *text)
{
    char why[160] = "";
    void *compiled = compiled_of(form, text, why, sizeof(why));

    ck_assert_msg(compiled != NULL, "%s: %s", text, why);
    return compiled;
}

/* head, then n lines that fmt makes of i and i + 1, then tail. */
static char *repeated(const char *head, const char *fmt, int n, const char *tail)
{
    struct buf b;

    buf_init(&b, SIZE_MAX);
    ck_assert_int_eq(buf_append_text(&b, head), STATUS_OK);
    for (int i = 0; i < n; i++) {
        char line[200];

        (void)snprintf(line, sizeof(line), fmt, i, i + 1, i + 1); /* may take fewer */
        ck_assert_int_eq(buf_append_text(&b, line), STATUS_OK);
    }
    ck_assert_int_eq(buf_append_text(&b, tail), STATUS_OK);
    return b.data;
}

/* What has no finite reply, or none that fits anywhere, is refused and says so; whatever else the
 * rules say is not looked into. */
START_TEST(test_finite)
{
    static const struct {
        int form;
        const char *text, *why; /* "": it compiles */
    } rows[] = {
        {CONSTRAINT_EBNF, "root ::= \"a\" root", "no reply is finite"},
        {CONSTRAINT_EBNF, "root ::= root \"a\"", "no reply is finite"},
        {CONSTRAINT_EBNF, "root ::= x\nx ::= y \"b\"\ny ::= \"c\" x | \"d\" y",
         "no reply is finite"},
        {CONSTRAINT_EBNF, "root ::= x{2,3}\nx ::= \"a\" x", "no reply is finite"},
        {CONSTRAINT_EBNF, "root ::= x\nx ::= x{1,3}", "the rule 'x' repeats itself alone"},
        {CONSTRAINT_EBNF, "root ::= \"a\" | g-x\ng-x ::= (g-y){2}\ng-y ::= g-x{0,200}",
         "the rule 'x' repeats itself alone"},
        {CONSTRAINT_EBNF, "root ::= root{0,3}", "the rule 'root' repeats itself alone"},
        {CONSTRAINT_EBNF, "root ::= x\nx ::= x{1,3} | \"a\"", ""},
        {CONSTRAINT_EBNF, "root ::= ((\"a\"{1,2}){1,2}){1,2}", ""},
        {CONSTRAINT_EBNF, "root ::= \"a\" root | \"b\"", ""},
        {CONSTRAINT_EBNF, "root ::= root \"a\" | \"b\"", ""},
        {CONSTRAINT_EBNF, "root ::= x{0,3} \"b\"\nx ::= \"a\" x", ""},
        {CONSTRAINT_EBNF, "root ::= x | \"b\"\nx ::= \"a\" x", ""},
        {CONSTRAINT_EBNF, "root ::= \"\"", ""},
        {CONSTRAINT_SCHEMA, "{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#\"}}",
         "no reply is finite"},
        {CONSTRAINT_SCHEMA, "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", ""},
        {CONSTRAINT_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         "no reply is finite"},
        {CONSTRAINT_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":"
         "\"null\"}]}},\"required\":[\"a\"]}",
         ""},
        {CONSTRAINT_REGEX, "(ab)*c", ""},
    };
    char *doubled[2] = {
        repeated("root ::= r0\n", "r%d ::= r%d r%d\n", 30, "r30 ::= \"a\"\n"),
        repeated("root ::= r0\n", "r%d ::= r%d r%d\n", 90, "r90 ::= \"a\"\n"),
    };
    char why[160] = "";

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *compiled = compiled_of(rows[i].form, rows[i].text, why, sizeof(why));

        ck_assert_msg((compiled != NULL) == (rows[i].why[0] == '\0'), "%s: %s", rows[i].text, why);
        ck_assert_msg(compiled != NULL || strstr(why, rows[i].why) != NULL, "%s: %s", rows[i].text,
                      why);
        if (compiled != NULL)
            module->compiled_close(compiled);
    }
    ck_assert_ptr_null(compiled_of(CONSTRAINT_EBNF, doubled[0], why, sizeof(why)));
    ck_assert_str_eq(why, "its shortest reply has 1073741824 bytes, it may have at most 1048576");
    ck_assert_ptr_null(compiled_of(CONSTRAINT_EBNF, doubled[1], why, sizeof(why)));
    ck_assert_msg(strstr(why, "more than 10^19 bytes") != NULL, "%s", why);
    free(doubled[0]);
    free(doubled[1]);
}
END_TEST

/* Forced text comes in pieces, however long it is. */
START_TEST(test_pieces)
{
    enum { N = 20000 };
    char *text = repeated("root ::= \"", "ab", N / 2, "\""), piece[FORCED_CAP];
    void *compiled = compiled_well(CONSTRAINT_EBNF, text);
    size_t n = 0, len;
    bool is_spent;
    void *matcher = module->matcher_open(compiled, &is_spent);

    ck_assert_ptr_nonnull(matcher);
    do {
        module->matcher_renew(matcher);
        len = module->matcher_forced(matcher, piece, sizeof(piece));
        ck_assert(len == sizeof(piece) || n + len == N);
        ck_assert(len == 0 || module->matcher_accept_text(matcher, piece, len));
        n += len;
    } while (len > 0);
    ck_assert_uint_eq(n, N);
    ck_assert(module->matcher_may_end(matcher));
    module->matcher_close(matcher);
    module->compiled_close(compiled);
    free(text);
}
END_TEST

/* Where each byte can be read in more ways than the one before, the matcher stops, and says why. */
START_TEST(test_ambiguous)
{
    void *compiled = compiled_well(CONSTRAINT_EBNF, "root ::= \"\" | \"a\" | root root");
    bool is_spent;
    void *matcher = module->matcher_open(compiled, &is_spent);
    uint32_t mask[N_WORDS];
    size_t n = 0;

    ck_assert(matcher != NULL && !is_spent);
    do
        module->matcher_renew(matcher);
    while (module->matcher_accept(matcher, 'a') && ++n < 100000);
    ck_assert(n > 100 && n < 100000);
    ck_assert(module->matcher_is_spent(matcher));
    module->matcher_renew(matcher);
    ck_assert(!module->matcher_mask(matcher, mask));
    ck_assert(!module->matcher_accept(matcher, 'a'));
    ck_assert(!module->matcher_may_end(matcher));
    ck_assert_uint_eq(module->matcher_forced(matcher, (char *)mask, sizeof(mask)), 0);
    module->matcher_take_back(matcher, 1);
    module->matcher_close(matcher);
    module->compiled_close(compiled);
}
END_TEST

/* Whether the grammar has the text as one of its own. */
static bool has_text(int form, const char *grammar, const char *text)
{
    void *compiled = compiled_well(form, grammar);
    bool is_spent, has;
    void *matcher = module->matcher_open(compiled, &is_spent);

    ck_assert_ptr_nonnull(matcher);
    has = true;
    for (; has && *text != '\0'; text++) {
        module->matcher_renew(matcher);
        has = module->matcher_accept(matcher, (unsigned char)*text);
    }
    has = has && module->matcher_may_end(matcher);
    module->matcher_close(matcher);
    module->compiled_close(compiled);
    return has;
}

static const char json_gbnf[] =
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n\n"
    "object ::=\n"
    "  \"{\" ws (\n"
    "            string \":\" ws value\n"
    "    (\",\" ws string \":\" ws value)*\n"
    "  )? \"}\" ws\n\n"
    "array  ::=\n"
    "  \"[\" ws (\n"
    "            value\n"
    "    (\",\" ws value)*\n"
    "  )? \"]\" ws\n\n"
    "string ::=\n"
    "  \"\\\"\" (\n"
    "    [^\"\\\\\\x7F\\x00-\\x1F] |\n"
    "    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) # escapes\n"
    "  )* \"\\\"\" ws\n\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
    "[1-9]{0,15})? ws\n\n"
    "# Optional space: by convention, applied in this grammar after literal chars when allowed\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

/* A grammar in GBNF has the texts that llama-server would admit, and no others: llama.cpp's own
 * json.gbnf, and each element whose form or meaning is not the engine's. */
START_TEST(test_gbnf)
{
    static const struct {
        const char *grammar;
        const char *has[4], *lacks[4];
    } rows[] = {
        {json_gbnf,
         {"{}", "{\"a\": [1, -2.5e-3, \"\\u00e9 \xc3\xa9\"],\n\t\"b\":{ }}\n", "{\"\": null }"},
         {"[]", "{\"a\": 1,}", "{\"a\": \"\x01\"}", "{\"a\": \"\x7f\"}"}},
        {"root ::= | \"a\" | ", {"", "a"}, {"b", "aa"}},
        {"root ::= .", {"a", "\n", "\xf0\x9f\x98\x80", "\xef\xbf\xbd"}, {"", "ab", "\xed\xa0\x80"}},
        {"root ::= \"a\"{,3} \"b\"{2} \"c\"{1,}", {"bbc", "aaabbccc"}, {"aaaabbc", "abc", "abb"}},
        {"root ::= (true | 1-x)+ [^a-c\\x00-\\u00ff]\ntrue ::= \"\\x41\\u00e9\\t\"\n1-x ::= \"#\" "
         "# |",
         {"#\xf0\x9f\x98\x80", "A\xc3\xa9\t#\xe2\x82\xac"},
         {"#a", "\xe2\x82\xac", "#\xc3\xa9"}},
        {"root ::= \"a\"\n  \"b\" |\n\n  Token\nToken ::= \"<think>\"", {"ab", "<think>"}, {"a"}},
    };
    struct arena arena;

    arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct constraint *c;
        struct error err;

        ck_assert_msg(constraint_of_grammar(&c, rows[i].grammar, strlen(rows[i].grammar), &arena,
                                            &err) == STATUS_OK,
                      "%s", err.text);
        for (size_t k = 0; k < 4 && rows[i].has[k] != NULL; k++)
            ck_assert_msg(has_text(c->form, c->text, rows[i].has[k]), "%s\n%s", c->text,
                          rows[i].has[k]);
        for (size_t k = 0; k < 4 && rows[i].lacks[k] != NULL; k++)
            ck_assert_msg(!has_text(c->form, c->text, rows[i].lacks[k]), "%s\n%s", c->text,
                          rows[i].lacks[k]);
    }
    arena_deinit(&arena);
}
END_TEST

#define A20 "aaaaaaaaaaaaaaaaaaaa"
#define A100 A20 A20 A20 A20 A20

/* A schema's grammar has no text that is not an instance: each row was one that had. */
START_TEST(test_schemas)
{
    static const struct {
        const char *schema, *has, *lacks;
    } rows[] = {
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",\"b\"],\"not\":{"
         "\"const\":\"a\"}}}",
         "[\"b\"]", "[\"a\"]"},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"$ref\":\"#/$defs/x\",\"maxLength\":"
         "1},\"$defs\":{\"x\":{\"enum\":[\"a\",\"bb\"]}}}",
         "[\"a\"]", "[\"bb\"]"},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,1.0,2]}}", "[1, 2]",
         "[1, 1]"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"number\"},{\"type\":\"string\"}],"
         "\"items\":false,\"contains\":{\"not\":{\"type\":\"integer\"}},\"maxContains\":1}",
         "[1, \"a\"]", "[1.5, \"a\"]"},
        {"{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/x\"},"
         "\"additionalProperties\":{\"type\":\"null\"},\"$defs\":{\"x\":{\"$ref\":\"#/$defs/y\","
         "\"maxLength\":1},\"y\":{\"type\":\"string\"}}}",
         "{\"a\": null}", "{\"ab\": null}"},
        {"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"pattern\":\"^a\"},{\"const\":\"b\"}"
         "]},"
         "\"additionalProperties\":{\"type\":\"null\"}}",
         "{\"ab\": null, \"b\": null}", "{\"ba\": null}"},
        {"{\"type\":\"object\",\"additionalProperties\":false,\"patternProperties\":{\"^a\":{"
         "\"type\":\"null\"},"
         "\"^b\":{\"type\":\"integer\"},\"^c\":{},\"^d\":{},\"^e\":{},\"^f\":{},\"x$\":{"
         "\"maximum\":1}}}",
         "{\"ax\": null, \"bx\": 1, \"x\": 1, \"b\": 2}", "{\"bx\": 2}"},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"patternProperties\":{"
         "\"^(?!ab$)a\":{\"type\":\"integer\"}}}",
         "{\"ac\": 1, \"ab\": null}", "{\"ac\": null}"},
        {"{\"type\":\"string\",\"pattern\":\"^b\",\"maxLength\":601}",
         "\"b" A100 A100 A100 A100 A100 "\"", "\"b" A100 A100 A100 A100 A100 A100 "a\""},
        {"{\"type\":\"string\",\"pattern\":\"\\\\S\",\"minLength\":4,\"maxLength\":600}",
         "\"   \xc3\xa9  " A100 A100 "\"", "\"    \""},
        {"{\"type\":\"string\",\"pattern\":\"\\\\S\",\"minLength\":4,\"maxLength\":600}",
         "\"   a\"", "\"  a\""},
        {"{\"type\":\"string\",\"pattern\":\"^(en|x[a-c]*)$\",\"maxLength\":600}", "\"en\"",
         "\"enb\""},
        {"{\"oneOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"properties\":{\"b\":{}},"
         "\"required\":[\"b\"]}]}",
         "{\"a\": 1}", "5"},
        {"{\"oneOf\":[{\"type\":[\"object\",\"number\"],\"properties\":{\"a\":{}},\"required\":["
         "\"a\"]},{\"type\":[\"object\",\"integer\"],\"properties\":{\"b\":{}},\"required\":[\"b\"]"
         "}]}",
         "{\"b\": 1}", "5"},
        {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{"
         "\"properties\":{\"b\":{}},\"required\":[\"b\"]}]}",
         "{\"b\": 1}", "{\"a\": 1, \"b\": 1}"},
        {"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"a\":{\"$id\":\"#\","
         "\"type\":\"string\"},\"b\":{\"$ref\":\"#\"}}}",
         "{\"b\": {\"a\": \"s\"}}", "{\"b\": \"s\"}"},
        {"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"a\":{\"$anchor\":"
         "\"\",\"type\":\"string\"},\"b\":{\"$ref\":\"#\"}}}",
         "{\"b\": {\"a\": \"s\"}}", "{\"b\": \"s\"}"},
        {"{\"type\":\"string\",\"pattern\":\"\\\\S\",\"minLength\":20,\"maxLength\":600}",
         "\"" A20 A20 "\"", "\"aaaaaaaaaaaaaaaaaaa\""},
        {"{\"type\":\"string\",\"pattern\":\"\\\\S\",\"minLength\":32,\"maxLength\":2000}",
         "\"" A100 A100 A100 A100 "\"", "\"aaaaaaaaaaa" A20 "\""},
        {"{\"type\":\"string\",\"pattern\":\"\\\\?\",\"maxLength\":600}", "\"" A100 "?" A100 "\"",
         "\"" A100 "\""},
        {"{\"type\":\"string\",\"pattern\":\"^(a[a-z]*|b[0-9]*)$\",\"maxLength\":600}",
         "\"b01234567890123456789\"", "\"b0a\""},
        /* automata that would be too large: the pattern matches the whole text */
        {"{\"type\":\"string\",\"maxLength\":256,\"pattern\":\"arn:aws(-[\\\\w]+)*:.+:.+:[0-9]{12}:"
         ".+\"}",
         "\"arn:aws:a:b:123456789012:c\"", "\"arn:aws:a:b:123456789012:\""},
        {"{\"type\":\"string\",\"maxLength\":2048,\"pattern\":\"^arn:.{16,2044}$\"}",
         "\"arn:" A20 A20 "\"", "\"arn:aaaaaaaaaaaaaaa\""},
        {"{\"type\":\"string\",\"pattern\":\"^(?!arn:a{1,60}$)arn:.{16,2044}$\"}",
         "\"arn:b" A20 "\"", "\"arn:" A20 A20 "\""},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\",\"pattern\":"
         "\"^arn:.{16,2044}$\"}}",
         "[\"arn:" A20 "\"]", "[\"arn:" A20 "\", \"arn:" A20 "\"]"},
        {"{\"type\":\"string\",\"maxLength\":600,\"allOf\":[{\"pattern\":\"a.{14}$\"},"
         "{\"pattern\":\"^a[a-z]*$\"}]}",
         "\"aaaaaaaaaaaaaaa\"", "\"ab\""},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"contains\":{\"const\":1}}", "[1]", "[1, 2]"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":16}", "16.0000000000001",
         "16.00000000000000001"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0.1}", "0.11", "0.1"},
        /* the same double as the bound */
        {"{\"type\":\"number\",\"exclusiveMaximum\":3.141592653589793}", "3.14159265358979",
         "3.1415926535897929"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0.30000000000000004}", "0.300000000000001",
         "0.300000000000000041"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":9199689415.61498}", "9199689415.61499",
         "9199689415.614981"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":9007199254740992}", "9007199254740994",
         "9007199254740992.1"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":9007199254740992,\"multipleOf\":0.5}",
         "9007199254740994", "9007199254740992.5"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":1e-15,\"maximum\":5e-15}", "0.0000000000000011",
         "0.000000000000001000000000000000001"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1e-15}", "0.000000000000001",
         "0"},
        /* an integer that is read as a rounded number */
        {"{\"type\":\"integer\",\"maximum\":9999999999999999999}", "9223372036854775807",
         "10000000000000000000"},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":-9223372036854775809}", "-9223372036854775807",
         "-9223372036854775809"},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":-9223372036854775808.0}",
         "-9223372036854775807", "-9223372036854775808"},
        {"{\"type\":\"string\",\"format\":\"date\"}", "\"0400-02-29\"", "\"0000-02-29\""},
        {"{\"type\":\"string\",\"format\":\"date\"}", "\"0001-01-01\"", "\"0000-01-01\""},
        {"{\"type\":\"string\",\"format\":\"regex\"}", "\"^(a|[^0-9_]+)*\\\\.b{2}$\"", "\"(a\""},
        {"{\"type\":\"string\",\"format\":\"idn-hostname\"}", "\"a.example\"", "\"xn--a\""},
        {"{\"type\":\"string\",\"format\":\"idn-email\"}", "\"a@b.example\"", "\"a@\""},
        {"{\"type\":\"string\",\"format\":\"hostname\"}", "\"a--b.c\"", "\"a.bc--d\""},
        {"{\"type\":\"string\",\"format\":\"iri\"}", "\"urn:x:y\"", "\"a/b\""},
        {"{\"type\":\"string\",\"format\":\"iri-reference\"}", "\"a/b\"", "\"a b\""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_msg(has_text(CONSTRAINT_SCHEMA, rows[i].schema, rows[i].has), "%s\n%s",
                      rows[i].schema, rows[i].has);
        ck_assert_msg(!has_text(CONSTRAINT_SCHEMA, rows[i].schema, rows[i].lacks), "%s\n%s",
                      rows[i].schema, rows[i].lacks);
    }
}
END_TEST

/* --- as bytes --- */

static bool put(void *arg, const char *bytes, size_t len)
{
    return buf_append(arg, bytes, len) == STATUS_OK;
}

static void save(const void *compiled, struct buf *out)
{
    char why[160] = "";

    buf_init(out, SIZE_MAX);
    ck_assert_msg(module->compiled_save(compiled, put, out, why, sizeof(why)), "%s", why);
}

/* One of the tokens that may come, by chance; -1: none. */
static int32_t any_of(const uint32_t *mask, unsigned *seed)
{
    int32_t first;

    *seed = *seed * 1103515245u + 12345u;
    first = (int32_t)(*seed >> 16) % N_IDS;
    for (int32_t i = 0; i < N_IDS; i++) {
        const int32_t id = (first + i) % N_IDS;

        if ((mask[id / 32] >> id % 32 & 1) != 0)
            return id;
    }
    return -1;
}

/* Both allow the same at each place of a reply by chance. */
static void check_same(void *a, void *b, unsigned seed)
{
    uint32_t masks[2][N_WORDS];
    char forced[2][FORCED_CAP];
    bool is_spent;
    void *matchers[2] = {module->matcher_open(a, &is_spent), module->matcher_open(b, &is_spent)};

    for (int n = 0; n < 200; n++) {
        bool may[2];
        int32_t id;

        for (int i = 0; i < 2; i++) {
            module->matcher_renew(matchers[i]);
            memset(forced[i], 0, sizeof(forced[i]));
            (void)module->matcher_forced(matchers[i], forced[i], sizeof(forced[i]));
            may[i] = module->matcher_mask(matchers[i], masks[i]);
        }
        ck_assert(may[0] == may[1]);
        ck_assert(memcmp(forced[0], forced[1], sizeof(forced[0])) == 0);
        ck_assert(!may[0] || memcmp(masks[0], masks[1], sizeof(masks[0])) == 0);
        id = may[0] ? any_of(masks[0], &seed) : -1;
        if (id < 0)
            break;
        for (int i = 0; i < 2; i++)
            ck_assert(module->matcher_accept(matchers[i], id));
    }
    module->matcher_close(matchers[0]);
    module->matcher_close(matchers[1]);
}

/* Goes on as far as the matcher does. */
static void follow(void *compiled, unsigned seed)
{
    uint32_t mask[N_WORDS];
    char forced[FORCED_CAP];
    bool is_spent;
    void *matcher = module->matcher_open(compiled, &is_spent);
    int32_t id = 0;

    for (int n = 0; matcher != NULL && id >= 0 && n < 100; n++) {
        module->matcher_renew(matcher);
        (void)module->matcher_forced(matcher, forced, sizeof(forced));
        id = module->matcher_mask(matcher, mask) ? any_of(mask, &seed) : -1;
        if (id >= 0 && !module->matcher_accept(matcher, id))
            id = -1; /* the mask was wrong */
    }
    module->matcher_close(matcher);
}

/* What was saved and loaded allows what the original does, bit for bit. */
START_TEST(test_bytes)
{
    static const struct {
        int form;
        const char *text;
    } rows[] = {
        {CONSTRAINT_SCHEMA, "{\"type\":\"object\"}"},
        {CONSTRAINT_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
         "\"of\":{\"enum\":[\"one\",\"two\"]},\"n\":{\"type\":\"integer\",\"minimum\":3},\"all\":"
         "{\"type\":\"array\",\"items\":{\"type\":\"number\"},\"maxItems\":3}},\"required\":"
         "[\"name\",\"all\"]}"},
        {CONSTRAINT_SCHEMA, "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}"},
        {CONSTRAINT_REGEX, "[a-c]{2,9}(x|yz)*\\d"},
        {CONSTRAINT_EBNF, "root ::= \"a\" (x | y){2,5}\nx ::= [a-z] x | \"1\"\ny ::= \"\xc3\xa9\""},
        {CONSTRAINT_TAGS,
         "{\"type\":\"structural_tag\",\"format\":{\"type\":\"triggered_tags\",\"triggers\":"
         "[\"<c>\"],\"tags\":[{\"type\":\"tag\",\"begin\":\"<c>{\",\"end\":\"}</c>\",\"content\":"
         "{\"type\":\"grammar\",\"grammar\":\"root ::= Regex(\\\"*@61620,63631,;!\\\")\"}}]}}"},
    };
    char why[160] = "";

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *compiled = compiled_well(rows[i].form, rows[i].text), *loaded;
        struct buf b;

        save(compiled, &b);
        loaded = module->compiled_load(vocab, b.data, b.len, why, sizeof(why));
        ck_assert_msg(loaded != NULL, "%s: %s", rows[i].text, why);
        for (unsigned seed = 1; seed < 20; seed++)
            check_same(compiled, loaded, seed);
        module->compiled_close(loaded);
        module->compiled_close(compiled);
        buf_deinit(&b);
    }
}
END_TEST

/* Bytes that are cut, or of which one is another, are refused, or are a constraint that can be
 * followed to some end. */
START_TEST(test_wrong_bytes)
{
    void *compiled =
        compiled_well(CONSTRAINT_EBNF, "root ::= \"a\" (x | y){2,5}\nx ::= [a-z] x | \"1\"\n"
                                       "y ::= \"b\" root | \"\"");
    char why[160] = "";
    struct buf b;
    size_t n_loaded = 0;

    save(compiled, &b);
    for (size_t len = 0; len < b.len; len += 3)
        ck_assert_ptr_null(module->compiled_load(vocab, b.data, len, why, sizeof(why)));
    for (size_t i = 0; i < b.len; i += i < 512 ? 1 : 5)
        for (int bit = 0; bit < 8; bit += 7) {
            void *loaded;

            b.data[i] = (char)(b.data[i] ^ 1 << bit);
            loaded = module->compiled_load(vocab, b.data, b.len, why, sizeof(why));
            if (loaded != NULL) {
                n_loaded++;
                follow(loaded, (unsigned)i);
                module->compiled_close(loaded);
            }
            b.data[i] = (char)(b.data[i] ^ 1 << bit);
        }
    ck_assert_uint_gt(n_loaded, 0);
    ck_assert_uint_lt(n_loaded, 2 * b.len);
    module->compiled_close(compiled);
    buf_deinit(&b);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_finite,  test_pieces, test_ambiguous,  test_gbnf,
                                  test_schemas, test_bytes,  test_wrong_bytes};
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
    failed = suite_run("module", tests, sizeof(tests) / sizeof(tests[0]));
    module->vocab_close(vocab);
    return failed;
}
