/* Says of JSON texts whether a schema's grammar admits them. Reads lines {"schema": "…", "texts":
 * ["…", …]}; writes for each a line: "refused " and why, or a 0 or 1 for each text. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

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
