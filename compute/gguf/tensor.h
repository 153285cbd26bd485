/* A weight of a GGUF file. */
#ifndef COMPUTE_GGUF_TENSOR_H
#define COMPUTE_GGUF_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/dtype.h"

struct gguf;

/* How a weight's rows are made of those in its file. */
enum tensor_form {
    TENSOR_PLAIN, /* they are the file's */
    TENSOR_PAIRS, /* each head's rows as adjacent pairs: the file has the first of all pairs, then
                     the second */
    TENSOR_WIDE,  /* a vector, whose floats may be of another type, as F32 */
    TENSOR_PARTS, /* parts of n_part_rows each lie in places of their own */
};

struct tensor_part {
    const struct gguf *file; /* NULL: not found yet */
    uint64_t at;
};

/* A weight in the file's format: a matrix [n_rows][n_cols], row-major, rows of whole blocks. */
struct tensor {
    const char *name; /* NUL-ended */
    enum dtype type;
    size_t n_rows, n_cols; /* a vector has one row; GGUF's ne[0] is n_cols */
    const void *data;      /* NULL: in the file */
    size_t size_bytes;
    const struct gguf *file; /* and where in it */
    uint64_t file_at;
    enum tensor_form form;
    enum dtype file_type; /* TENSOR_WIDE: the file's */
    float add;            /* TENSOR_WIDE: to each number */
    size_t head_dim;      /* even: of a head whose pairs are adjacent. TENSOR_WIDE: 0 for none */
    const struct tensor_part *parts; /* TENSOR_PARTS */
    size_t n_part_rows;
    size_t first_row; /* TENSOR_PARTS, TENSOR_PAIRS: that row of the whole is this one's first */
};

#endif
