#include "agents/params/snapshot.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"

enum status snapshot_make(struct snapshot **out, struct params_memory *memory, size_t n,
                          size_t n_contributors, struct error *err)
{
    const size_t size_bytes = n * sizeof(float);
    const size_t n_chunks = (size_bytes + SNAPSHOT_CHUNK_BYTES - 1) / SNAPSHOT_CHUNK_BYTES;
    struct snapshot *s = try_alloc(1, sizeof(*s) + n_chunks * sizeof(s->crcs[0]));

    if (s == NULL)
        return error_no_memory(err, sizeof(*s), "a snapshot");
    s->contributors = try_alloc(n_contributors + 1, sizeof(s->contributors[0]));
    if (s->contributors == NULL) {
        free(s);
        return error_no_memory(err, n_contributors * sizeof(char *), "the names of contributors");
    }
    atomic_init(&s->n_refs, 1);
    s->memory = memory;
    s->n = n;
    s->size_bytes = size_bytes;
    s->n_contributors = n_contributors;
    s->n_chunks = n_chunks;
    *out = s;
    return STATUS_OK;
}

void snapshot_add_checksum(struct snapshot *s, struct sha256 *sha, size_t offset, size_t size_bytes)
{
    const char *at = (const char *)s->values + offset;
    uint32_t *crc = &s->crcs[offset / SNAPSHOT_CHUNK_BYTES];

    assert(offset % SNAPSHOT_CHUNK_BYTES + size_bytes <= SNAPSHOT_CHUNK_BYTES);
    *crc = crc32c(*crc, at, size_bytes);
    sha256_add(sha, at, size_bytes);
}

struct snapshot *snapshot_ref(struct snapshot *s)
{
    (void)atomic_fetch_add_explicit(&s->n_refs, 1,
                                    memory_order_relaxed); /* the caller holds a reference */
    return s;
}

void snapshot_unref(struct snapshot *s)
{
    /* acq_rel: the last release must see that all other holders have finished reading. */
    if (s == NULL || atomic_fetch_sub_explicit(&s->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    params_memory_give(s->memory, s->values);
    for (size_t i = 0; i < s->n_contributors; i++)
        free(s->contributors[i]);
    free(s->contributors);
    free(s);
}

size_t snapshot_chunk_bytes(const struct snapshot *s, size_t i)
{
    size_t left = s->size_bytes - i * SNAPSHOT_CHUNK_BYTES;

    return left < SNAPSHOT_CHUNK_BYTES ? left : SNAPSHOT_CHUNK_BYTES;
}
