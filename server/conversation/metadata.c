#include "server/conversation/metadata.h"

#include <string.h>

#include "base/alloc.h"

enum status metadata_open(struct metadata **out, const struct pair *pairs, size_t n,
                          struct error *err)
{
    struct metadata *m;
    size_t n_bytes = 0;
    char *at;

    if (n == 0) {
        *out = NULL;
        return STATUS_OK;
    }
    if (n > METADATA_MAX_PAIRS)
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "metadata",
                             "metadata has %zu entries, at most %d are kept", n,
                             METADATA_MAX_PAIRS);
    for (size_t i = 0; i < n; i++)
        n_bytes += strlen(pairs[i].key) + strlen(pairs[i].value) + 2;
    if (n_bytes > METADATA_MAX_BYTES)
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "metadata",
                             "metadata has %zu bytes, at most %d are kept", n_bytes,
                             METADATA_MAX_BYTES);
    m = try_alloc(1, sizeof(*m) + n * sizeof(m->pairs[0]) + n_bytes);
    if (m == NULL)
        return error_no_memory(err, n_bytes, "metadata");
    m->n_pairs = n;
    at = (char *)(m->pairs + n);
    for (size_t i = 0; i < n; i++) {
        size_t key_size = strlen(pairs[i].key) + 1;
        size_t value_size = strlen(pairs[i].value) + 1;

        m->pairs[i] = (struct pair){.key = at, .value = at + key_size};
        memcpy(at, pairs[i].key, key_size);
        memcpy(at + key_size, pairs[i].value, value_size);
        at += key_size + value_size;
    }
    *out = m;
    return STATUS_OK;
}
