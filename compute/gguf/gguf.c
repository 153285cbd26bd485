#include "compute/gguf/gguf.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/gguf/parts.h"

enum status gguf_file_read(struct gguf **out, const char *path, struct error *err)
{
    struct gguf *g = xalloc(sizeof(*g));
    enum status rc;

    g->path = xstrdup(path);
    rc = gguf_file_open(g, err);
    if (rc == STATUS_OK)
        rc = gguf_read(g, err);
    if (rc != STATUS_OK) {
        gguf_close(g);
        return rc;
    }
    gguf_file_trim(g);
    *out = g;
    return STATUS_OK;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    for (size_t i = 0; i < g->n_keys; i++)
        free(g->keys[i].texts);
    free(g->keys);
    free(g->key_table.slots);
    free(g->tensors);
    free(g->tensor_table.slots);
    for (size_t i = 0; i < g->n_others; i++)
        gguf_close(g->others[i]);
    free(g->others);
    gguf_file_close(g);
    free(g->own_bytes);
    free(g->own_weights);
    free(g->own_parts);
    free(g->path);
    free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

size_t gguf_size_bytes(const struct gguf *g)
{
    size_t n = gguf_is_made(g) ? 0 : g->size_bytes;

    for (size_t i = 0; i < g->n_others; i++)
        n += g->others[i]->size_bytes;
    return n;
}

size_t gguf_n_files(const struct gguf *g)
{
    return gguf_is_made(g) ? g->n_others : g->n_others + 1;
}

int gguf_fd(const struct gguf *g, size_t i)
{
    assert(i < gguf_n_files(g));
    if (gguf_is_made(g))
        return g->others[i]->fd;
    return i == 0 ? g->fd : g->others[i - 1]->fd;
}

enum status gguf_tensor(const struct gguf *g, const char *name, const struct tensor **out,
                        struct error *err)
{
    uint32_t slot = *gguf_tensor_slot(g, name, strlen(name));

    if (slot == 0)
        return error_set(err, STATUS_NOT_FOUND, "%s: tensor '%s' is absent",
                         gguf_shown_path(g->path), name);
    *out = &g->tensors[slot - 1].tensor;
    return STATUS_OK;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    assert(i < g->n_tensors);
    return &g->tensors[i].tensor;
}

/* Names the first number that is infinite or NaN, of rows that hold one. */
static enum status not_finite(const struct tensor *t, size_t first, const void *rows,
                              struct error *err)
{
    const size_t n_values = dtype_block_values(t->type);
    const uint8_t *block = rows;
    float values[DTYPE_BLOCK_VALUES_MAX];

    for (size_t at = first * t->n_cols;; at += n_values, block += dtype_block_bytes(t->type)) {
        dtype_decode(t->type, block, n_values, values);
        for (size_t i = 0; i < n_values; i++)
            if (!isfinite(values[i]))
                return error_set(err, STATUS_DATA_LOSS,
                                 "tensor '%s' has the value %g at %zu, all must be finite", t->name,
                                 (double)values[i], at + i);
    }
}

enum status tensor_read(const struct tensor *t, size_t first, size_t n, void *to, struct error *err)
{
    const size_t row_bytes = dtype_row_bytes(t->type, t->n_cols);
    enum status rc = STATUS_OK;

    assert(first <= t->n_rows && n <= t->n_rows - first);
    if (t->data != NULL)
        memcpy(to, (const uint8_t *)t->data + first * row_bytes, n * row_bytes);
    else if (t->form != TENSOR_PLAIN)
        rc = gguf_copy_formed(t, first, n, to, err);
    else
        rc = gguf_copy(t->file, t->file_at + first * row_bytes, n * row_bytes, to, err);
    if (rc != STATUS_OK)
        rc = error_prefix(err, "tensor '%s'", t->name);
    else if (!dtype_is_finite(t->type, to, n * t->n_cols))
        rc = not_finite(t, first, to, err);
    if (rc != STATUS_OK && t->file != NULL)
        rc = error_prefix(err, "%s", gguf_shown_path(t->file->path));
    return rc;
}
