/* Operators on rows of activations, on several threads where there are many. */
#include <assert.h>
#include <string.h>

#include "compute/cpu/parts.h"

enum { PIECE_VALUES = 4096 /* less is not worth sharing */ };

struct row_work {
    const struct cpu *cpu;
    size_t width;
    const float *from, *gain, *factors;
    const uint32_t *rows;
    float eps, factor, cap;
    float *to;
};

static void run_pieces(struct cpu *c, size_t n, void (*piece)(void *, size_t, size_t),
                       struct row_work *w)
{
    thread_pool_for(c->pool, n, 1 + PIECE_VALUES / (1 + w->width), piece, w);
}

static void norm_piece(void *arg, size_t begin, size_t end)
{
    const struct row_work *w = arg;

    for (size_t i = begin * w->width; i < end * w->width; i += w->width)
        w->cpu->kernels->rms_norm(w->from + i, w->gain, w->eps, w->width, w->to + i);
}

void cpu_norm(struct backend *b, const struct input *in, size_t n, size_t width, struct buffer *out)
{
    struct row_work w = {.cpu = to_cpu(b),
                         .width = width,
                         .from = cpu_read(in->x, n, width),
                         .eps = in->eps,
                         .to = cpu_written(out, n, width)};

    if (in->gain == NULL) {
        memmove(w.to, w.from, n * width * sizeof(*w.to));
        return;
    }
    assert(in->gain->row != NULL && in->gain->tensor.n_cols == width);
    w.gain = in->gain->row;
    run_pieces(to_cpu(b), n, norm_piece, &w);
}

static void add_rows_piece(void *arg, size_t begin, size_t end)
{
    const struct row_work *w = arg;

    w->cpu->kernels->add(w->to + begin * w->width, w->from + begin * w->width, w->factor,
                         (end - begin) * w->width);
}

void cpu_add(struct backend *b, const struct buffer *in, float factor, size_t n, size_t width,
             struct buffer *out)
{
    struct row_work w = {.cpu = to_cpu(b),
                         .width = width,
                         .from = cpu_read(in, n, width),
                         .factor = factor,
                         .to = cpu_written(out, n, width)};

    run_pieces(to_cpu(b), n, add_rows_piece, &w);
}

static void bias_piece(void *arg, size_t begin, size_t end)
{
    const struct row_work *w = arg;

    for (size_t i = begin; i < end; i++)
        w->cpu->kernels->add(w->to + i * w->width, w->from, 1.0f, w->width);
}

void cpu_add_bias(struct backend *b, const struct weight *bias, size_t n, struct buffer *x)
{
    size_t width = bias->tensor.n_cols;
    struct row_work w = {
        .cpu = to_cpu(b), .width = width, .from = bias->row, .to = cpu_written(x, n, width)};

    assert(bias->row != NULL);
    run_pieces(to_cpu(b), n, bias_piece, &w);
}

static void scale_piece(void *arg, size_t begin, size_t end)
{
    const struct row_work *w = arg;

    w->cpu->kernels->scale(w->to + begin * w->width, w->factor, w->cap, (end - begin) * w->width);
}

void cpu_scale(struct backend *b, float factor, float cap, size_t n, size_t width, struct buffer *x)
{
    struct row_work w = {.cpu = to_cpu(b),
                         .width = width,
                         .factor = factor,
                         .cap = cap,
                         .to = cpu_written(x, n, width)};

    run_pieces(to_cpu(b), n, scale_piece, &w);
}

static void scatter_piece(void *arg, size_t begin, size_t end)
{
    const struct row_work *w = arg;

    for (size_t i = begin; i < end; i++)
        w->cpu->kernels->add(w->to + w->rows[i] * w->width, w->from + i * w->width, w->factors[i],
                             w->width);
}

void cpu_scatter_add(struct backend *b, const struct buffer *in, const uint32_t *rows,
                     const float *factors, size_t n, size_t width, struct buffer *out)
{
    struct row_work w = {.cpu = to_cpu(b),
                         .width = width,
                         .from = cpu_read(in, n, width),
                         .factors = factors,
                         .rows = rows};

    for (size_t i = 0; i < n; i++)
        w.to = cpu_written(out, rows[i] + (size_t)1, width);
    run_pieces(to_cpu(b), n, scatter_piece, &w);
}

static void scale_rows_piece(void *arg, size_t begin, size_t end)
{
    const struct row_work *w = arg;

    for (size_t i = begin; i < end; i++)
        w->cpu->kernels->scale(w->to + i * w->width, w->factors[i], 0.0f, w->width);
}

void cpu_scale_rows(struct backend *b, const float *factors, size_t n, size_t width,
                    struct buffer *x)
{
    struct row_work w = {
        .cpu = to_cpu(b), .width = width, .factors = factors, .to = cpu_written(x, n, width)};

    run_pieces(to_cpu(b), n, scale_rows_piece, &w);
}
