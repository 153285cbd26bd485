/* A snapshot is one version of a parameter set. Once published it never changes. All readers and
 * downloads share it and its checksums, which are computed once. References may be taken and
 * released on any thread. */
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

/* snapshot_make begins it; who made it sets version, contributors and values and adds the
 * checksums; from then on it is only read. The last snapshot_unref gives values back to memory and
 * frees the rest. */
struct snapshot {
    atomic_size_t n_refs;
    struct params_memory *memory; /* kept alive by the block that values is */
    float *values;                /* [n], a block of memory; NULL at first */
    size_t n, size_bytes;         /* numbers, and their bytes */
    uint64_t version;
    char **contributors; /* [n_contributors] ids of clients, in the order in which their gradients
                            were added */
    size_t n_contributors;
    uint8_t sha256[SHA256_BYTES]; /* of values */
    size_t n_chunks;
    uint32_t crcs[]; /* [n_chunks] crc32c of each chunk of values */
};

/* Makes a snapshot with one reference, without values, contributors and checksums. The caller fills
 * in n_contributors texts (xstrdup). Borrows memory until values is set to one of its blocks.
 * EXHAUSTED. */
enum status snapshot_make(struct snapshot **out, struct params_memory *memory, size_t n,
                          size_t n_contributors, struct error *err) MUST_CHECK;
/* Adds size_bytes of values, which must not change any more, to the crc32c of their chunk and to
 * sha. The bytes lie in one chunk, and directly behind those of the call before. */
void snapshot_add_checksum(struct snapshot *s, struct sha256 *sha, size_t offset,
                           size_t size_bytes);

struct snapshot *snapshot_ref(struct snapshot *s);
void snapshot_unref(struct snapshot *s); /* s may be NULL */

/* Returns the bytes of chunk i, which begins at i * SNAPSHOT_CHUNK_BYTES. */
size_t snapshot_chunk_bytes(const struct snapshot *s, size_t i);

#endif
