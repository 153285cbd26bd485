/* Any bytes as an act in JSON, compared with jansson: both accept it or neither does, and the act
 * is written as the same value. Not compared: inputs for which the two have other bounds (nesting,
 * numbers of many digits), NUL characters, and metrics, which are never written. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/target.h"
#include "worlds/message/act.h"

static void check_same(const struct act *a, const json_t *expected)
{
    struct buf out;
    struct error err;
    json_t *back;

    buf_init(&out, 64 << 20);
    if (act_to_json(a, &out, &err) != STATUS_OK)
        abort();
    back = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert(back != NULL);
    assert(act_has(a, ACT_METRICS) || json_equal(back, (json_t *)(uintptr_t)expected));
    json_decref(back);
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    char *text = malloc(size_bytes == 0 ? 1 : size_bytes);
    struct arena arena;
    struct error err;
    struct act a;
    enum status rc;
    json_t *expected;

    if (text == NULL)
        abort();
    if (size_bytes > 0)
        memcpy(text, data, size_bytes);
    arena_init(&arena, 64 << 20);
    rc = act_from_json(&a, text, size_bytes, &arena, &err);
    expected = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert(rc == STATUS_OK || (rc == STATUS_INVALID && strchr(err.text, '\n') == NULL));
    if (rc == STATUS_OK && expected != NULL)
        check_same(&a, expected);
    else if (rc != STATUS_OK && json_is_object(expected))
        assert(strstr(err.text, "nested") != NULL || strstr(err.text, "number") != NULL ||
               memchr(text, '\0', size_bytes) != NULL); /* jansson accepts one behind a number */
    json_decref(expected);
    arena_deinit(&arena);
    free(text);
    return 0;
}
