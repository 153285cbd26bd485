/* A foreign chat template: compiled, and rendered within small bounds. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/lm/jinja/jinja.h"
#include "tests/fuzz/target.h"

enum { FUZZ_MAX_STEPS = 20000, FUZZ_MAX_BYTES = 4 << 20 };

static const char variables[] =
    "[{\"role\":\"user\",\"content\":\"H\u00e9llo <|im_end|>\\n\"},"
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}],\"tool_calls\":"
    "[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5,\"y\":null}}}]}]";

static void render(const struct jinja *t)
{
    static const struct tm now = {.tm_year = 126, .tm_mday = 1};
    struct arena arena;
    struct jinja_run run;
    struct jinja_value messages;
    struct jinja_text out;
    struct error err;

    arena_init(&arena, FUZZ_MAX_BYTES);
    if (jinja_begin(&run, t, &arena, &now, FUZZ_MAX_STEPS, &err) &&
        jinja_parse_json(&run, variables, sizeof(variables) - 1, &messages)) {
        jinja_set(&run, "messages", messages);
        jinja_set(&run, "tools", messages);
        jinja_set(&run, "add_generation_prompt", jinja_bool(true));
        if (jinja_render(&run, &out) != STATUS_OK)
            assert(err.status == STATUS_INVALID);
    }
    arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jinja *t;
    struct error err;

    if (jinja_open(&t, (const char *)data, size, &err) == STATUS_OK) {
        render(t);
        jinja_close(t);
    }
    return 0;
}
