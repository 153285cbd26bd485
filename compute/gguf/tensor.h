/* A weight of a GGUF file. */
#ifndef COMPUTE_GGUF_TENSOR_H
#define COMPUTE_GGUF_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/dtype.h"

struct gguf;

/* A weight in the file's format: a matrix [n_rows][n_cols], row-major, rows of whole blocks. */
struct tensor {
    const char *name; /* NUL-ended */
    enum dtype type;
    size_t n_rows, n_cols; /* a vector has one row; GGUF's ne[0] is n_cols */
    const void *data;      /* NULL: in the file */
    size_t size_bytes;
    const struct gguf *file; /* and where in it */
    uint64_t file_at;
};

#endif
