/* A GGUF file (version 2 and 3, little endian). Its metadata are copied when it is opened, weights
 * when they are read. Nothing is mapped, since a writer of the file could change or truncate a
 * mapping at any time. Every length and offset is checked before it is used, so any bytes are safe.
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef COMPUTE_GGUF_GGUF_H
#define COMPUTE_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/gguf/tensor.h"

struct gguf;

/* Errors name the file, the key or tensor, and what is wrong with it. A missing file is NOT_FOUND,
 * a file that breaks the format DATA_LOSS, a version or type we do not read UNIMPLEMENTED. The file
 * stays open until gguf_close, so it is read to its end even if it is removed or another is renamed
 * over it. A model that is split into NAME-00001-of-0000N.gguf and so on is opened by its first
 * file, and reads as though it were one; another file of it is INVALID. */
enum status gguf_open(struct gguf **out, const char *path, struct error *err) MUST_CHECK;

/* The same over bytes in memory, aligned to 8, which the caller keeps until gguf_close; name is
 * used as the path. */
enum status gguf_open_bytes(struct gguf **out, const void *data, size_t size_bytes,
                            const char *name, struct error *err) MUST_CHECK;
void gguf_close(struct gguf *g);

const char *gguf_path(const struct gguf *g);
size_t gguf_size_bytes(const struct gguf *g); /* of all its files */
size_t gguf_n_files(const struct gguf *g);
int gguf_fd(const struct gguf *g, size_t i); /* of file i < gguf_n_files; -1: bytes in memory */

/* UNAVAILABLE when a file has been written to since gguf_open, by its size and time of change:
 * what was read may then be of two states. */
enum status gguf_check_unchanged(const struct gguf *g, struct error *err) MUST_CHECK;

/* Whether both are of the same files in the same state. */
bool gguf_is_same(const struct gguf *a, const struct gguf *b);

/* STATUS_NOT_FOUND when the key is absent, STATUS_DATA_LOSS when it has another type. Any integer
 * type is read as u64 if not negative, any float type as f64. Text is the file's: not NUL-ended. */
enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct error *err);
enum status gguf_get_f64(const struct gguf *g, const char *key, double *out, struct error *err);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *err);
enum status gguf_get_text(const struct gguf *g, const char *key, const char **ret_text,
                          size_t *ret_len, struct error *err);

/* Arrays: the count, then an entry each; STATUS_DATA_LOSS for an entry that the array does not
 * have. Text entries are O(1) after the first use of that array, which may fail for want of
 * memory. */
enum status gguf_array_len(const struct gguf *g, const char *key, size_t *out, struct error *err);
enum status gguf_array_text(struct gguf *g, const char *key, size_t i, const char **ret_text,
                            size_t *ret_len, struct error *err);
enum status gguf_array_i64(const struct gguf *g, const char *key, size_t i, int64_t *out,
                           struct error *err);
enum status gguf_array_bool(const struct gguf *g, const char *key, size_t i, bool *out,
                            struct error *err);

enum status gguf_array_f64(const struct gguf *g, const char *key, size_t i, double *out,
                           struct error *err);

/* The key numbered i < gguf_n_keys, as the file has it: not NUL-ended. */
size_t gguf_n_keys(const struct gguf *g);
const char *gguf_key_at(const struct gguf *g, size_t i, size_t *ret_len);

/* STATUS_NOT_FOUND naming the tensor and the file. The tensor stays valid until gguf_close. */
enum status gguf_tensor(const struct gguf *g, const char *name, const struct tensor **out,
                        struct error *err);
size_t gguf_n_tensors(const struct gguf *g);
const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i);

/* Copies rows first … first + n - 1; to has room for them. Any thread. DATA_LOSS naming the tensor
 * where a number is infinite or NaN, or where the file ends before the rows do. */
enum status tensor_read(const struct tensor *t, size_t first, size_t n, void *to,
                        struct error *err) MUST_CHECK;

#endif
