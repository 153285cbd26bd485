/* Any bytes as a grammar: what is taken is written in a form that is GBNF, too, and which stays the
 * same but for the prefixes of names. */
#include <assert.h>
#include <string.h>

#include "agents/constraint/gbnf.h"
#include "base/utf8.h"
#include "tests/fuzz/target.h"

/* Without the prefixes. */
static void strip(struct buf *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->len; i++)
        if (i + 1 < b->len && b->data[i] == 'g' && b->data[i + 1] == '-')
            i++;
        else
            b->data[n++] = b->data[i];
    b->len = n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const char *text = (const char *)data;
    struct buf once, twice;
    struct error err;

    if (size_bytes > 64 << 10 || !utf8_is_valid(text, size_bytes) ||
        memchr(text, '\0', size_bytes) != NULL)
        return 0;
    buf_init(&once, 4 << 20);
    buf_init(&twice, 8 << 20);
    if (gbnf_read(&once, text, size_bytes, &err) == STATUS_OK) {
        assert(gbnf_read(&twice, once.data, once.len, &err) == STATUS_OK);
        strip(&once);
        strip(&twice);
        assert(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    } else {
        assert(err.status == STATUS_INVALID || err.status == STATUS_EXHAUSTED);
    }
    buf_deinit(&once);
    buf_deinit(&twice);
    return 0;
}
