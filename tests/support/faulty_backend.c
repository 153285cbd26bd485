#include "tests/support/faulty_backend.h"

#include <assert.h>

#include "base/alloc.h"
#include "compute/backend/net.h"
#include "compute/backends.h"

enum status faulty_status = STATUS_EXHAUSTED;
size_t faulty_n_opened;
bool faulty_was_fast;
bool faulty_cannot_open;

struct faulty {
    struct backend base;
    struct backend *real;
    bool has_failed;
    size_t n_held; /* buffers, weights and caches that are open */
};

static struct backend *real_of(struct backend *b)
{
    return ((struct faulty *)b)->real;
}

/* False if the operator must do nothing. */
static bool works(struct backend *b)
{
    struct faulty *f = (struct faulty *)b;

    f->has_failed = f->has_failed || fault_now();
    return !f->has_failed;
}

/* Counts an opened thing; NULL counts nothing. */
static void *hold(struct backend *b, void *thing)
{
    ((struct faulty *)b)->n_held += thing != NULL;
    return thing;
}

static void let_go(struct backend *b, const void *thing)
{
    ((struct faulty *)b)->n_held -= thing != NULL;
}

static enum status faulty_open(struct backend *b, const struct backend_config *config,
                               struct error *err)
{
    if (faulty_cannot_open)
        return error_set(err, STATUS_UNAVAILABLE, "no device is there");
    faulty_n_opened++;
    faulty_was_fast = config->fast_math;
    return backend_open(&((struct faulty *)b)->real, "ref",
                        &(struct backend_config){.n_threads = config->n_threads}, err);
}

static void faulty_close(struct backend *b)
{
    assert(((struct faulty *)b)->n_held ==
           0); /* everything on a device is closed before the device */
    backend_close(real_of(b));
}

static enum status faulty_sync(struct backend *b, struct error *err)
{
    struct faulty *f = (struct faulty *)b;
    bool worked = works(b);
    enum status rc = f->real->type->sync(f->real, err);

    if (worked)
        return rc;
    f->has_failed =
        faulty_status == STATUS_INTERNAL; /* the device stays failed until it is closed */
    return error_set(err, faulty_status, "the device has failed");
}

static struct buffer *faulty_buffer_open(struct backend *b, size_t size_bytes)
{
    return hold(b, real_of(b)->type->buffer_open(real_of(b), size_bytes));
}

static void faulty_buffer_close(struct backend *b, struct buffer *m)
{
    let_go(b, m);
    real_of(b)->type->buffer_close(real_of(b), m);
}

static void faulty_upload(struct backend *b, struct buffer *to, const void *from, size_t size_bytes)
{
    if (works(b))
        real_of(b)->type->upload(real_of(b), to, from, size_bytes);
}

static void faulty_download(struct backend *b, void *to, const struct buffer *from,
                            size_t size_bytes)
{
    if (works(b))
        real_of(b)->type->download(real_of(b), to, from, size_bytes);
}

static enum status faulty_weight_open(struct backend *b, const struct tensor *t,
                                      struct weight **out, struct error *err)
{
    enum status rc = real_of(b)->type->weight_open(real_of(b), t, out, err);

    if (rc == STATUS_OK)
        (void)hold(b, *out);
    return rc;
}

static void faulty_weight_close(struct backend *b, struct weight *w)
{
    let_go(b, w);
    real_of(b)->type->weight_close(real_of(b), w);
}

static enum status faulty_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                                  struct error *err)
{
    enum status rc = real_of(b)->type->kv_open(real_of(b), shape, out, err);

    if (rc == STATUS_OK)
        (void)hold(b, *out);
    return rc;
}

static void faulty_kv_close(struct backend *b, struct kv *kv)
{
    let_go(b, kv);
    real_of(b)->type->kv_close(real_of(b), kv);
}

static void faulty_kv_copy(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page)
{
    if (works(b))
        real_of(b)->type->kv_copy(real_of(b), kv, from_page, to_page);
}

static void faulty_kv_offload(struct backend *b, struct kv *kv, int32_t page, int32_t slot)
{
    if (works(b))
        real_of(b)->type->kv_offload(real_of(b), kv, page, slot);
}

static void faulty_kv_reload(struct backend *b, struct kv *kv, int32_t slot, int32_t page)
{
    if (works(b))
        real_of(b)->type->kv_reload(real_of(b), kv, slot, page);
}

static void faulty_embed(struct backend *b, const struct weight *table, const int32_t *ids,
                         size_t n, struct buffer *out)
{
    if (works(b))
        real_of(b)->type->embed(real_of(b), table, ids, n, out);
}

static void faulty_matmul(struct backend *b, const struct input *in, size_t n,
                          const struct product *products, size_t n_products)
{
    if (works(b))
        real_of(b)->type->matmul(real_of(b), in, n, products, n_products);
}

static void faulty_matmul_add(struct backend *b, const struct input *in, size_t n,
                              const struct product *product)
{
    if (works(b))
        real_of(b)->type->matmul_add(real_of(b), in, n, product);
}

static void faulty_ffn(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
                       struct buffer *out)
{
    if (works(b))
        real_of(b)->type->ffn(real_of(b), in, n, f, out);
}

static void faulty_rope(struct backend *b, const struct rope *r, const uint32_t *positions,
                        size_t n, struct buffer *x)
{
    if (works(b))
        real_of(b)->type->rope(real_of(b), r, positions, n, x);
}

static void faulty_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                            const struct buffer *v, const struct attend_row *rows, size_t n_rows)
{
    if (works(b))
        real_of(b)->type->kv_store(real_of(b), kv, layer, k, v, rows, n_rows);
}

static void faulty_attend(struct backend *b, const struct kv *kv, size_t layer,
                          const struct attention *how, const struct buffer *q,
                          const struct attend_row *rows, size_t n_rows, struct buffer *out)
{
    if (works(b))
        real_of(b)->type->attend(real_of(b), kv, layer, how, q, rows, n_rows, out);
}

static void faulty_norm(struct backend *b, const struct input *in, size_t n, size_t width,
                        struct buffer *out)
{
    if (works(b))
        real_of(b)->type->norm(real_of(b), in, n, width, out);
}

static void faulty_add_rows(struct backend *b, const struct buffer *in, float factor, size_t n,
                            size_t width, struct buffer *out)
{
    if (works(b))
        real_of(b)->type->add(real_of(b), in, factor, n, width, out);
}

static void faulty_add_bias(struct backend *b, const struct weight *bias, size_t n,
                            struct buffer *x)
{
    if (works(b))
        real_of(b)->type->add_bias(real_of(b), bias, n, x);
}

static void faulty_scale(struct backend *b, float factor, float cap, size_t n, size_t width,
                         struct buffer *x)
{
    if (works(b))
        real_of(b)->type->scale(real_of(b), factor, cap, n, width, x);
}

static void faulty_scatter_add(struct backend *b, const struct buffer *in, const uint32_t *rows,
                               const float *factors, size_t n, size_t width, struct buffer *out)
{
    if (works(b))
        real_of(b)->type->scatter_add(real_of(b), in, rows, factors, n, width, out);
}

static void faulty_scale_rows(struct backend *b, const float *factors, size_t n, size_t width,
                              struct buffer *x)
{
    if (works(b))
        real_of(b)->type->scale_rows(real_of(b), factors, n, width, x);
}

static void faulty_gather(struct backend *b, const struct buffer *in, const uint32_t *rows,
                          size_t n, size_t width, struct buffer *out)
{
    if (works(b))
        real_of(b)->type->gather(real_of(b), in, rows, n, width, out);
}

static void faulty_layer_norm(struct backend *b, const struct layer_norm *how,
                              const struct buffer *x, size_t n, size_t width, struct buffer *out)
{
    if (works(b))
        real_of(b)->type->layer_norm(real_of(b), how, x, n, width, out);
}

static void faulty_activate(struct backend *b, enum activation kind, const struct buffer *by,
                            size_t n, size_t width, struct buffer *x)
{
    if (works(b))
        real_of(b)->type->activate(real_of(b), kind, by, n, width, x);
}

static void faulty_copy_columns(struct backend *b, const struct buffer *in, size_t in_stride,
                                size_t in_at, size_t n, size_t width, struct buffer *out,
                                size_t out_stride, size_t out_at)
{
    if (works(b))
        real_of(b)->type->copy_columns(real_of(b), in, in_stride, in_at, n, width, out, out_stride,
                                       out_at);
}

static void faulty_kv_conv(struct backend *b, struct kv *kv, size_t layer,
                           const struct weight *taps, size_t n_taps, const struct buffer *x,
                           const struct attend_row *rows, size_t n_rows, struct buffer *out)
{
    if (works(b))
        real_of(b)->type->kv_conv(real_of(b), kv, layer, taps, n_taps, x, rows, n_rows, out);
}

static void faulty_fill(struct backend *b, float value, size_t n, size_t width, struct buffer *x)
{
    if (works(b))
        real_of(b)->type->fill(real_of(b), value, n, width, x);
}

static void faulty_sample(struct backend *b, const struct buffer *logits, size_t n_vocab,
                          const struct draw_list *list, struct drawn *out)
{
    if (works(b))
        real_of(b)->type->sample(real_of(b), logits, n_vocab, list, out);
}

/* Enough for any test's model. */
static size_t faulty_memory_free(struct backend *b)
{
    return 64 << 20;
}

/* Operators of networks. */

#define NET_OPERATOR(name, parameters, arguments)  \
    static void faulty_##name parameters           \
    {                                              \
        if (works(b))                              \
            real_of(b)->type->net->name arguments; \
    }

NET_OPERATOR(zero, (struct backend * b, struct buffer *x, size_t n, size_t width),
             (real_of(b), x, n, width))
NET_OPERATOR(add,
             (struct backend * b, struct buffer *x, const struct buffer *y, size_t n, size_t width),
             (real_of(b), x, y, n, width))
NET_OPERATOR(keep_rows,
             (struct backend * b, const bool *keep, size_t n, size_t width, struct buffer *x),
             (real_of(b), keep, n, width, x))
NET_OPERATOR(linear,
             (struct backend * b, const struct buffer *in, const struct buffer *w,
              const struct buffer *bias, size_t n, size_t n_in, size_t n_out, struct buffer *out),
             (real_of(b), in, w, bias, n, n_in, n_out, out))
NET_OPERATOR(linear_backward,
             (struct backend * b, const struct buffer *in, const struct buffer *w,
              const struct buffer *dout, size_t n, size_t n_in, size_t n_out, struct buffer *din,
              struct buffer *dw, struct buffer *dbias),
             (real_of(b), in, w, dout, n, n_in, n_out, din, dw, dbias))
NET_OPERATOR(dropout,
             (struct backend * b, const struct net_draw *draws, uint32_t layer, float rate,
              size_t n, size_t width, struct buffer *x),
             (real_of(b), draws, layer, rate, n, width, x))
NET_OPERATOR(relu, (struct backend * b, struct buffer *x, size_t n, size_t width),
             (real_of(b), x, n, width))
NET_OPERATOR(relu_backward,
             (struct backend * b, const struct buffer *out, size_t n, size_t width,
              struct buffer *dx),
             (real_of(b), out, n, width, dx))
NET_OPERATOR(softmax,
             (struct backend * b, const struct buffer *in, size_t n, size_t width,
              struct buffer *out),
             (real_of(b), in, n, width, out))
NET_OPERATOR(log_softmax,
             (struct backend * b, const struct buffer *in, size_t n, size_t width,
              struct buffer *out),
             (real_of(b), in, n, width, out))
NET_OPERATOR(log_prob_backward,
             (struct backend * b, const struct buffer *logp, const int32_t *actions,
              const float *weights, float entropy_weight, size_t n, size_t width,
              struct buffer *dlogits),
             (real_of(b), logp, actions, weights, entropy_weight, n, width, dlogits))
NET_OPERATOR(lstm,
             (struct backend * b, struct buffer *gates, const struct buffer *from_h,
              const struct buffer *c_in, size_t n, size_t width, struct buffer *c_out,
              struct buffer *h_out),
             (real_of(b), gates, from_h, c_in, n, width, c_out, h_out))
NET_OPERATOR(lstm_backward,
             (struct backend * b, const struct buffer *gates, const struct buffer *c_in,
              const struct buffer *c_out, const struct buffer *dh, size_t n, size_t width,
              struct buffer *dc, struct buffer *dgates),
             (real_of(b), gates, c_in, c_out, dh, n, width, dc, dgates))
NET_OPERATOR(optim_step,
             (struct backend * b, const struct optim *o, uint64_t step, float lr, size_t n,
              const struct buffer *g, struct buffer *p, struct buffer *m, struct buffer *v),
             (real_of(b), o, step, lr, n, g, p, m, v))

static const struct net_ops faulty_net_ops = {
    .zero = faulty_zero,
    .add = faulty_add,
    .keep_rows = faulty_keep_rows,
    .linear = faulty_linear,
    .linear_backward = faulty_linear_backward,
    .dropout = faulty_dropout,
    .relu = faulty_relu,
    .relu_backward = faulty_relu_backward,
    .softmax = faulty_softmax,
    .log_softmax = faulty_log_softmax,
    .log_prob_backward = faulty_log_prob_backward,
    .lstm = faulty_lstm,
    .lstm_backward = faulty_lstm_backward,
    .optim_step = faulty_optim_step,
};

const struct backend_type faulty_backend = {
    .name = "faulty",
    .size = sizeof(struct faulty),
    .has_fast_math = true,
    .open = faulty_open,
    .close = faulty_close,
    .sync = faulty_sync,
    .buffer_open = faulty_buffer_open,
    .buffer_close = faulty_buffer_close,
    .upload = faulty_upload,
    .download = faulty_download,
    .weight_open = faulty_weight_open,
    .weight_close = faulty_weight_close,
    .kv_open = faulty_kv_open,
    .kv_close = faulty_kv_close,
    .kv_copy = faulty_kv_copy,
    .kv_offload = faulty_kv_offload,
    .kv_reload = faulty_kv_reload,
    .embed = faulty_embed,
    .matmul = faulty_matmul,
    .matmul_add = faulty_matmul_add,
    .ffn = faulty_ffn,
    .rope = faulty_rope,
    .kv_store = faulty_kv_store,
    .attend = faulty_attend,
    .norm = faulty_norm,
    .add = faulty_add_rows,
    .add_bias = faulty_add_bias,
    .scale = faulty_scale,
    .scatter_add = faulty_scatter_add,
    .scale_rows = faulty_scale_rows,
    .gather = faulty_gather,
    .layer_norm = faulty_layer_norm,
    .activate = faulty_activate,
    .copy_columns = faulty_copy_columns,
    .kv_conv = faulty_kv_conv,
    .fill = faulty_fill,
    .sample = faulty_sample,
    .memory_free = faulty_memory_free,
    .net = &faulty_net_ops,
};
