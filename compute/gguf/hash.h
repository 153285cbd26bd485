/* A model's version: the hash of its files. */
#ifndef COMPUTE_GGUF_HASH_H
#define COMPUTE_GGUF_HASH_H

#include "base/status.h"

enum { MODEL_HASH_SIZE = 65 }; /* 64 hex digits and a NUL */

/* SHA-256 of an open file in lower-case hex digits. Any thread; 100 MB take about 0.1 s where the
 * processor has SHA instructions. */
enum status model_hash(char out[MODEL_HASH_SIZE], int fd, struct error *err) MUST_CHECK;

/* The same, cached in the user's cache folder ($XDG_CACHE_HOME or ~/.cache, parley/), by the file's
 * device, inode, size and times of change, so that the next start need not read all of it. An entry
 * that is damaged, out of date or cannot be written is ignored. */
enum status model_hash_file(char out[MODEL_HASH_SIZE], int fd, struct error *err) MUST_CHECK;

struct gguf;

/* The version of a model: of one file its model_hash_file; of several the SHA-256 of theirs, in
 * order. */
enum status model_hash_gguf(char out[MODEL_HASH_SIZE], const struct gguf *g,
                            struct error *err) MUST_CHECK;

#endif
