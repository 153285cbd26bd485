/* What it costs to compile schemas, with the vocabulary of a model: processor time of the compiler
 * of schemas and of the engine; and how few tokens a reply can have. Reads lines {"name": "…",
 * "schema": …}; writes for each a line of JSON.
 *
 * usage: bench_schemas MODEL.gguf <SCHEMAS */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "agents/constraint/constraint.h"
#include "agents/lm/grammar/grammars.h"
#include "agents/lm/grammar/matcher.h"
#include "agents/lm/tokenizer/vocab.h"
#include "base/arena.h"
#include "compute/gguf/gguf.h"

static void not_called(struct grammar_waiter *w, struct grammar *g, const struct error *err)
{
    (void)w;
    (void)g;
    (void)err;
    abort(); /* without a background grammars_get compiles before it returns */
}

static double processor_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* there is such a clock */
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void compile(struct grammars *grammars, const char *name, const json_t *schema)
{
    struct grammar_waiter waiter = {.ready = not_called};
    const struct constraint *c = NULL;
    struct grammar *g = NULL;
    const char *left_out = "", *by = "";
    double begun = processor_ms(), written, compiled;
    struct matcher *matcher = NULL;
    size_t least = 0;
    struct arena arena;
    struct error err = {0};
    json_t *line;

    arena_init(&arena, 16 << 20);
    if (constraint_of_schema(&c, schema, true, &left_out, &arena, &err) != STATUS_OK)
        by = "compiler";
    written = processor_ms();
    if (c != NULL && grammars_get(&g, grammars, c, &waiter, &err) != STATUS_OK)
        by = "engine";
    compiled = processor_ms();
    if (g != NULL) { /* the matcher takes the reference */
        if (matcher_open(&matcher, g, &arena, &err) != STATUS_OK ||
            matcher_least(matcher, &least, &err) != STATUS_OK)
            by = "matcher";
        matcher_close(matcher);
    }
    line =
        json_pack("{s:s,s:s,s:s,s:f,s:f,s:I,s:I}", "name", name, "refused_by", by, "why", err.text,
                  "compiler_ms", written - begun, "engine_ms", compiled - written, "bytes",
                  (json_int_t)(c != NULL ? c->len : 0), "least_tokens", (json_int_t)least);
    (void)json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6)); /* who reads counts */
    (void)putchar('\n');
    (void)fflush(stdout);
    json_decref(line);
    arena_deinit(&arena);
}

int main(int argc, char **argv)
{
    struct vocab *vocab = NULL;
    struct gguf *file = NULL;
    struct grammars *grammars = NULL;
    struct error err;
    char *line = NULL;
    size_t cap = 0;
    json_t *first = json_pack("{s:n}", "const");

    if (argc != 2) {
        (void)fprintf(stderr, "usage: bench_schemas MODEL.gguf <SCHEMAS\n");
        return 2;
    }
    if (gguf_open(&file, argv[1], &err) != STATUS_OK ||
        vocab_open(&vocab, file, &err) != STATUS_OK ||
        grammars_open(&grammars, vocab, vocab_n_tokens(vocab), NULL, NULL, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    compile(grammars, "the vocabulary", first);
    while (getline(&line, &cap, stdin) > 0) {
        json_t *read = json_loads(line, JSON_ALLOW_NUL, NULL);

        if (read == NULL)
            abort();
        compile(grammars, json_string_value(json_object_get(read, "name")),
                json_object_get(read, "schema"));
        json_decref(read);
    }
    free(line);
    json_decref(first);
    grammars_close(grammars);
    vocab_close(vocab);
    gguf_close(file);
    return 0;
}
