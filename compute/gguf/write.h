/* Writes a GGUF file (version 3) as a stream: keys and tensors are declared first, then the
 * tensors' data in the same order. The file appears under its name when it is complete and on the
 * disk, never before; an older file stays until then. */
#ifndef COMPUTE_GGUF_WRITE_H
#define COMPUTE_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct gguf_writer;

/* Makes a temporary file beside path. NOT_FOUND without the folder, DENIED without the right to
 * write there. */
enum status gguf_writer_open(struct gguf_writer **out, const char *path,
                             struct error *err) MUST_CHECK;
/* Removes a file that was not committed. NULL is allowed. */
void gguf_writer_close(struct gguf_writer *w);

/* Keys; each once. The first failure of these calls is returned by commit. */
void gguf_write_text(struct gguf_writer *w, const char *key, const char *text);
void gguf_write_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_write_f32(struct gguf_writer *w, const char *key, float value);
void gguf_write_bool(struct gguf_writer *w, const char *key, bool value);
/* An array of n texts, which follow in order by gguf_write_item before the next key. */
void gguf_write_texts(struct gguf_writer *w, const char *key, size_t n);
void gguf_write_item(struct gguf_writer *w, const char *text, size_t len);
/* The same of n whole numbers, by gguf_write_int. */
void gguf_write_ints(struct gguf_writer *w, const char *key, size_t n);
void gguf_write_int(struct gguf_writer *w, int32_t value);

/* Declares an f32 matrix [n_rows][n_cols]; a vector has one row. */
void gguf_write_tensor(struct gguf_writer *w, const char *name, size_t n_rows, size_t n_cols);

/* The next n numbers of the tensors, in the order of their declaration, in pieces of any size.
 * After the first piece nothing more can be declared. */
void gguf_write_data(struct gguf_writer *w, const float *data, size_t n);

/* Gives the file its name, after all data were written. */
enum status gguf_writer_commit(struct gguf_writer *w, struct error *err) MUST_CHECK;

#endif
