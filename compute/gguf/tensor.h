/* A weight of a GGUF file. */
#ifndef COMPUTE_GGUF_TENSOR_H
#define COMPUTE_GGUF_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/dtype.h"

struct gguf;

/* How a weight's rows are made of those in its file. */
enum tensor_form {
    TENSOR_PLAIN,   /* they are the file's */
    TENSOR_PAIRS,   /* each head's rows as adjacent pairs: the file has the first of all pairs, then
                       the second */
    TENSOR_WIDE,    /* a vector, whose floats may be of another type, as F32 */
    TENSOR_PARTS,   /* parts of n_part_rows each lie in places of their own */
    TENSOR_STRIDED, /* its numbers lie in one place, at strides */
    TENSOR_MULTIPLIED, /* they are the file's, as F32 and multiplied by factors */
    TENSOR_TURNED,     /* of each part of the file's rows some, as F32, columns before rows */
    TENSOR_SOME,       /* of each part of the file's rows some */
};

/* How the bytes of TENSOR_PARTS become its type. */
enum tensor_source {
    SOURCE_AS_IS,
    SOURCE_FP8,   /* E4M3, times a scale for each block of rows and columns: F32 */
    SOURCE_MXFP4, /* blocks of 32 numbers whose nibbles are pairs, and their exponents: MXFP4 */
};

struct tensor_part {
    const struct gguf *file; /* NULL: not found yet */
    uint64_t at;
    const struct gguf *scale_file; /* of what is scaled; likewise */
    uint64_t scale_at;
};

/* Where the numbers of TENSOR_STRIDED lie, in numbers from file_at on. */
struct tensor_strides {
    size_t part, row, col;
};

/* The file's rows that are taken of each part of so many, for TENSOR_TURNED and TENSOR_SOME. */
struct tensor_taken {
    size_t n_rows, first, n;
};

/* What rows before `until` are multiplied by, and behind those of the factor before. */
struct tensor_factor {
    size_t until;
    float by;
};

enum { TENSOR_N_FACTORS = 5 };

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
    enum dtype file_type; /* of all forms but PLAIN, PAIRS and PARTS: the file's */
    float add;            /* TENSOR_WIDE: to each number */
    bool is_decay;        /* TENSOR_WIDE: -e^ each number */
    size_t head_dim;      /* even: of a head whose pairs are adjacent. TENSOR_WIDE: 0 for none */
    const struct tensor_part *parts; /* TENSOR_PARTS */
    size_t n_part_rows;              /* TENSOR_PARTS, TENSOR_STRIDED, TENSOR_TURNED, TENSOR_SOME */
    size_t
        first_row; /* of all forms but PLAIN and WIDE: that row of the whole is this one's first */
    struct tensor_strides strides;
    struct tensor_taken taken;
    struct tensor_factor
        factors[TENSOR_N_FACTORS]; /* TENSOR_MULTIPLIED; the last is for the rest */
    enum tensor_source source;     /* TENSOR_PARTS */
    /* Of TENSOR_PARTS with scales: their type, and how many rows and columns one is for. */
    enum dtype scale_type;
    size_t scale_rows, scale_cols;
    /* Row i of a part of SOURCE_MXFP4 is this row of the file's: i * row_step + row_from. */
    size_t row_step, row_from;
};

#endif
