/* --fast-math, and the measured rate of the vendor's library. */
#include <stdio.h>
#include <string.h>

#include "compute/cuda/kernels.h"
#include "compute/cuda/parts.h"

enum {
    /* The rows of a weight that are converted to f16 at once: enough work for all multiprocessors,
     * and few enough to stay in the cache between the kernel that writes them and the one that
     * reads. */
    WEIGHTS_BYTES = 32 << 20,
    ROWS_ALIGN = CUBLAS_ALIGN / sizeof(float), /* so that their results are aligned */
};

/* The number of rows of the weight that are multiplied at a time. */
static size_t rows_at_once(const struct cuda *c, const struct cuda_matrix *w)
{
    size_t n = c->fast.weights.cap_bytes / sizeof(uint16_t) / w->n_cols / ROWS_ALIGN * ROWS_ALIGN;

    return n < w->n_rows ? n : w->n_rows;
}

static enum status open_library(struct cuda *c, struct error *err)
{
    return c->gemm.blas != NULL ? STATUS_OK : gemm_open(&c->gemm, &c->device, &c->list, err);
}

/* Opens cuBLAS and the memory for weights in f16. */
static enum status fast_open_parts(struct cuda *c, struct error *err)
{
    enum status rc = open_library(c, err);

    if (rc != STATUS_OK)
        return rc;
    c->fast.weights.at = device_take(&c->device, WEIGHTS_BYTES);
    if (c->fast.weights.at == NULL)
        return device_no_memory(&c->device, WEIGHTS_BYTES, "weights in f16", err);
    c->fast.weights.cap_bytes = WEIGHTS_BYTES;
    return STATUS_OK;
}

void fast_open(struct cuda *c, const struct backend_config *config)
{
    struct fast *f = &c->fast;
    struct error err;
    size_t version;

    if (!config->fast_math) {
        (void)snprintf(f->products, sizeof(f->products), "own kernels, the same bits in any batch");
    } else if (fast_open_parts(c, &err) != STATUS_OK) {
        (void)snprintf(f->products, sizeof(f->products),
                       "own kernels, because cuBLAS is not available: %.110s", err.text);
    } else {
        f->is_on = true;
        f->from_rows = config->fast_math_from;
        version = c->gemm.blas->get_version();
        (void)snprintf(
            f->products, sizeof(f->products),
            "own kernels, and %.60s (%zu.%zu.%zu) for many rows: results depend on the batch",
            c->gemm.blas->file, version / 10000, version / 100 % 100, version % 100);
    }
}

void fast_close(struct cuda *c)
{
    struct cuda_scratch *all[] = {&c->fast.weights, &c->fast.inputs, &c->fast.idle};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        cuda_give_back(c, all[i]->at);
    gemm_close(&c->gemm);
}

/* The rows that are multiplied for n: as many as others of their bucket, so that steps that differ
 * a little share cuBLAS's plan and the list's graph, or as many as the result has room for. What
 * comes of those behind n is of no meaning. */
static size_t rounded_rows(const struct product *p, size_t n)
{
    size_t room = p->out->size_bytes / sizeof(float) / p->w->matrix.n_rows;
    size_t rounded = list_bucket(n);

    return rounded < room ? rounded : room;
}

bool fast_takes(struct cuda *c, const struct product *p, size_t n, size_t from_rows)
{
    const struct cuda_matrix *w = &p->w->matrix;
    const struct fast *f = &c->fast;
    size_t at_once, last;

    if (!f->is_on || n < (f->from_rows != 0 ? f->from_rows : from_rows))
        return false;
    at_once = rows_at_once(c, w);
    if (at_once == 0)
        return false;
    last = w->n_rows % at_once;
    n = rounded_rows(p, n);
    return gemm_takes(&c->gemm, &(struct gemm_shape){n, at_once, w->n_cols, w->n_rows}) &&
           (last == 0 || gemm_takes(&c->gemm, &(struct gemm_shape){n, last, w->n_cols, w->n_rows}));
}

uint16_t *fast_inputs(struct cuda *c, size_t n, size_t width)
{
    return cuda_scratch(c, &c->fast.inputs, list_bucket(n) * width * sizeof(uint16_t));
}

struct f16_args {
    struct cuda_matrix from;
    uint32_t first, n;
    uint16_t *to;
};

static void launch_f16(const void *args, cudaStream_t stream)
{
    const struct f16_args *a = args;

    cuda_matrix_f16(&a->from, a->first, a->n, a->to, stream);
}

void fast_multiply(struct cuda *c, const struct product *p, const uint16_t *in, size_t n, bool adds)
{
    const struct cuda_matrix *w = &p->w->matrix;
    size_t at_once = rows_at_once(c, w), rounded = rounded_rows(p, n);
    float *out = cuda_written(p->out, n, w->n_rows);
    struct f16_args a;

    memset(&a, 0, sizeof(a));
    a.from = *w;
    a.to = c->fast.weights.at;
    for (size_t first = 0; first < w->n_rows; first += at_once) {
        size_t left = w->n_rows - first;

        a.first = (uint32_t)first;
        a.n = (uint32_t)(left < at_once ? left : at_once);
        list_add(&c->list, launch_f16, &a, sizeof(a));
        gemm_add(&c->gemm, &(struct gemm_shape){rounded, a.n, w->n_cols, w->n_rows}, in, a.to,
                 out + first, adds);
    }
}

bool cuda_vendor_matmul(struct backend *b, size_t n, size_t n_rows, size_t n_cols)
{
    const size_t parts[] = {n * n_cols * sizeof(uint16_t), n_rows * n_cols * sizeof(uint16_t),
                            n * n_rows * sizeof(float)};
    const struct gemm_shape shape = {n, n_rows, n_cols, n_rows};
    struct cuda *c = to_cuda(b);
    uint8_t *at[3];
    size_t end = 0;
    struct error err;

    if (open_library(c, &err) != STATUS_OK || !gemm_takes(&c->gemm, &shape))
        return false;
    for (size_t i = 0; i < 3; i++)
        end += (parts[i] + CUBLAS_ALIGN - 1) / CUBLAS_ALIGN * CUBLAS_ALIGN;
    at[0] = cuda_scratch(c, &c->fast.idle, end);
    if (at[0] == NULL || !cuda_begin(c, 0))
        return true; /* the failure is kept */
    for (size_t i = 1; i < 3; i++)
        at[i] = at[i - 1] + (parts[i - 1] + CUBLAS_ALIGN - 1) / CUBLAS_ALIGN * CUBLAS_ALIGN;
    gemm_add(&c->gemm, &shape, (const uint16_t *)at[0], (const uint16_t *)at[1], (float *)at[2],
             false);
    return true;
}
