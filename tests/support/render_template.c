/* Renders a chat template for tests: `render_template TEMPLATE < variables`. Each line of the input
 * is a JSON object, the variables of one render. For each the output has a line, "ok N" or
 * "error N", and N bytes: the prompt or the error's text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/jinja/jinja.h"

enum { RENDER_MAX_STEPS = 8 << 20, RENDER_MAX_BYTES = 64 << 20 };

static enum status render(const struct jinja *t, const char *json, size_t len, struct arena *arena,
                          struct jinja_text *out, struct error *err)
{
    static const struct tm now = {.tm_year = 126, .tm_mon = 1, .tm_mday = 3, .tm_wday = 2};
    struct jinja_run run;
    struct jinja_value all;

    if (!jinja_begin(&run, t, arena, &now, RENDER_MAX_STEPS, err) ||
        !jinja_parse_json(&run, json, len, &all))
        return err->status;
    for (size_t i = 0; i < all.as.map->n; i++) {
        const struct jinja_text *key = all.as.map->pairs[i].key.as.text;
        char name[64] = "";

        memcpy(name, key->data, key->len < sizeof(name) ? key->len : sizeof(name) - 1);
        jinja_set(&run, name, all.as.map->pairs[i].value);
    }
    return jinja_render(&run, out);
}

static void answer(const struct jinja *t, const char *json, size_t len)
{
    struct arena arena;
    struct jinja_text prompt;
    struct error err;
    enum status rc;

    arena_init(&arena, RENDER_MAX_BYTES);
    rc = render(t, json, len, &arena, &prompt, &err);
    if (rc != STATUS_OK)
        prompt = (struct jinja_text){.data = err.text, .len = strlen(err.text)};
    printf("%s %zu\n", rc == STATUS_OK ? "ok" : "error", prompt.len);
    (void)fwrite(prompt.data, 1, prompt.len, stdout);
    arena_deinit(&arena);
}

int main(int argc, char **argv)
{
    FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
    char *text = calloc(1, 1 << 20), *line = NULL;
    size_t cap = 0, len;
    ssize_t n;
    struct jinja *t;
    struct error err;

    if (f == NULL || text == NULL) {
        fprintf(stderr, "usage: render_template TEMPLATE < variables\n");
        return 2;
    }
    len = fread(text, 1, 1 << 20, f);
    (void)fclose(f);
    if (jinja_open(&t, text, len, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    while ((n = getline(&line, &cap, stdin)) > 0)
        answer(t, line, (size_t)n);
    jinja_close(t);
    free(line);
    free(text);
    return 0;
}
