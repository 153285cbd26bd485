/* Operators of small networks that learn, recorded for the list. */
#include <assert.h>
#include <string.h>

#include "compute/backend/net.h"
#include "compute/cuda/net_kernels.h"
#include "compute/cuda/parts.h"
#include "compute/numerics/optim_rows.h"

/* Arguments of most operators; each uses some of them. */
struct net_args {
    struct cuda_count n;
    uint32_t width, n_out, layer;
    float number;
    const void *host; /* staged: keep, draws, actions */
    const float *weights;
    const float *in, *w, *from, *before;
    float *x, *out, *more;
};

static void launch_zero(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_zero(a->x, a->n, a->width, stream);
}

static void cuda_run_net_zero(struct backend *b, struct buffer *x, size_t n, size_t width)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.x = cuda_written(x, n, width);
    list_add(&c->list, launch_zero, &a, sizeof(a));
}

static void launch_add(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_add(a->x, a->in, a->n, a->width, stream);
}

static void cuda_run_net_add(struct backend *b, struct buffer *x, const struct buffer *y, size_t n,
                             size_t width)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.x = cuda_written(x, n, width);
    a.in = cuda_read(y, n, width);
    list_add(&c->list, launch_add, &a, sizeof(a));
}

static void launch_keep_rows(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_keep_rows(a->host, a->n, a->width, a->x, stream);
}

static void cuda_run_net_keep_rows(struct backend *b, const bool *keep, size_t n, size_t width,
                                   struct buffer *x)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, list_bucket(n) * sizeof(*keep)))
        return;
    memset(&a, 0, sizeof(a));
    a.host = list_stage(&c->list, keep, n * sizeof(*keep), list_bucket(n) * sizeof(*keep), NULL);
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.x = cuda_written(x, n, width);
    list_add(&c->list, launch_keep_rows, &a, sizeof(a));
}

static void launch_linear(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_linear(a->in, a->w, a->from, a->n, a->width, a->n_out, a->out, stream);
}

static void cuda_run_net_linear(struct backend *b, const struct buffer *in, const struct buffer *w,
                                const struct buffer *bias, size_t n, size_t n_in, size_t n_out,
                                struct buffer *out)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    assert(in != out);
    if (n == 0 || n_out == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)n_in;
    a.n_out = (uint32_t)n_out;
    a.in = cuda_read(in, n, n_in);
    a.w = cuda_read(w, n_out, n_in);
    a.from = cuda_read(bias, 1, n_out);
    a.out = cuda_written(out, n, n_out);
    list_add(&c->list, launch_linear, &a, sizeof(a));
}

static void launch_linear_backward(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_linear_backward(a->in, a->w, a->from, a->n, a->width, a->n_out, a->x, a->out, a->more,
                             stream);
}

static void cuda_run_net_linear_backward(struct backend *b, const struct buffer *in,
                                         const struct buffer *w, const struct buffer *dout,
                                         size_t n, size_t n_in, size_t n_out, struct buffer *din,
                                         struct buffer *dw, struct buffer *dbias)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || n_out == 0 || n_in == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)n_in;
    a.n_out = (uint32_t)n_out;
    a.in = cuda_read(in, n, n_in);
    a.w = cuda_read(w, n_out, n_in);
    a.from = cuda_read(dout, n, n_out);
    a.x = din != NULL ? cuda_written(din, n, n_in) : NULL;
    a.out = cuda_written(dw, n_out, n_in);
    a.more = cuda_written(dbias, 1, n_out);
    list_add(&c->list, launch_linear_backward, &a, sizeof(a));
}

static void launch_dropout(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_dropout(a->host, a->layer, a->number, a->n, a->width, a->x, stream);
}

static void cuda_run_net_dropout(struct backend *b, const struct net_draw *draws, uint32_t layer,
                                 float rate, size_t n, size_t width, struct buffer *x)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, list_bucket(n) * sizeof(*draws)))
        return;
    memset(&a, 0, sizeof(a));
    a.host = list_stage(&c->list, draws, n * sizeof(*draws), list_bucket(n) * sizeof(*draws), NULL);
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.layer = layer;
    a.number = rate;
    a.x = cuda_written(x, n, width);
    list_add(&c->list, launch_dropout, &a, sizeof(a));
}

static void launch_relu(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_relu(a->x, a->n, a->width, stream);
}

static void cuda_run_net_relu(struct backend *b, struct buffer *x, size_t n, size_t width)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.x = cuda_written(x, n, width);
    list_add(&c->list, launch_relu, &a, sizeof(a));
}

static void launch_relu_backward(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_relu_backward(a->in, a->n, a->width, a->x, stream);
}

static void cuda_run_net_relu_backward(struct backend *b, const struct buffer *out, size_t n,
                                       size_t width, struct buffer *dx)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.in = cuda_read(out, n, width);
    a.x = cuda_written(dx, n, width);
    list_add(&c->list, launch_relu_backward, &a, sizeof(a));
}

static void launch_softmax(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_softmax(a->in, a->n, a->width, a->layer != 0, a->out, stream);
}

static void softmax_of(struct backend *b, const struct buffer *in, size_t n, size_t width,
                       bool is_log, struct buffer *out)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.layer = is_log;
    a.in = cuda_read(in, n, width);
    a.out = cuda_written(out, n, width);
    list_add(&c->list, launch_softmax, &a, sizeof(a));
}

static void cuda_run_net_softmax(struct backend *b, const struct buffer *in, size_t n, size_t width,
                                 struct buffer *out)
{
    softmax_of(b, in, n, width, false, out);
}

static void cuda_run_net_log_softmax(struct backend *b, const struct buffer *in, size_t n,
                                     size_t width, struct buffer *out)
{
    softmax_of(b, in, n, width, true, out);
}

static void launch_log_prob_backward(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_log_prob_backward(a->in, a->host, a->weights, a->number, a->n, a->width, a->out,
                               stream);
}

static void cuda_run_net_log_prob_backward(struct backend *b, const struct buffer *logp,
                                           const int32_t *actions, const float *weights,
                                           float entropy_weight, size_t n, size_t width,
                                           struct buffer *dlogits)
{
    struct cuda *c = to_cuda(b);
    size_t cap_bytes = list_bucket(n) * sizeof(*weights);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, 2 * cap_bytes))
        return;
    memset(&a, 0, sizeof(a));
    a.host = list_stage(&c->list, actions, n * sizeof(*actions), cap_bytes, NULL);
    a.weights = list_stage(&c->list, weights, n * sizeof(*weights), cap_bytes, NULL);
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.number = entropy_weight;
    a.in = cuda_read(logp, n, width);
    a.out = cuda_written(dlogits, n, width);
    list_add(&c->list, launch_log_prob_backward, &a, sizeof(a));
}

static void launch_lstm(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_lstm(a->x, a->from, a->before, a->n, a->width, a->out, a->more, stream);
}

static void cuda_run_net_lstm(struct backend *b, struct buffer *gates, const struct buffer *from_h,
                              const struct buffer *c_in, size_t n, size_t width,
                              struct buffer *c_out, struct buffer *h_out)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.x = cuda_written(gates, n, 4 * width);
    a.from = cuda_read(from_h, n, 4 * width);
    a.before = cuda_read(c_in, n, width);
    a.out = cuda_written(c_out, n, width);
    a.more = cuda_written(h_out, n, width);
    list_add(&c->list, launch_lstm, &a, sizeof(a));
}

static void launch_lstm_backward(const void *args, cudaStream_t stream)
{
    const struct net_args *a = args;

    cuda_net_lstm_backward(a->in, a->before, a->w, a->from, a->n, a->width, a->out, a->more,
                           stream);
}

static void cuda_run_net_lstm_backward(struct backend *b, const struct buffer *gates,
                                       const struct buffer *c_in, const struct buffer *c_out,
                                       const struct buffer *dh, size_t n, size_t width,
                                       struct buffer *dc, struct buffer *dgates)
{
    struct cuda *c = to_cuda(b);
    struct net_args a;

    if (n == 0 || width == 0 || !cuda_begin(c, 0))
        return;
    memset(&a, 0, sizeof(a));
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.in = cuda_read(gates, n, 4 * width);
    a.before = cuda_read(c_in, n, width);
    a.w = cuda_read(c_out, n, width);
    a.from = cuda_read(dh, n, width);
    a.out = cuda_written(dc, n, width);
    a.more = cuda_written(dgates, n, 4 * width);
    list_add(&c->list, launch_lstm_backward, &a, sizeof(a));
}

/* The rates change with each step, so they are inputs, and the list stays the same. */
struct optim_args {
    const struct optim_rates *rates;
    size_t n;
    const float *g;
    float *p, *m, *v;
};

static void launch_optim(const void *args, cudaStream_t stream)
{
    const struct optim_args *a = args;

    cuda_optim_step(a->rates, a->n, a->g, a->p, a->m, a->v, stream);
}

static void cuda_run_net_optim_step(struct backend *b, const struct optim *o, uint64_t step,
                                    float lr, size_t n, const struct buffer *g, struct buffer *p,
                                    struct buffer *m, struct buffer *v)
{
    const struct optim_rates rates = optim_rates_of(o, step, lr);
    struct cuda *c = to_cuda(b);
    struct optim_args a;

    assert(step > 0 && (o->kind == OPTIM_SGD) == (v == NULL));
    if (n == 0 || !cuda_begin(c, sizeof(rates)))
        return;
    memset(&a, 0, sizeof(a));
    a.rates = list_stage(&c->list, &rates, sizeof(rates), sizeof(rates), NULL);
    a.n = n;
    a.g = cuda_read(g, 1, n);
    a.p = cuda_written(p, 1, n);
    a.m = m != NULL ? cuda_written(m, 1, n) : NULL;
    a.v = v != NULL ? cuda_written(v, 1, n) : NULL;
    list_add(&c->list, launch_optim, &a, sizeof(a));
}

const struct net_ops cuda_net_ops = {
    .zero = cuda_run_net_zero,
    .add = cuda_run_net_add,
    .keep_rows = cuda_run_net_keep_rows,
    .linear = cuda_run_net_linear,
    .linear_backward = cuda_run_net_linear_backward,
    .dropout = cuda_run_net_dropout,
    .relu = cuda_run_net_relu,
    .relu_backward = cuda_run_net_relu_backward,
    .softmax = cuda_run_net_softmax,
    .log_softmax = cuda_run_net_log_softmax,
    .log_prob_backward = cuda_run_net_log_prob_backward,
    .lstm = cuda_run_net_lstm,
    .lstm_backward = cuda_run_net_lstm_backward,
    .optim_step = cuda_run_net_optim_step,
};
