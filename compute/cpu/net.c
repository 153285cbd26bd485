/* The operators of net.h on the processor: layers by the kernels of the set, rows by the definition
 * they share with `ref`, both over the thread pool. */
#include <assert.h>
#include <string.h>

#include "compute/backend/net.h"
#include "compute/cpu/parts.h"
#include "compute/numerics/net_rows.h"

/* Waking the pool's threads takes some ten microseconds, and between the steps of a policy they
 * sleep, so less work than that is not shared. */
enum {
    PIECE_VALUES = 1 << 16,   /* of a row-wise operator */
    PIECE_PRODUCTS = 1 << 18, /* of a layer, times rows */
    PIECE_OUT = 32,           /* products that an output's sum costs in addition */
    PIECE_OUTS = 16,          /* whole tiles of a layer's outputs */
    PIECE_COLUMNS = 64,       /* whole tiles of a gradient's columns */
};

static size_t cpu_net_grain_of(size_t piece, size_t each)
{
    return 1 + piece / (1 + each);
}

static void cpu_net_zero(struct backend *b, struct buffer *x, size_t n, size_t width)
{
    memset(cpu_written(x, n, width), 0, n * width * sizeof(float));
}

static void cpu_net_add_at(struct backend *b, struct buffer *x, size_t n_x, const uint32_t *rows,
                           const struct buffer *y, size_t n, size_t width)
{
    float *to = cpu_written(x, n_x, width);
    const float *from = cpu_read(y, n, width);

    for (size_t i = 0; i < n; i++) {
        float *row = to + rows[i] * width;

        for (size_t k = 0; k < width; k++)
            row[k] += from[i * width + k];
    }
}

static void cpu_net_keep_rows(struct backend *b, const bool *keep, size_t n, size_t width,
                              struct buffer *x)
{
    float *rows = cpu_written(x, n, width);

    for (size_t i = 0; i < n; i++)
        if (!keep[i])
            memset(rows + i * width, 0, width * sizeof(*rows));
}

/* Layers. */

struct packed_layer {
    const struct kernels *kernels;
    struct linear_slice slice;
    float *packed; /* to be filled; NULL */
};

static void cpu_net_pack_piece(void *arg, size_t begin, size_t end)
{
    const struct packed_layer *l = arg;

    l->kernels->linear_pack(&l->slice, l->packed, begin, end);
}

static void forward_piece(void *arg, size_t begin, size_t end)
{
    const struct packed_layer *l = arg;
    size_t n_out = l->slice.n_out;

    end *= PIECE_OUTS;
    l->kernels->linear(&l->slice, begin * PIECE_OUTS, end < n_out ? end : n_out);
}

static void cpu_net_linear(struct backend *b, const struct buffer *in, const struct buffer *w,
                           const struct buffer *bias, size_t n, size_t n_in, size_t n_out,
                           struct buffer *out)
{
    struct cpu *c = to_cpu(b);
    struct packed_layer l = {c->kernels,
                             {.n = n,
                              .n_in = n_in,
                              .n_out = n_out,
                              .in = cpu_read(in, n, n_in),
                              .w = cpu_read(w, n_out, n_in),
                              .bias = cpu_read(bias, 1, n_out),
                              .out = cpu_written(out, n, n_out)},
                             NULL};

    assert(in != out);
    if (linear_packs(n, n_in)) {
        size_t width = linear_packed_width(n_in);

        if (!cpu_reserve(c, &c->packed, &c->packed_cap, LINE_BYTES + n * width * sizeof(float), 1,
                         "a layer's inputs"))
            return;
        l.packed = cpu_line_up(c->packed);
        l.slice.packed = l.packed;
        thread_pool_for(c->pool, width / LINEAR_VECTOR,
                        cpu_net_grain_of(PIECE_VALUES, n * LINEAR_VECTOR), cpu_net_pack_piece, &l);
    }
    thread_pool_for(c->pool, (n_out + PIECE_OUTS - 1) / PIECE_OUTS,
                    cpu_net_grain_of(PIECE_PRODUCTS, n * (n_in + PIECE_OUT) * PIECE_OUTS),
                    forward_piece, &l);
}

/* Layers of one shape, each of some of the rows. */
struct grouped_layer {
    const struct kernels *kernels;
    const struct net_group *groups;
    size_t n_in, n_out;
    const float *in; /* [rows][n_in] */
    float *out;      /* [rows][n_out] */
};

/* Whole groups: so much work is worth a thread only where there are many. Rows that linear would
 * pack go one by one, since there is no memory for their packed inputs; the bits are the same. */
static void grouped_piece(void *arg, size_t begin, size_t end)
{
    const struct grouped_layer *l = arg;
    size_t row = 0;

    for (size_t g = 0; g < begin; g++)
        row += l->groups[g].n_rows;
    for (size_t g = begin; g < end; g++) {
        const struct net_group *group = &l->groups[g];
        size_t last = row + group->n_rows;
        size_t n = linear_packs(group->n_rows, l->n_in) ? 1 : group->n_rows;
        struct linear_slice slice = {.n = n,
                                     .n_in = l->n_in,
                                     .n_out = l->n_out,
                                     .w = cpu_read(group->w, l->n_out, l->n_in),
                                     .bias = cpu_read(group->bias, 1, l->n_out)};

        for (; row < last; row += n) {
            slice.in = l->in + row * l->n_in;
            slice.out = l->out + row * l->n_out;
            l->kernels->linear(&slice, 0, l->n_out);
        }
    }
}

static void cpu_net_linear_grouped(struct backend *b, const struct buffer *in,
                                   const struct net_group *groups, size_t n_groups, size_t n_in,
                                   size_t n_out, struct buffer *out)
{
    struct cpu *c = to_cpu(b);
    struct grouped_layer l = {c->kernels, groups, n_in, n_out, NULL, NULL};
    size_t n = 0;

    assert(in != out && n_groups > 0);
    for (size_t g = 0; g < n_groups; g++)
        n += groups[g].n_rows;
    l.in = cpu_read(in, n, n_in);
    l.out = cpu_written(out, n, n_out);
    thread_pool_for(c->pool, n_groups,
                    cpu_net_grain_of(PIECE_PRODUCTS, n / n_groups * (n_in + PIECE_OUT) * n_out),
                    grouped_piece, &l);
}

static void to_input_piece(void *arg, size_t begin, size_t end)
{
    const struct packed_layer *l = arg;
    size_t n_in = l->slice.n_in;

    end *= PIECE_COLUMNS;
    l->kernels->linear_to_input(&l->slice, begin * PIECE_COLUMNS, end < n_in ? end : n_in);
}

static void to_weight_piece(void *arg, size_t begin, size_t end)
{
    const struct packed_layer *l = arg;

    l->kernels->linear_to_weight(&l->slice, begin, end);
}

static void cpu_net_linear_backward(struct backend *b, const struct buffer *in,
                                    const struct buffer *w, const struct buffer *dout, size_t n,
                                    size_t n_in, size_t n_out, struct buffer *din,
                                    struct buffer *dw, struct buffer *dbias)
{
    struct cpu *c = to_cpu(b);
    const float *dy = cpu_read(dout, n, n_out);
    float *dstart = cpu_written(dbias, 1, n_out);
    struct packed_layer l = {c->kernels, {.n = n, .n_in = n_in, .n_out = n_out, .dout = dy}, NULL};

    if (din != NULL) {
        l.slice.w = cpu_read(w, n_out, n_in);
        l.slice.out = cpu_written(din, n, n_in);
        thread_pool_for(c->pool, (n_in + PIECE_COLUMNS - 1) / PIECE_COLUMNS,
                        cpu_net_grain_of(PIECE_PRODUCTS, n * n_out * PIECE_COLUMNS), to_input_piece,
                        &l);
    }
    l.slice.in = cpu_read(in, n, n_in);
    l.slice.out = cpu_written(dw, n_out, n_in);
    thread_pool_for(c->pool, n_out, cpu_net_grain_of(PIECE_PRODUCTS, n * n_in), to_weight_piece,
                    &l);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_out; j++)
            dstart[j] += dy[i * n_out + j];
}

/* Rows. Each operator sets only the members that it uses. */

struct rows {
    const struct kernels *kernels;
    size_t width;
    const struct net_draw *draws;
    const int32_t *actions;
    const float *weights;
    uint32_t layer;
    float number; /* dropout's rate, or the weight of the entropy */
    const float *in, *gates, *c_in, *c_out;
    float *out, *to_gates, *to_c;
};

static void dropout_piece(void *arg, size_t begin, size_t end)
{
    const struct rows *r = arg;

    for (size_t i = begin; i < end; i++)
        if (r->draws[i].drops)
            r->kernels->dropout(&r->draws[i], r->layer, r->number, r->width, r->out + i * r->width);
}

static void cpu_net_dropout(struct backend *b, const struct net_draw *draws, uint32_t layer,
                            float rate, size_t n, size_t width, struct buffer *x)
{
    struct cpu *c = to_cpu(b);
    struct rows r = {.kernels = c->kernels,
                     .width = width,
                     .draws = draws,
                     .layer = layer,
                     .number = rate,
                     .out = cpu_written(x, n, width)};

    thread_pool_for(c->pool, n, cpu_net_grain_of(PIECE_VALUES / 8, width), dropout_piece, &r);
}

static void relu_piece(void *arg, size_t begin, size_t end)
{
    const struct rows *r = arg;

    for (size_t i = begin; i < end; i++)
        r->out[i] = 0.0f > r->out[i] ? 0.0f : r->out[i];
}

static void cpu_net_relu(struct backend *b, struct buffer *x, size_t n, size_t width)
{
    struct cpu *c = to_cpu(b);
    struct rows r = {.out = cpu_written(x, n, width)};

    thread_pool_for(c->pool, n * width, PIECE_VALUES, relu_piece, &r);
}

static void add_piece(void *arg, size_t begin, size_t end)
{
    const struct rows *r = arg;

    for (size_t i = begin; i < end; i++)
        r->out[i] += r->in[i];
}

static void cpu_net_add(struct backend *b, struct buffer *x, const struct buffer *y, size_t n,
                        size_t width)
{
    struct cpu *c = to_cpu(b);
    struct rows r = {.in = cpu_read(y, n, width), .out = cpu_written(x, n, width)};

    thread_pool_for(c->pool, n * width, PIECE_VALUES, add_piece, &r);
}

static void relu_backward_piece(void *arg, size_t begin, size_t end)
{
    const struct rows *r = arg;

    for (size_t i = begin; i < end; i++)
        r->out[i] = r->in[i] > 0.0f ? r->out[i] : 0.0f;
}

static void cpu_net_relu_backward(struct backend *b, const struct buffer *out, size_t n,
                                  size_t width, struct buffer *dx)
{
    struct cpu *c = to_cpu(b);
    struct rows r = {.in = cpu_read(out, n, width), .out = cpu_written(dx, n, width)};

    thread_pool_for(c->pool, n * width, PIECE_VALUES, relu_backward_piece, &r);
}

static void softmax_piece(void *arg, size_t begin, size_t end)
{
    const struct rows *r = arg;

    for (size_t i = begin; i < end; i++)
        net_row_softmax(r->in + i * r->width, r->width, r->out + i * r->width);
}

static void log_softmax_piece(void *arg, size_t begin, size_t end)
{
    const struct rows *r = arg;

    for (size_t i = begin; i < end; i++)
        net_row_log_softmax(r->in + i * r->width, r->width, r->out + i * r->width);
}

static void over_rows(struct backend *b, thread_pool_fn piece, const struct buffer *in, size_t n,
                      size_t width, struct buffer *out)
{
    struct cpu *c = to_cpu(b);
    struct rows r = {
        .width = width, .in = cpu_read(in, n, width), .out = cpu_written(out, n, width)};

    thread_pool_for(c->pool, n, cpu_net_grain_of(PIECE_VALUES / 8, width), piece, &r);
}

static void cpu_net_softmax(struct backend *b, const struct buffer *in, size_t n, size_t width,
                            struct buffer *out)
{
    over_rows(b, softmax_piece, in, n, width, out);
}

static void cpu_net_log_softmax(struct backend *b, const struct buffer *in, size_t n, size_t width,
                                struct buffer *out)
{
    over_rows(b, log_softmax_piece, in, n, width, out);
}

static void log_prob_backward_piece(void *arg, size_t begin, size_t end)
{
    const struct rows *r = arg;

    for (size_t i = begin; i < end; i++)
        net_row_log_prob_backward(r->in + i * r->width, r->actions[i], r->weights[i], r->number,
                                  r->width, r->out + i * r->width);
}

static void cpu_net_log_prob_backward(struct backend *b, const struct buffer *logp,
                                      const int32_t *actions, const float *weights,
                                      float entropy_weight, size_t n, size_t width,
                                      struct buffer *dlogits)
{
    struct cpu *c = to_cpu(b);
    struct rows r = {.width = width,
                     .actions = actions,
                     .weights = weights,
                     .number = entropy_weight,
                     .in = cpu_read(logp, n, width),
                     .out = cpu_written(dlogits, n, width)};

    thread_pool_for(c->pool, n, cpu_net_grain_of(PIECE_VALUES / 8, width), log_prob_backward_piece,
                    &r);
}

static void lstm_piece(void *arg, size_t begin, size_t end)
{
    const struct rows *r = arg;
    size_t width = r->width;

    for (size_t i = begin; i < end; i++)
        net_row_lstm(r->to_gates + i * 4 * width, r->in + i * 4 * width, r->c_in + i * width, width,
                     r->to_c + i * width, r->out + i * width);
}

static void cpu_net_lstm(struct backend *b, struct buffer *gates, const struct buffer *from_h,
                         const struct buffer *c_in, size_t n, size_t width, struct buffer *c_out,
                         struct buffer *h_out)
{
    struct cpu *c = to_cpu(b);
    struct rows r = {.width = width,
                     .in = cpu_read(from_h, n, 4 * width),
                     .c_in = cpu_read(c_in, n, width),
                     .to_gates = cpu_written(gates, n, 4 * width),
                     .to_c = cpu_written(c_out, n, width),
                     .out = cpu_written(h_out, n, width)};

    thread_pool_for(c->pool, n, cpu_net_grain_of(PIECE_VALUES / 8, width), lstm_piece, &r);
}

static void lstm_backward_piece(void *arg, size_t begin, size_t end)
{
    const struct rows *r = arg;
    size_t width = r->width;

    for (size_t i = begin; i < end; i++)
        net_row_lstm_backward(r->gates + i * 4 * width, r->c_in + i * width, r->c_out + i * width,
                              r->in + i * width, width, r->to_c + i * width,
                              r->to_gates + i * 4 * width);
}

static void cpu_net_lstm_backward(struct backend *b, const struct buffer *gates,
                                  const struct buffer *c_in, const struct buffer *c_out,
                                  const struct buffer *dh, size_t n, size_t width,
                                  struct buffer *dc, struct buffer *dgates)
{
    struct cpu *c = to_cpu(b);
    struct rows r = {.width = width,
                     .in = cpu_read(dh, n, width),
                     .gates = cpu_read(gates, n, 4 * width),
                     .c_in = cpu_read(c_in, n, width),
                     .c_out = cpu_read(c_out, n, width),
                     .to_c = cpu_written(dc, n, width),
                     .to_gates = cpu_written(dgates, n, 4 * width)};

    thread_pool_for(c->pool, n, cpu_net_grain_of(PIECE_VALUES / 8, width), lstm_backward_piece, &r);
}

/* The optimiser: every number by itself. */

struct optim_call {
    const struct optim *optim;
    uint64_t step;
    float lr;
    const float *g;
    float *p, *m, *v;
};

static void optim_piece(void *arg, size_t begin, size_t end)
{
    const struct optim_call *o = arg;

    optim_ref_step(o->optim, o->step, o->lr, o->p + begin, o->g + begin,
                   o->m != NULL ? o->m + begin : NULL, o->v != NULL ? o->v + begin : NULL,
                   end - begin);
}

static void cpu_net_optim_step(struct backend *b, const struct optim *o, uint64_t step, float lr,
                               size_t n, const struct buffer *g, struct buffer *p, struct buffer *m,
                               struct buffer *v)
{
    struct cpu *c = to_cpu(b);
    struct optim_call call = {.optim = o,
                              .step = step,
                              .lr = lr,
                              .g = cpu_read(g, 1, n),
                              .p = cpu_written(p, 1, n),
                              .m = m != NULL ? cpu_written(m, 1, n) : NULL,
                              .v = v != NULL ? cpu_written(v, 1, n) : NULL};

    thread_pool_for(c->pool, n, PIECE_VALUES, optim_piece, &call);
}

const struct net_ops cpu_net_ops = {
    .zero = cpu_net_zero,
    .add = cpu_net_add,
    .add_at = cpu_net_add_at,
    .keep_rows = cpu_net_keep_rows,
    .linear = cpu_net_linear,
    .linear_grouped = cpu_net_linear_grouped,
    .linear_backward = cpu_net_linear_backward,
    .dropout = cpu_net_dropout,
    .relu = cpu_net_relu,
    .relu_backward = cpu_net_relu_backward,
    .softmax = cpu_net_softmax,
    .log_softmax = cpu_net_log_softmax,
    .log_prob_backward = cpu_net_log_prob_backward,
    .lstm = cpu_net_lstm,
    .lstm_backward = cpu_net_lstm_backward,
    .optim_step = cpu_net_optim_step,
};
