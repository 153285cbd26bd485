/* Operators on rows that only the newer architectures need, on several threads where there are
 * many. */
#include <assert.h>
#include <string.h>

#include "compute/backend/gates.h"
#include "compute/cpu/parts.h"

/* Less is not worth sharing: of numbers that are computed, and of those that are copied. */
enum { PIECE_VALUES = 2048, COLUMNS_VALUES = 16384 };

struct gate_work {
    const struct cpu *cpu;
    size_t width;
    const float *from, *gain, *bias;
    float eps, value;
    enum activation kind;
    float *to;
};

static void gate_run(struct cpu *c, size_t n, void (*piece)(void *, size_t, size_t),
                     struct gate_work *w)
{
    thread_pool_for(c->pool, n, 1 + PIECE_VALUES / (1 + w->width), piece, w);
}

static void layer_norm_piece(void *arg, size_t begin, size_t end)
{
    const struct gate_work *w = arg;

    for (size_t i = begin * w->width; i < end * w->width; i += w->width)
        w->cpu->kernels->layer_norm(w->from + i, w->gain, w->bias, w->eps, w->width, w->to + i);
}

void cpu_layer_norm(struct backend *b, const struct layer_norm *how, const struct buffer *x,
                    size_t n, size_t width, struct buffer *out)
{
    struct gate_work w = {.cpu = to_cpu(b),
                          .width = width,
                          .from = cpu_read(x, n, width),
                          .gain = how->gain->row,
                          .bias = how->bias != NULL ? how->bias->row : NULL,
                          .eps = how->eps,
                          .to = cpu_written(out, n, width)};

    assert(how->gain->row != NULL && how->gain->tensor.n_cols == width);
    gate_run(to_cpu(b), n, layer_norm_piece, &w);
}

static void activate_piece(void *arg, size_t begin, size_t end)
{
    const struct gate_work *w = arg;
    size_t at = begin * w->width;

    w->cpu->kernels->activate(w->kind, w->to + at, w->from != NULL ? w->from + at : NULL,
                              (end - begin) * w->width);
}

void cpu_activate(struct backend *b, enum activation kind, const struct buffer *by, size_t n,
                  size_t width, struct buffer *x)
{
    struct gate_work w = {.cpu = to_cpu(b),
                          .width = width,
                          .from = by != NULL ? cpu_read(by, n, width) : NULL,
                          .kind = kind,
                          .to = cpu_written(x, n, width)};

    gate_run(to_cpu(b), n, activate_piece, &w);
}

struct column_work {
    const float *from;
    float *to;
    size_t width, in_stride, out_stride;
};

static void columns_piece(void *arg, size_t begin, size_t end)
{
    const struct column_work *w = arg;

    for (size_t i = begin; i < end; i++)
        memcpy(w->to + i * w->out_stride, w->from + i * w->in_stride, w->width * sizeof(*w->to));
}

void cpu_copy_columns(struct backend *b, const struct buffer *in, size_t in_stride, size_t in_at,
                      size_t n, size_t width, struct buffer *out, size_t out_stride, size_t out_at)
{
    struct column_work w = {.from = cpu_read(in, n, in_stride) + in_at,
                            .to = cpu_written(out, n, out_stride) + out_at,
                            .width = width,
                            .in_stride = in_stride,
                            .out_stride = out_stride};

    assert(in_at + width <= in_stride && out_at + width <= out_stride);
    thread_pool_for(to_cpu(b)->pool, n, 1 + COLUMNS_VALUES / (1 + width), columns_piece, &w);
}

static void gate_fill_piece(void *arg, size_t begin, size_t end)
{
    const struct gate_work *w = arg;

    for (size_t i = begin * w->width; i < end * w->width; i++)
        w->to[i] = w->value;
}

static void gate_cut_piece(void *arg, size_t begin, size_t end)
{
    const struct gate_work *w = arg;

    for (size_t i = begin; i < end; i++)
        gates_cut(w->value, w->width, w->to + i * w->width);
}

void cpu_cut(struct backend *b, float times, size_t n, size_t width, struct buffer *x)
{
    struct gate_work w = {
        .cpu = to_cpu(b), .width = width, .value = times, .to = cpu_written(x, n, width)};

    gate_run(to_cpu(b), n, gate_cut_piece, &w);
}

void cpu_fill(struct backend *b, float value, size_t n, size_t width, struct buffer *x)
{
    struct gate_work w = {
        .cpu = to_cpu(b), .width = width, .value = value, .to = cpu_written(x, n, width)};

    gate_run(to_cpu(b), n, gate_fill_piece, &w);
}
