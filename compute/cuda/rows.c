/* Operators on rows of activations. */
#include <assert.h>
#include <string.h>

#include "compute/cuda/parts.h"

struct row_norm_args {
    const float *x, *gain;
    float eps;
    struct cuda_count n;
    uint32_t width;
    float *out;
};

static void launch_row_norm(const void *args, cudaStream_t stream)
{
    const struct row_norm_args *a = args;

    cuda_norm(a->x, a->gain, a->eps, a->n, a->width, a->out, stream);
}

void cuda_norm_rows(struct backend *b, const struct input *in, size_t n, size_t width,
                    struct buffer *out)
{
    struct cuda *c = to_cuda(b);
    struct row_norm_args a;

    assert(in->gain == NULL || (in->gain->gain != NULL && in->gain->matrix.n_cols == width));
    if (n == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.x = cuda_read(in->x, n, width);
    a.gain = in->gain != NULL ? in->gain->gain : NULL;
    a.eps = in->eps;
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.out = cuda_written(out, n, width);
    list_add(&c->list, launch_row_norm, &a, sizeof(a));
}

struct add_args {
    float *x;
    const float *from;
    float factor;
    struct cuda_count n;
    uint32_t width;
    bool is_row;
};

static void launch_add_rows(const void *args, cudaStream_t stream)
{
    const struct add_args *a = args;

    cuda_add(a->x, a->from, a->factor, a->is_row, a->n, a->width, stream);
}

static void record_add(struct cuda *c, const float *from, bool is_row, float factor, size_t n,
                       size_t width, struct buffer *out)
{
    struct add_args a;

    memset(&a, 0, sizeof(a));
    a.x = cuda_written(out, n, width);
    a.from = from;
    a.factor = factor;
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.is_row = is_row;
    list_add(&c->list, launch_add_rows, &a, sizeof(a));
}

void cuda_add_rows(struct backend *b, const struct buffer *in, float factor, size_t n, size_t width,
                   struct buffer *out)
{
    struct cuda *c = to_cuda(b);

    if (n > 0 && cuda_begin(c, 0))
        record_add(c, cuda_read(in, n, width), false, factor, n, width, out);
}

void cuda_add_bias(struct backend *b, const struct weight *bias, size_t n, struct buffer *x)
{
    struct cuda *c = to_cuda(b);

    assert(bias->gain != NULL);
    if (n > 0 && cuda_begin(c, 0))
        record_add(c, bias->gain, true, 1.0f, n, bias->matrix.n_cols, x);
}

struct scatter_args {
    float *x;
    const float *from, *factors;
    const uint32_t *rows;
    struct cuda_count n;
    uint32_t width;
};

static void launch_scatter(const void *args, cudaStream_t stream)
{
    const struct scatter_args *a = args;

    cuda_scatter(a->x, a->from, a->rows, a->factors, a->n, a->width, stream);
}

void cuda_scatter_add(struct backend *b, const struct buffer *in, const uint32_t *rows,
                      const float *factors, size_t n, size_t width, struct buffer *out)
{
    struct cuda *c = to_cuda(b);
    size_t cap_bytes = list_bucket(n) * sizeof(*rows);
    struct scatter_args a;

    if (n == 0 || !cuda_begin(c, 2 * cap_bytes))
        return;
    memset(&a, 0, sizeof(a));
    for (size_t i = 0; i < n; i++)
        a.x = cuda_written(out, rows[i] + (size_t)1, width);
    a.from = cuda_read(in, n, width);
    a.rows = list_stage(&c->list, rows, n * sizeof(*rows), cap_bytes, NULL);
    a.factors = list_stage(&c->list, factors, n * sizeof(*factors), cap_bytes, NULL);
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    list_add(&c->list, launch_scatter, &a, sizeof(a));
}

struct scale_args {
    float *x;
    const float *factors;
    float factor, cap;
    struct cuda_count n;
    uint32_t width;
};

static void launch_scale(const void *args, cudaStream_t stream)
{
    const struct scale_args *a = args;

    cuda_scale(a->x, a->factors, a->factor, a->cap, a->n, a->width, stream);
}

/* factors [n] is host memory, or NULL. */
static void record_scale(struct cuda *c, const float *factors, float factor, float cap, size_t n,
                         size_t width, struct buffer *x)
{
    size_t cap_bytes = list_bucket(n) * sizeof(*factors);
    struct scale_args a;

    if (n == 0 || !cuda_begin(c, factors != NULL ? cap_bytes : 0))
        return;
    memset(&a, 0, sizeof(a));
    a.x = cuda_written(x, n, width);
    if (factors != NULL)
        a.factors = list_stage(&c->list, factors, n * sizeof(*factors), cap_bytes, NULL);
    a.factor = factor;
    a.cap = cap;
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    list_add(&c->list, launch_scale, &a, sizeof(a));
}

void cuda_scale_all(struct backend *b, float factor, float cap, size_t n, size_t width,
                    struct buffer *x)
{
    record_scale(to_cuda(b), NULL, factor, cap, n, width, x);
}

void cuda_scale_rows(struct backend *b, const float *factors, size_t n, size_t width,
                     struct buffer *x)
{
    record_scale(to_cuda(b), factors, 0.0f, 0.0f, n, width, x);
}
