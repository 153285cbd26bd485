/* Shared by the tests of CUDA's kernels: memory of the device, launches in several orders of
 * threads, and the backends that give the expected results. */
#ifndef TESTS_CUDA_RIG_H
#define TESTS_CUDA_RIG_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "compute/backend/backend.h"
#include "compute/backends.h"
#include "compute/cuda/kernels.h"
#include "tests/cuda/rig_device.h"
#include "tests/support/numbers.h"

/* In how many orders of its threads a kernel runs: forward, backward and one shuffle, or as many as
 * CUDA_HOST_ORDERS says. */
static inline unsigned rig_orders(void)
{
    const char *text = getenv("CUDA_HOST_ORDERS");

    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : 3;
}

static inline void device_copy(void *to, const void *from, size_t size_bytes)
{
    memcpy(to, from, size_bytes);
    rig_written(to, size_bytes);
}

static inline void *to_device(const void *from, size_t size_bytes)
{
    void *at = rig_alloc(size_bytes);

    device_copy(at, from, size_bytes);
    return at;
}

static inline void device_fill(void *at, int byte, size_t size_bytes)
{
    memset(at, byte, size_bytes);
    rig_written(at, size_bytes);
}

static inline void must_be_well(void)
{
    const char *error = rig_error();

    if (error != NULL)
        ck_abort_msg("%s", error);
}

/* A count of n, in a grid for `most`; rig_free((void *)count.n). */
static inline struct cuda_count count_of(uint32_t n, uint32_t most)
{
    return (struct cuda_count){to_device(&n, sizeof(n)), most};
}

/* The "generic" set of cpu, or "ref". */
static inline struct backend *open_backend(const char *name)
{
    struct backend_config config = {.n_threads = 1};
    struct backend *b = NULL;
    struct error err;

    ck_assert_int_eq(setenv("PARLEY_CPU", "generic", 1), 0);
    ck_assert_int_eq(backend_open(&b, name, &config, &err), STATUS_OK);
    return b;
}

static inline struct buffer *host_buffer(struct backend *b, const float *x, size_t n)
{
    struct buffer *m = b->type->buffer_open(b, n * sizeof(*x));

    ck_assert_ptr_nonnull(m);
    if (x != NULL)
        b->type->upload(b, m, x, n * sizeof(*x));
    return m;
}

/* Reads the buffer and closes it. */
static inline void host_read(struct backend *b, struct buffer *m, float *x, size_t n)
{
    struct error err;

    b->type->download(b, x, m, n * sizeof(*x));
    ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
    b->type->buffer_close(b, m);
}

static inline struct weight *host_weight(struct backend *b, const struct tensor *t)
{
    struct weight *w = NULL;
    struct error err;

    ck_assert_int_eq(b->type->weight_open(b, t, &w, &err), STATUS_OK);
    return w;
}

/* A weight on the device, repacked in two slices; rig_free(ret_room). */
static inline struct cuda_matrix device_matrix(const struct tensor *t, void **ret_room)
{
    struct cuda_matrix m;
    size_t size_bytes = cuda_matrix_lay_out(&m, t->type, t->n_rows, t->n_cols, NULL);
    size_t row_bytes = t->size_bytes / t->n_rows;
    uint32_t n_rows = (uint32_t)t->n_rows, first = n_rows / 2 / CUDA_PANEL_ROWS * CUDA_PANEL_ROWS;
    uint8_t *rows = to_device(t->data, t->size_bytes);

    *ret_room = rig_alloc(size_bytes);
    ck_assert_uint_eq(cuda_matrix_lay_out(&m, t->type, t->n_rows, t->n_cols, *ret_room),
                      size_bytes);
    if (first > 0)
        cuda_repack(&m, rows, 0, first, NULL);
    cuda_repack(&m, rows + first * row_bytes, first, n_rows - first, NULL);
    must_be_well();
    rig_free(rows);
    return m;
}

#endif
