/* The definition of the operators of net.h. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/backend/net.h"
#include "compute/numerics/net_rows.h"
#include "compute/ref/parts.h"

static void ref_zero(struct backend *b, struct buffer *x, size_t n, size_t width)
{
    memset(ref_floats(x, n, width), 0, n * width * sizeof(float));
}

static void ref_net_add(struct backend *b, struct buffer *x, const struct buffer *y, size_t n,
                        size_t width)
{
    float *to = ref_floats(x, n, width);
    const float *from = ref_const_floats(y, n, width);

    for (size_t i = 0; i < n * width; i++)
        to[i] += from[i];
}

static void ref_add_at(struct backend *b, struct buffer *x, size_t n_x, const uint32_t *rows,
                       const struct buffer *y, size_t n, size_t width)
{
    float *to = ref_floats(x, n_x, width);
    const float *from = ref_const_floats(y, n, width);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < width; k++)
            to[rows[i] * width + k] += from[i * width + k];
}

static void ref_keep_rows(struct backend *b, const bool *keep, size_t n, size_t width,
                          struct buffer *x)
{
    float *rows = ref_floats(x, n, width);

    for (size_t i = 0; i < n; i++)
        if (!keep[i])
            memset(rows + i * width, 0, width * sizeof(*rows));
}

static float fma_dot(const float *x, const float *y, size_t n)
{
    float lanes[SCALAR_LANES] = {0};

    for (size_t k = 0; k < n; k++)
        lanes[k % SCALAR_LANES] = fmaf(x[k], y[k], lanes[k % SCALAR_LANES]);
    return scalar_sum_lanes(lanes);
}

static void ref_linear(struct backend *b, const struct buffer *in, const struct buffer *w,
                       const struct buffer *bias, size_t n, size_t n_in, size_t n_out,
                       struct buffer *out)
{
    const float *x = ref_const_floats(in, n, n_in), *rows = ref_const_floats(w, n_out, n_in);
    const float *start = ref_const_floats(bias, 1, n_out);
    float *y = ref_floats(out, n, n_out);

    assert(in != out);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_out; j++)
            y[i * n_out + j] = start[j] + fma_dot(x + i * n_in, rows + j * n_in, n_in);
}

static void ref_linear_grouped(struct backend *b, const struct buffer *in,
                               const struct net_group *groups, size_t n_groups, size_t n_in,
                               size_t n_out, struct buffer *out)
{
    size_t n = 0, i = 0;

    assert(in != out);
    for (size_t g = 0; g < n_groups; g++) {
        const float *rows = ref_const_floats(groups[g].w, n_out, n_in);
        const float *start = ref_const_floats(groups[g].bias, 1, n_out);
        const float *x;
        float *y;

        n += groups[g].n_rows;
        x = ref_const_floats(in, n, n_in);
        y = ref_floats(out, n, n_out);
        for (; i < n; i++)
            for (size_t j = 0; j < n_out; j++)
                y[i * n_out + j] = start[j] + fma_dot(x + i * n_in, rows + j * n_in, n_in);
    }
}

static void ref_linear_backward(struct backend *b, const struct buffer *in, const struct buffer *w,
                                const struct buffer *dout, size_t n, size_t n_in, size_t n_out,
                                struct buffer *din, struct buffer *dw, struct buffer *dbias)
{
    const float *x = ref_const_floats(in, n, n_in), *rows = ref_const_floats(w, n_out, n_in);
    const float *dy = ref_const_floats(dout, n, n_out);
    float *drows = ref_floats(dw, n_out, n_in), *dstart = ref_floats(dbias, 1, n_out);

    if (din != NULL) {
        float *dx = ref_floats(din, n, n_in);

        memset(dx, 0, n * n_in * sizeof(*dx));
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n_out; j++)
                for (size_t k = 0; k < n_in; k++)
                    dx[i * n_in + k] =
                        fmaf(dy[i * n_out + j], rows[j * n_in + k], dx[i * n_in + k]);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_out; j++) {
            for (size_t k = 0; k < n_in; k++)
                drows[j * n_in + k] = fmaf(dy[i * n_out + j], x[i * n_in + k], drows[j * n_in + k]);
            dstart[j] += dy[i * n_out + j];
        }
}

static void ref_dropout(struct backend *b, const struct net_draw *draws, uint32_t layer, float rate,
                        size_t n, size_t width, struct buffer *x)
{
    float *rows = ref_floats(x, n, width);

    for (size_t i = 0; i < n; i++)
        net_row_dropout(&draws[i], layer, rate, width, rows + i * width);
}

static void ref_relu(struct backend *b, struct buffer *x, size_t n, size_t width)
{
    float *y = ref_floats(x, n, width);

    for (size_t i = 0; i < n * width; i++)
        y[i] = 0.0f > y[i] ? 0.0f : y[i]; /* a NaN is not hidden */
}

static void ref_relu_backward(struct backend *b, const struct buffer *out, size_t n, size_t width,
                              struct buffer *dx)
{
    const float *y = ref_const_floats(out, n, width);
    float *d = ref_floats(dx, n, width);

    for (size_t i = 0; i < n * width; i++)
        d[i] = y[i] > 0.0f ? d[i] : 0.0f;
}

static void ref_softmax(struct backend *b, const struct buffer *in, size_t n, size_t width,
                        struct buffer *out)
{
    const float *x = ref_const_floats(in, n, width);
    float *y = ref_floats(out, n, width);

    for (size_t i = 0; i < n; i++)
        net_row_softmax(x + i * width, width, y + i * width);
}

static void ref_log_softmax(struct backend *b, const struct buffer *in, size_t n, size_t width,
                            struct buffer *out)
{
    const float *x = ref_const_floats(in, n, width);
    float *y = ref_floats(out, n, width);

    for (size_t i = 0; i < n; i++)
        net_row_log_softmax(x + i * width, width, y + i * width);
}

static void ref_log_prob_backward(struct backend *b, const struct buffer *logp,
                                  const int32_t *actions, const float *weights,
                                  float entropy_weight, size_t n, size_t width,
                                  struct buffer *dlogits)
{
    const float *l = ref_const_floats(logp, n, width);
    float *d = ref_floats(dlogits, n, width);

    for (size_t i = 0; i < n; i++)
        net_row_log_prob_backward(l + i * width, actions[i], weights[i], entropy_weight, width,
                                  d + i * width);
}

static void ref_lstm(struct backend *b, struct buffer *gates, const struct buffer *from_h,
                     const struct buffer *c_in, size_t n, size_t width, struct buffer *c_out,
                     struct buffer *h_out)
{
    float *g = ref_floats(gates, n, 4 * width);
    const float *from = ref_const_floats(from_h, n, 4 * width);
    const float *c = ref_const_floats(c_in, n, width);
    float *to_c = ref_floats(c_out, n, width), *to_h = ref_floats(h_out, n, width);

    for (size_t i = 0; i < n; i++)
        net_row_lstm(g + i * 4 * width, from + i * 4 * width, c + i * width, width,
                     to_c + i * width, to_h + i * width);
}

static void ref_lstm_backward(struct backend *b, const struct buffer *gates,
                              const struct buffer *c_in, const struct buffer *c_out,
                              const struct buffer *dh, size_t n, size_t width, struct buffer *dc,
                              struct buffer *dgates)
{
    const float *g = ref_const_floats(gates, n, 4 * width);
    const float *before = ref_const_floats(c_in, n, width);
    const float *after = ref_const_floats(c_out, n, width), *d = ref_const_floats(dh, n, width);
    float *to_c = ref_floats(dc, n, width), *to_g = ref_floats(dgates, n, 4 * width);

    for (size_t i = 0; i < n; i++)
        net_row_lstm_backward(g + i * 4 * width, before + i * width, after + i * width,
                              d + i * width, width, to_c + i * width, to_g + i * 4 * width);
}

static void ref_optim_step(struct backend *b, const struct optim *o, uint64_t step, float lr,
                           size_t n, const struct buffer *g, struct buffer *p, struct buffer *m,
                           struct buffer *v)
{
    optim_ref_step(o, step, lr, ref_floats(p, 1, n), ref_const_floats(g, 1, n),
                   m != NULL ? ref_floats(m, 1, n) : NULL, v != NULL ? ref_floats(v, 1, n) : NULL,
                   n);
}

const struct net_ops ref_net_ops = {
    .zero = ref_zero,
    .add = ref_net_add,
    .add_at = ref_add_at,
    .keep_rows = ref_keep_rows,
    .linear = ref_linear,
    .linear_grouped = ref_linear_grouped,
    .linear_backward = ref_linear_backward,
    .dropout = ref_dropout,
    .relu = ref_relu,
    .relu_backward = ref_relu_backward,
    .softmax = ref_softmax,
    .log_softmax = ref_log_softmax,
    .log_prob_backward = ref_log_prob_backward,
    .lstm = ref_lstm,
    .lstm_backward = ref_lstm_backward,
    .optim_step = ref_optim_step,
};
