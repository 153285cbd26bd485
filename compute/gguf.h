/* A GGUF file (version 2 and 3, little endian), mapped read-only. Every length and offset is
 * checked before it is used, so any bytes may be handed in. Format:
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef COMPUTE_GGUF_H
#define COMPUTE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/dtype.h"

/* A weight as it lies in the file: a matrix [n_rows][n_cols], row-major, rows of whole blocks. */
struct tensor {
    const char *name; /* NUL-ended */
    enum dtype type;
    size_t n_rows, n_cols; /* a vector has one row; GGUF's ne[0] is n_cols */
    const void *data;
    size_t size_bytes;
};

struct gguf;

/* Errors name the file, the key or tensor, and what is wrong with it. A missing file is NOT_FOUND,
 * a file that breaks the format DATA_LOSS, a version or type we do not read UNIMPLEMENTED. A file
 * in use is replaced by renaming a new one over it: cutting it in place kills whoever has it
 * mapped. */
enum status gguf_open(struct gguf **out, const char *path, struct error *err) MUST_CHECK;

/* The same over bytes in memory, aligned to 8, which the caller keeps until gguf_close; name stands
 * for the path. */
enum status gguf_open_bytes(struct gguf **out, const void *data, size_t size_bytes,
                            const char *name, struct error *err) MUST_CHECK;
void gguf_close(struct gguf *g);

const char *gguf_path(const struct gguf *g);
/* The whole mapping, for hashing. */
const void *gguf_bytes(const struct gguf *g, size_t *ret_size_bytes);

/* STATUS_NOT_FOUND when the key is absent, STATUS_DATA_LOSS when it has another type. Any integer
 * type is read as u64 if not negative, any float type as f64. Text is the file's: not NUL-ended. */
enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct error *err);
enum status gguf_get_f64(const struct gguf *g, const char *key, double *out, struct error *err);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *err);
enum status gguf_get_text(const struct gguf *g, const char *key, const char **ret_text,
                          size_t *ret_len, struct error *err);

/* Arrays: the count, then an entry each; STATUS_DATA_LOSS for an entry that the array does not
 * have. Text entries are O(1) after the first use of that array, which may find no memory. */
enum status gguf_array_len(const struct gguf *g, const char *key, size_t *out, struct error *err);
enum status gguf_array_text(struct gguf *g, const char *key, size_t i, const char **ret_text,
                            size_t *ret_len, struct error *err);
enum status gguf_array_i64(const struct gguf *g, const char *key, size_t i, int64_t *out,
                           struct error *err);

/* STATUS_NOT_FOUND naming the tensor and the file. The tensor stays valid until gguf_close. */
enum status gguf_tensor(const struct gguf *g, const char *name, const struct tensor **out,
                        struct error *err);
size_t gguf_n_tensors(const struct gguf *g);
const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i);

#endif
