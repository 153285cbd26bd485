/* Says of JSON texts whether a schema's grammar admits them, and draws texts that it admits. Reads
 * lines {"schema": "…", "texts": ["…", …], "n_drawn": 4, "seed": 1}; writes for each a line:
 * "refused " and why; or a 0 or 1 for each text, and behind a blank, where some are drawn, those as
 * a JSON list, with null for one that is not UTF-8. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/constraint.h"
#include "agents/lm/grammar/engine.h"
#include "agents/lm/grammar/module.h"
#include "tests/unit/agents/lm/grammar/byte_vocab.h"

static const struct grammar_module *module;
static void *vocab;

static bool admits(void *compiled, const json_t *text)
{
    bool is_spent;
    void *matcher = module->matcher_open(compiled, &is_spent);
    bool is_admitted =
        module->matcher_accept_text(matcher, json_string_value(text), json_string_length(text)) &&
        module->matcher_may_end(matcher);

    module->matcher_close(matcher);
    return is_admitted;
}

/* The bytes that are drawn most, so that texts end and are about what schemas ask for. */
static const char common[] = "\"\"\"]}]},:0123456789abAB -+./:\\nu";

enum { LONGEST_DRAWN = 300, LONGEST_TEXT = 1 << 16 };

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* One of the bytes in the mask; -1: there is none. */
static int draw_byte(const uint32_t *mask, uint32_t *state)
{
    const char *among = draw(state) % 4 > 0 ? common : NULL;
    const size_t n = among != NULL ? strlen(among) : 256;
    const size_t first = draw(state) % n;

    for (size_t i = 0; i < n; i++) {
        const size_t at = (first + i) % n;
        const unsigned byte = among != NULL ? (unsigned char)among[at] : (unsigned)at;

        if ((mask[byte / 32] >> byte % 32 & 1) != 0)
            return (int)byte;
    }
    for (int byte = 0; byte < 256; byte++) /* none of the common ones */
        if ((mask[byte / 32] >> byte % 32 & 1) != 0)
            return byte;
    return -1;
}

/* A text byte by byte, and from some length on the shortest way to its end. */
static json_t *draw_text(void *compiled, uint32_t *state)
{
    static char text[LONGEST_DRAWN + LONGEST_TEXT];
    const size_t longest = 1 + draw(state) % LONGEST_DRAWN;
    bool is_spent;
    void *matcher = module->matcher_open(compiled, &is_spent);
    size_t len = 0, n_ending = 0;

    while (len < longest) {
        uint32_t mask[(256 + 1 + 31) / 32] = {0};
        int byte;

        if (module->matcher_may_end(matcher) && draw(state) % 4 == 0)
            break;
        if (!module->matcher_mask(matcher, mask) || (byte = draw_byte(mask, state)) < 0 ||
            !module->matcher_accept(matcher, byte))
            break;
        module->matcher_renew(matcher);
        text[len++] = (char)byte;
    }
    if (!module->matcher_may_end(matcher))
        n_ending = module->matcher_ending(matcher, text + len, LONGEST_TEXT);
    module->matcher_close(matcher);
    return n_ending != SIZE_MAX ? json_stringn(text, len + n_ending) : NULL;
}

static void draw_texts(void *compiled, const json_t *line)
{
    uint32_t state = (uint32_t)json_integer_value(json_object_get(line, "seed"));
    json_t *texts = json_array();

    for (json_int_t i = json_integer_value(json_object_get(line, "n_drawn")); i > 0; i--) {
        json_t *text = draw_text(compiled, &state);

        (void)json_array_append_new(texts, text != NULL ? text : json_null());
    }
    putchar(' ');
    (void)json_dumpf(texts, stdout, JSON_COMPACT);
    json_decref(texts);
}

static void judge(const json_t *line)
{
    const json_t *texts = json_object_get(line, "texts"), *schema = json_object_get(line, "schema");
    const struct constraint *c;
    const char *left_out;
    char why[200] = "";
    struct arena arena;
    struct error err;
    bool no_memory;
    void *compiled;

    arena_init(&arena, 16 << 20);
    if (constraint_of_schema_text(&c, json_string_value(schema), json_string_length(schema), true,
                                  &left_out, &arena, &err) != STATUS_OK) {
        printf("refused %s\n", err.text);
    } else if ((compiled = module->compile(vocab, c->form, c->text, c->len, &no_memory, why,
                                           sizeof(why))) == NULL) {
        printf("refused by the engine: %s\n", why);
    } else {
        for (size_t i = 0; i < json_array_size(texts); i++)
            putchar(admits(compiled, json_array_get(texts, i)) ? '1' : '0');
        if (json_object_get(line, "n_drawn") != NULL)
            draw_texts(compiled, line);
        putchar('\n');
        module->compiled_close(compiled);
    }
    (void)fflush(stdout);
    arena_deinit(&arena);
}

int main(void)
{
    struct error err;
    char *line = NULL;
    size_t cap = 0;

    if (engine_load(&module, &err) != STATUS_OK) {
        printf("%s\n", err.text);
        return 77;
    }
    vocab = byte_vocab_open(module);
    while (getline(&line, &cap, stdin) > 0) {
        json_t *read = json_loads(line, JSON_ALLOW_NUL, NULL);

        if (read == NULL)
            abort();
        judge(read);
        json_decref(read);
    }
    free(line);
    module->vocab_close(vocab);
    return 0;
}
