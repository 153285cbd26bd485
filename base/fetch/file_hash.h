/* The hashes by which the hub names files: sha256, and git's sha1 of small ones. Any thread. */
#ifndef BASE_FETCH_FILE_HASH_H
#define BASE_FETCH_FILE_HASH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Whether an ETag is such a hash: 64 or 40 hexadecimal digits, in lower case. */
bool file_hash_is_one(const char *etag);
/* Compares the hash of the first size_bytes of the open file with etag, which is such a hash.
 * DATA_LOSS: they differ; UNAVAILABLE: the file cannot be read. Reads the file from its beginning,
 * without its offset. */
enum status file_hash_check(int fd, uint64_t size_bytes, const char *etag,
                            struct error *err) MUST_CHECK;

#endif
