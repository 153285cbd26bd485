/* Any bytes as a schema: what is taken is a grammar for the engine. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/constraint.h"
#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const struct constraint *c, *again;
    const char *left_out;
    struct arena arena;
    struct error err;

    arena_init(&arena, 16 << 20);
    for (int strict = 0; strict < 2; strict++)
        if (constraint_of_schema_text(&c, (const char *)data, size_bytes, strict != 0, &left_out,
                                      &arena, &err) == STATUS_OK) {
            assert(strncmp(c->text, "root ::= r0\n", 12) == 0 && c->len == strlen(c->text));
            assert(strict == 0 || left_out[0] == '\0');
        } else {
            assert(err.status == STATUS_INVALID || err.status == STATUS_EXHAUSTED);
        }
    if (constraint_of_grammar(&again, (const char *)data, size_bytes, &arena, &err) == STATUS_OK)
        assert(again->len > 0);
    if (constraint_of_regex(&again, (const char *)data, size_bytes, &arena, &err) == STATUS_OK)
        assert(again->len == size_bytes);
    arena_deinit(&arena);
    return 0;
}
