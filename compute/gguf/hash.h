/* A model's version: the hash of its files. */
#ifndef COMPUTE_GGUF_HASH_H
#define COMPUTE_GGUF_HASH_H

#include <stdatomic.h>

#include "base/status.h"

enum { MODEL_HASH_SIZE = 65 }; /* 64 hex digits and a NUL */

/* SHA-256 of an open file in lower-case hex digits. Any thread; 100 MB take about 0.1 s where the
 * processor has SHA instructions. */
enum status model_hash(char out[MODEL_HASH_SIZE], int fd, struct error *err) MUST_CHECK;

/* The same, cached in the user's cache folder ($XDG_CACHE_HOME or ~/.cache, parley/), by the file's
 * device, inode, size and times of change, so that the next start need not read all of it. An entry
 * that is damaged, out of date or cannot be written is ignored. CANCELLED once *is_stopping is
 * true, which may be NULL. */
enum status model_hash_file(char out[MODEL_HASH_SIZE], int fd, const atomic_bool *is_stopping,
                            struct error *err) MUST_CHECK;

struct gguf;

/* The version of a model: of one file its model_hash_file; of several the SHA-256 of theirs, in
 * order. */
enum status model_hash_gguf(char out[MODEL_HASH_SIZE], const struct gguf *g,
                            struct error *err) MUST_CHECK;

/* Computes model_hash_gguf on a thread of its own while the caller reads the weights. g stays open
 * and as it is until model_hasher_close. */
struct model_hasher;
struct model_hasher *model_hasher_open(const struct gguf *g);
/* Waits for the hash. Once; where there was no thread to be had, this computes it. */
enum status model_hasher_take(struct model_hasher *h, char out[MODEL_HASH_SIZE],
                              struct error *err) MUST_CHECK;
/* Stops the thread within some 256 KB if the hash was not taken. NULL is allowed. */
void model_hasher_close(struct model_hasher *h);

#endif
