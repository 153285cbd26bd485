/* Any bytes as a line of ParlAI's text format: an act that was read can be written, and the written
 * line is read and written as the same line again. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/fuzz/target.h"
#include "worlds/message/text_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    char *line = malloc(size_bytes == 0 ? 1 : size_bytes); /* exactly size_bytes */
    struct arena arena;
    struct act a, again;
    struct buf once, twice;
    struct error err;

    if (line == NULL)
        abort();
    if (size_bytes > 0)
        memcpy(line, data, size_bytes);
    arena_init(&arena, 64 << 20);
    buf_init(&once, 16 << 20);
    buf_init(&twice, 16 << 20);
    if (utf8_is_valid(line, size_bytes) && memchr(line, '\n', size_bytes) == NULL &&
        text_line_parse(&a, line, size_bytes, &arena, NULL, &err) == STATUS_OK &&
        text_line_format(&a, &once, &err) == STATUS_OK &&
        text_line_parse(&again, once.data, once.len, &arena, NULL, &err) == STATUS_OK) {
        if (text_line_format(&again, &twice, &err) != STATUS_OK)
            abort();
        assert(once.len == twice.len &&
               (once.len == 0 || !memcmp(once.data, twice.data, once.len)));
    }
    buf_deinit(&once);
    buf_deinit(&twice);
    arena_deinit(&arena);
    free(line);
    return 0;
}
