/* Masks of tokens of many bytes. The engine's compiler finds them by ways of its own for automata
 * (plain_walk.h, state_classes.h) and repetitions (repeated_rule.h); what a mask says must be what
 * the parser does with the token. */
#include "agents/lm/grammar/module.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/constraint/constraint.h"
#include "agents/lm/grammar/engine.h"
#include "tests/unit/base/suite.h"

enum { MAX_TOKENS = 1200, MAX_BYTES = 72, N_STEPS = 24 };

static const struct grammar_module *module;
static char tokens[MAX_TOKENS][MAX_BYTES];
static const char *texts[MAX_TOKENS];
static size_t lens[MAX_TOKENS], n_tokens;

static void token_add(const char *bytes, size_t len)
{
    ck_assert(n_tokens < MAX_TOKENS && len < MAX_BYTES);
    memcpy(tokens[n_tokens], bytes, len);
    texts[n_tokens] = tokens[n_tokens];
    lens[n_tokens++] = len;
}

/* Each byte; all texts of up to three of some bytes; long ones. The end is the last. */
static void tokens_make(void)
{
    static const char some[] = {'a', 'b', '"', ',', ' ', ':', '\\', (char)0xC3, (char)0xA9};
    enum { N_SOME = sizeof(some) };
    char bytes[MAX_BYTES];

    for (int i = 0; i < 256; i++) {
        bytes[0] = (char)i;
        token_add(bytes, 1);
    }
    for (size_t i = 0; i < N_SOME * N_SOME * (N_SOME + 1); i++) {
        bytes[0] = some[i % N_SOME];
        bytes[1] = some[i / N_SOME % N_SOME];
        if (i >= N_SOME * N_SOME)
            bytes[2] = some[i / N_SOME / N_SOME - 1];
        token_add(bytes, i >= N_SOME * N_SOME ? 3 : 2);
    }
    for (size_t len = 4; len < MAX_BYTES; len += 9) {
        memset(bytes, 'a', len);
        token_add(bytes, len);
        bytes[len - 1] = '"';
        token_add(bytes, len);
    }
    token_add("", 0);
}

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Compares the mask with the parser for each token. *ret_id: one that may come, drawn; the end only
 * where nothing else may. */
static void compare(void *matcher, const char *schema, uint32_t *state, int32_t *ret_id)
{
    uint32_t mask[(MAX_TOKENS + 31) / 32] = {0};
    int32_t may[MAX_TOKENS];
    size_t n_may = 0;

    ck_assert_msg(module->matcher_mask(matcher, mask), "%s", schema);
    for (size_t i = 0; i + 1 < n_tokens; i++) {
        const bool is_allowed = (mask[i / 32] >> i % 32 & 1) != 0,
                   is_taken = module->matcher_accept(matcher, (int32_t)i);

        ck_assert_msg(is_allowed == is_taken, "%s: '%.*s' is %s, the mask says %s", schema,
                      (int)lens[i], texts[i], is_taken ? "taken" : "refused",
                      is_allowed ? "taken" : "refused");
        if (is_taken) {
            module->matcher_take_back(matcher, 1);
            may[n_may++] = (int32_t)i;
        }
        module->matcher_renew(matcher);
    }
    *ret_id = n_may > 0 ? may[draw(state) % n_may] : -1;
}

/* Of a schema, or of a grammar in GBNF. */
static void *compiled_of(void *vocab, const char *text)
{
    const struct constraint *c;
    const char *left_out;
    char why[160] = "";
    struct arena arena;
    struct error err;
    bool no_memory;
    enum status rc;
    void *compiled;

    arena_init(&arena, 1 << 22);
    rc = text[0] == '{'
             ? constraint_of_schema_text(&c, text, strlen(text), true, &left_out, &arena, &err)
             : constraint_of_grammar(&c, text, strlen(text), &arena, &err);
    ck_assert_msg(rc == STATUS_OK, "%s: %s", text, err.text);
    compiled = module->compile(vocab, c->form, c->text, c->len, &no_memory, why, sizeof(why));
    ck_assert_msg(compiled != NULL, "%s: %s", text, why);
    arena_deinit(&arena);
    return compiled;
}

static void *tokens_open(void)
{
    const int32_t end = (int32_t)n_tokens - 1;
    char why[160] = "";
    void *vocab = module->vocab_open(texts, lens, n_tokens, &end, 1, why, sizeof(why));

    ck_assert_msg(vocab != NULL, "%s", why);
    return vocab;
}

/* A string's text, in groups and in rules of their own: what may follow its characters. */
#define ESCAPES "(\"\\\\\" ([\"\\ab] | \":\" [a-c]))"
static const char *const repetitions[] = {
    "root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"\\ab])* \"\\\"\"",
    "root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | " ESCAPES ")* \"\\\"\"",
    "root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | " ESCAPES ")+ \"\\\"\"",
    "root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | " ESCAPES "){0,} \"\\\"\"",
    "root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | " ESCAPES "){1,} \"\\\"\"",
    "root ::= \"\\\"\" char* \"\\\"\"\n"
    "char ::= plain | escape\nplain ::= [^\"\\\\\\x00-\\x1F]\nescape ::= " ESCAPES,
};

START_TEST(test_masks)
{
    static char many[8192];
    const char *const schemas[] = {
        "{\"type\":\"string\"}",
        "{\"type\":\"string\",\"maxLength\":100}",
        "{\"type\":\"string\",\"maxLength\":300}",
        "{\"type\":\"string\",\"pattern\":\"\\\\S\",\"maxLength\":600}",
        "{\"type\":\"string\",\"minLength\":70,\"maxLength\":270}",
        "{\"type\":\"string\",\"minLength\":200}",
        "{\"type\":\"string\",\"pattern\":\"^[ab]{0,290}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^a[ab]*b$\",\"maxLength\":90}",
        "{\"enum\":[\"a\",\"ab\",\"aab\",\"b\\u00e9\",1,[\"a\",\"b\"]]}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3}}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"ab\":{\"enum\":[\"a\","
        "\"b\"]}},\"additionalProperties\":{\"type\":\"string\"}}",
        many,
    };
    enum { N_SCHEMAS = sizeof(schemas) / sizeof(schemas[0]) };
    size_t len = (size_t)snprintf(many, sizeof(many), "{\"type\":\"object\",\"properties\":{");
    void *vocab = tokens_open();

    for (int i = 0; i < 80; i++)
        len +=
            (size_t)snprintf(many + len, sizeof(many) - len, "%s\"%c%c%d\":{\"type\":\"string\"}",
                             i > 0 ? "," : "", 'a' + i % 11, 'a' + i % 3, i);
    ck_assert_uint_lt(len + 3, sizeof(many));
    memcpy(many + len, "}}", 3);
    for (size_t i = 0; i < N_SCHEMAS + sizeof(repetitions) / sizeof(repetitions[0]); i++) {
        const char *text = i < N_SCHEMAS ? schemas[i] : repetitions[i - N_SCHEMAS];
        void *compiled = compiled_of(vocab, text);

        for (uint32_t seed = 1; seed < 3; seed++) {
            bool is_spent;
            void *matcher = module->matcher_open(compiled, &is_spent);
            uint32_t state = seed;
            int32_t id = 0;

            for (int step = 0; step < N_STEPS && id >= 0; step++) {
                compare(matcher, text, &state, &id);
                ck_assert(id < 0 || module->matcher_accept(matcher, id));
            }
            module->matcher_close(matcher);
        }
        module->compiled_close(compiled);
    }
    module->vocab_close(vocab);
}
END_TEST

/* Where a character is repeated, the parser looks only at tokens with a quote: the work for one
 * token is enough for 2,234 masks. If it looked at all tokens, it would be enough for 569. */
START_TEST(test_repetitions)
{
    enum { N_MASKS = 2000 };
    void *vocab = tokens_open();

    for (size_t i = 0; i < sizeof(repetitions) / sizeof(repetitions[0]); i++) {
        void *compiled = compiled_of(vocab, repetitions[i]);
        uint32_t mask[(MAX_TOKENS + 31) / 32];
        bool is_spent;
        void *matcher = module->matcher_open(compiled, &is_spent);
        int n = 0;

        ck_assert(matcher != NULL && module->matcher_accept_text(matcher, "\"aa", 3));
        module->matcher_renew(matcher);
        while (n < N_MASKS && module->matcher_mask(matcher, mask))
            n++;
        ck_assert_msg(n == N_MASKS, "%s: %d masks", repetitions[i], n);
        module->matcher_close(matcher);
        module->compiled_close(compiled);
    }
    module->vocab_close(vocab);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_masks, test_repetitions};
    const char *path = getenv("PARLEY_GRAMMAR_MODULE");
    struct error err;

    if (path == NULL || access(path, R_OK) != 0) {
        printf("the grammar module is not built\n");
        return 77;
    }
    if (engine_load(&module, &err) != STATUS_OK) {
        printf("%s\n", err.text);
        return EXIT_FAILURE;
    }
    tokens_make();
    return suite_run("masks", tests, sizeof(tests) / sizeof(tests[0]));
}
