/* Writes a GGUF file (version 3) as a stream: keys and tensors are told first, then the tensors'
 * data in the same order. The file appears under its name when it is complete and on the disk,
 * never before; what was there until then stays. */
#ifndef COMPUTE_GGUF_WRITE_H
#define COMPUTE_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct gguf_writer;

/* Makes a file beside path. NOT_FOUND without the folder, DENIED without the right to write there.
 */
enum status gguf_writer_open(struct gguf_writer **out, const char *path,
                             struct error *err) MUST_CHECK;
/* Removes what was not committed; NULL is fine. */
void gguf_writer_close(struct gguf_writer *w);

/* Keys; each once. The first failure of these calls is told by commit. */
void gguf_write_text(struct gguf_writer *w, const char *key, const char *text);
void gguf_write_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_write_f32(struct gguf_writer *w, const char *key, float value);
void gguf_write_bool(struct gguf_writer *w, const char *key, bool value);

/* An f32 matrix [n_rows][n_cols] to come; a vector has one row. */
void gguf_write_tensor(struct gguf_writer *w, const char *name, size_t n_rows, size_t n_cols);

/* The next n numbers of the tensors, in the order they were told, in pieces of any size. After the
 * first piece nothing more can be told. */
void gguf_write_data(struct gguf_writer *w, const float *data, size_t n);

/* All data were written: gives the file its name. */
enum status gguf_writer_commit(struct gguf_writer *w, struct error *err) MUST_CHECK;

#endif
