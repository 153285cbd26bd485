/* Published parameters: immutable, shared by all readers and downloads, with checksums that are
 * computed once. References may be taken and released on any thread. */
#ifndef AGENTS_PARAMS_SNAPSHOT_H
#define AGENTS_PARAMS_SNAPSHOT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/params/memory.h"
#include "base/checksum.h"
#include "base/status.h"

/* Bytes in one message of a download. */
enum { SNAPSHOT_CHUNK_BYTES = 1 << 20 };

struct snapshot {
    atomic_size_t n_refs;
    struct params_memory *memory;
    float *values; /* [n], of memory */
    size_t n, size_bytes;
    uint64_t version;
    char **contributors; /* [n_contributors], in the order in which they were added */
    size_t n_contributors;
    uint8_t sha256[SHA256_BYTES];
    size_t n_chunks;
    uint32_t crcs[]; /* [n_chunks] */
};

/* Makes a snapshot with one reference, without values, contributors and checksums. The caller fills
 * in n_contributors texts (xstrdup). Borrows memory until values is set to one of its blocks. */
enum status snapshot_make(struct snapshot **out, struct params_memory *memory, size_t n,
                          size_t n_contributors, struct error *err) MUST_CHECK;
/* The next size_bytes of values, of a whole chunk or a part of one, are final. */
void snapshot_add_checksum(struct snapshot *s, struct sha256 *sha, size_t offset,
                           size_t size_bytes);

struct snapshot *snapshot_ref(struct snapshot *s);
void snapshot_unref(struct snapshot *s); /* NULL is fine */

/* Bytes of chunk i, which begins at i * SNAPSHOT_CHUNK_BYTES. */
size_t snapshot_chunk_bytes(const struct snapshot *s, size_t i);

#endif
