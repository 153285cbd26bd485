/* A model's version: the hash of its file. */
#ifndef COMPUTE_MODEL_HASH_H
#define COMPUTE_MODEL_HASH_H

#include <stddef.h>

#include "base/status.h"

enum { MODEL_HASH_SIZE = 65 }; /* 64 hex digits and a NUL */

/* SHA-256 in lower-case hex digits. Any thread; 100 MB take about 0.1 s where the processor has SHA
 * instructions. */
enum status model_hash(char out[MODEL_HASH_SIZE], const void *bytes, size_t n,
                       struct error *err) MUST_CHECK;

/* The same of the file at path, whose bytes are given. It is remembered in the user's cache folder
 * ($XDG_CACHE_HOME or ~/.cache, parley/), by the file's place, size and times of change, so that
 * the next start need not read it all. What is damaged, out of date or cannot be written there is
 * passed over. */
enum status model_hash_file(char out[MODEL_HASH_SIZE], const char *path, const void *bytes,
                            size_t n, struct error *err) MUST_CHECK;

#endif
