/* Any bytes as the id of an event: what is taken is written as the very same bytes. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/conversation/event_id.h"
#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    char *text = malloc(size_bytes == 0 ? 1 : size_bytes); /* exactly size_bytes */
    char again[EVENT_ID_MAX_BYTES];
    struct event_id id;
    struct error err;
    size_t len;

    if (text == NULL)
        abort();
    if (size_bytes > 0)
        memcpy(text, data, size_bytes);
    if (event_id_parse(&id, text, size_bytes, &err) == STATUS_OK) {
        len =
            (size_t)snprintf(again, sizeof(again), "%" PRIu32 ".%" PRIu32, id.generation, id.turn);
        for (size_t i = 0; i < id.n_indexes; i++)
            len += (size_t)snprintf(again + len, sizeof(again) - len, "%c%" PRIu64,
                                    i == 0 ? '.' : ',', id.indexes[i]);
        assert(id.n_indexes > 0 && len == size_bytes && memcmp(again, text, len) == 0);
    } else {
        assert(err.status == STATUS_INVALID);
    }
    free(text);
    return 0;
}
