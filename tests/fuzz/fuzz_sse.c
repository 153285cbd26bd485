/* Server-sent events of a foreign server. The events do not depend on how the socket divides the
 * bytes, and data has no line ends except those that join its lines. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/bench/sse.h"
#include "tests/fuzz/target.h"

enum { LIMIT_BYTES = 4096 };

struct seen {
    struct buf text; /* each event's data, and its NUL as a separator */
    size_t n;
};

static void on_event(void *arg, const char *data, size_t len)
{
    struct seen *seen = arg;
    enum status rc;

    assert(data[len] == '\0' && len <= LIMIT_BYTES);
    assert(memchr(data, '\r', len) == NULL);
    rc = buf_append(&seen->text, data, len + 1);
    assert(rc == STATUS_OK);
    seen->n++;
}

/* In pieces of so many bytes. */
static enum status feed(struct seen *seen, const char *bytes, size_t size, size_t piece)
{
    enum status rc = STATUS_OK;
    struct sse sse;

    buf_init(&seen->text, SIZE_MAX);
    seen->n = 0;
    sse_init(&sse, LIMIT_BYTES);
    for (size_t at = 0; at < size && rc == STATUS_OK; at += piece)
        rc = sse_feed(&sse, bytes + at, size - at < piece ? size - at : piece, on_event, seen);
    sse_deinit(&sse);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {1, 7};
    struct seen whole, cut;
    enum status rc = feed(&whole, (const char *)data, size, size + 1);

    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        enum status same = feed(&cut, (const char *)data, size, pieces[i]);

        assert(same == rc);
        assert(cut.n == whole.n && cut.text.len == whole.text.len);
        assert(cut.n == 0 || memcmp(cut.text.data, whole.text.data, cut.text.len) == 0);
        buf_deinit(&cut.text);
    }
    buf_deinit(&whole.text);
    return 0;
}
