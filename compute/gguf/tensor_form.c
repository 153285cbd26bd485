/* Weights whose rows are not those of their file. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/parts.h"

/* The row of the file that holds row i of the tensor: pair p of a head is its rows p and p +
 * head_dim / 2. */
static size_t row_of_pair(const struct tensor *t, size_t i)
{
    size_t head = i / t->head_dim, within = i % t->head_dim;

    return head * t->head_dim + within % 2 * (t->head_dim / 2) + within / 2;
}

static enum status copy_pairs(const struct tensor *t, size_t first, size_t n, uint8_t *to,
                              struct error *err)
{
    const size_t n_bytes = dtype_row_bytes(t->type, t->n_cols);
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < n && rc == STATUS_OK; i++)
        rc = gguf_copy(t->file, t->file_at + row_of_pair(t, t->first_row + first + i) * n_bytes,
                       n_bytes, to + i * n_bytes, err);
    return rc;
}

static enum status copy_parts(const struct tensor *t, size_t first, size_t n, uint8_t *to,
                              struct error *err)
{
    const size_t n_bytes = dtype_row_bytes(t->type, t->n_cols);
    enum status rc = STATUS_OK;

    for (first += t->first_row; n > 0 && rc == STATUS_OK;) {
        const struct tensor_part *part = &t->parts[first / t->n_part_rows];
        size_t within = first % t->n_part_rows, left = t->n_part_rows - within;
        size_t some = n < left ? n : left;

        rc = gguf_copy(part->file, part->at + within * n_bytes, some * n_bytes, to, err);
        first += some;
        n -= some;
        to += some * n_bytes;
    }
    return rc;
}

/* A vector: the form of a bias that belongs to a matrix of pairs, or of another float type. */
static enum status copy_vector(const struct tensor *t, float *to, struct error *err)
{
    const size_t n_bytes = dtype_row_bytes(t->file_type, t->n_cols);
    void *room = try_alloc(n_bytes, 1);
    float *values = try_alloc(t->n_cols, sizeof(*values));
    enum status rc;

    assert(t->type == DTYPE_F32 && t->n_rows == 1);
    if (room == NULL || values == NULL)
        rc = error_no_memory(err, n_bytes, "a weight");
    else
        rc = gguf_copy(t->file, t->file_at, n_bytes, room, err);
    if (rc == STATUS_OK)
        dtype_decode(t->file_type, room, t->n_cols, values);
    for (size_t i = 0; i < t->n_cols && rc == STATUS_OK; i++)
        to[i] = values[t->head_dim == 0 ? i : row_of_pair(t, i)] + t->add;
    free(values);
    free(room);
    return rc;
}

enum status gguf_copy_formed(const struct tensor *t, size_t first, size_t n, void *to,
                             struct error *err)
{
    if (t->form == TENSOR_PAIRS)
        return copy_pairs(t, first, n, to, err);
    if (t->form == TENSOR_PARTS)
        return copy_parts(t, first, n, to, err);
    return n == 0 ? STATUS_OK : copy_vector(t, to, err);
}
