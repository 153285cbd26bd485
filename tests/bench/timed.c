#include "tests/bench/timed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

/* The matmuls first, by a part of their weight's name. */
enum part {
    QKV,
    OUT,
    FFN,
    HEAD,
    ROPE,
    KV_STORE,
    ATTEND,
    EMBED,
    GATHER,
    DOWNLOAD,
    NORM,
    ELEMENTS, /* sums and factors of rows */
    N_PARTS
};

static const char *const names[N_PARTS] = {"qkv",    "out",      "ffn",    "head",
                                           "rope",   "kv_store", "attend", "embed",
                                           "gather", "download", "norm",   "elements"};

struct weight {
    struct weight *real;
    enum part part;
};

struct timed {
    struct backend base;
    struct backend *real;
    double spent_s[N_PARTS], kept_s[N_PARTS];
};

static struct timed *to_timed(struct backend *b)
{
    return (struct timed *)b;
}

static struct backend *real_of(struct backend *b)
{
    return to_timed(b)->real;
}

/* Runs one call on the real backend `r` and adds its time to the part's. */
#define TIMED(b, part, call)                             \
    do {                                                 \
        struct backend *r = real_of(b);                  \
        double start = clock_s();                        \
                                                         \
        call;                                            \
        to_timed(b)->spent_s[part] += clock_s() - start; \
    } while (0)

static enum status timed_sync(struct backend *b, struct error *err)
{
    return real_of(b)->type->sync(real_of(b), err);
}

static struct buffer *timed_buffer_open(struct backend *b, size_t size_bytes)
{
    return real_of(b)->type->buffer_open(real_of(b), size_bytes);
}

static struct buffer *timed_buffer_over(struct backend *b, void *host, size_t size_bytes)
{
    const struct backend_type *type = real_of(b)->type;

    return type->buffer_over != NULL ? type->buffer_over(real_of(b), host, size_bytes) : NULL;
}

static void timed_buffer_close(struct backend *b, struct buffer *m)
{
    real_of(b)->type->buffer_close(real_of(b), m);
}

static void timed_download(struct backend *b, void *to, const struct buffer *from,
                           size_t size_bytes)
{
    TIMED(b, DOWNLOAD, r->type->download(r, to, from, size_bytes));
}

static enum part part_of(const char *name)
{
    if (strstr(name, "attn_output") != NULL)
        return OUT;
    if (strstr(name, "attn_") != NULL)
        return QKV;
    return strstr(name, "ffn_") != NULL ? FFN : HEAD;
}

static enum status timed_weight_open(struct backend *b, const struct tensor *t, struct weight **out,
                                     struct error *err)
{
    struct weight *w = xalloc(sizeof(*w));
    enum status rc = real_of(b)->type->weight_open(real_of(b), t, &w->real, err);

    w->part = part_of(t->name);
    if (rc == STATUS_OK)
        *out = w;
    else
        free(w);
    return rc;
}

static void timed_weight_close(struct backend *b, struct weight *w)
{
    if (w != NULL)
        real_of(b)->type->weight_close(real_of(b), w->real);
    free(w);
}

static enum status timed_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                                 struct error *err)
{
    return real_of(b)->type->kv_open(real_of(b), shape, out, err);
}

static void timed_kv_close(struct backend *b, struct kv *kv)
{
    real_of(b)->type->kv_close(real_of(b), kv);
}

static void timed_embed(struct backend *b, const struct weight *table, const int32_t *ids, size_t n,
                        struct buffer *out)
{
    TIMED(b, EMBED, r->type->embed(r, table->real, ids, n, out));
}

static struct input real_input(const struct input *in)
{
    return (struct input){in->x, in->gain != NULL ? in->gain->real : NULL, in->eps};
}

static void timed_matmul(struct backend *b, const struct input *in, size_t n,
                         const struct product *products, size_t n_products)
{
    struct product real[N_PARTS];
    struct input input = real_input(in);

    for (size_t i = 0; i < n_products; i++)
        real[i] = (struct product){products[i].w->real, products[i].out};
    TIMED(b, products[0].w->part, r->type->matmul(r, &input, n, real, n_products));
}

static void timed_matmul_add(struct backend *b, const struct input *in, size_t n,
                             const struct product *product)
{
    struct product real = {product->w->real, product->out};
    struct input input = real_input(in);

    TIMED(b, product->w->part, r->type->matmul_add(r, &input, n, &real));
}

static void timed_ffn(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
                      struct buffer *out)
{
    struct ffn real = *f;
    struct input input = real_input(in);

    real.gate = f->gate->real;
    real.up = f->up->real;
    real.down = f->down->real;
    TIMED(b, FFN, r->type->ffn(r, &input, n, &real, out));
}

static void timed_rope(struct backend *b, const struct rope *rope, const uint32_t *positions,
                       size_t n, struct buffer *x)
{
    TIMED(b, ROPE, r->type->rope(r, rope, positions, n, x));
}

static void timed_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                           const struct buffer *v, const struct attend_row *rows, size_t n_rows)
{
    TIMED(b, KV_STORE, r->type->kv_store(r, kv, layer, k, v, rows, n_rows));
}

static void timed_attend(struct backend *b, const struct kv *kv, size_t layer,
                         const struct attention *how, const struct buffer *q,
                         const struct attend_row *rows, size_t n_rows, struct buffer *out)
{
    TIMED(b, ATTEND, r->type->attend(r, kv, layer, how, q, rows, n_rows, out));
}

static void timed_norm(struct backend *b, const struct input *in, size_t n, size_t width,
                       struct buffer *out)
{
    struct input input = real_input(in);

    TIMED(b, NORM, r->type->norm(r, &input, n, width, out));
}

static void timed_add(struct backend *b, const struct buffer *in, float factor, size_t n,
                      size_t width, struct buffer *out)
{
    TIMED(b, ELEMENTS, r->type->add(r, in, factor, n, width, out));
}

static void timed_add_bias(struct backend *b, const struct weight *bias, size_t n, struct buffer *x)
{
    TIMED(b, ELEMENTS, r->type->add_bias(r, bias->real, n, x));
}

static void timed_scale(struct backend *b, float factor, float cap, size_t n, size_t width,
                        struct buffer *x)
{
    TIMED(b, ELEMENTS, r->type->scale(r, factor, cap, n, width, x));
}

static void timed_scatter_add(struct backend *b, const struct buffer *in, const uint32_t *rows,
                              const float *factors, size_t n, size_t width, struct buffer *out)
{
    TIMED(b, ELEMENTS, r->type->scatter_add(r, in, rows, factors, n, width, out));
}

static void timed_scale_rows(struct backend *b, const float *factors, size_t n, size_t width,
                             struct buffer *x)
{
    TIMED(b, ELEMENTS, r->type->scale_rows(r, factors, n, width, x));
}

static void timed_gather(struct backend *b, const struct buffer *in, const uint32_t *rows, size_t n,
                         size_t width, struct buffer *out)
{
    TIMED(b, GATHER, r->type->gather(r, in, rows, n, width, out));
}

static void timed_close(struct backend *b)
{
}

static const struct backend_type timed_backend = {
    .name = "timed",
    .size = sizeof(struct timed),
    .close = timed_close,
    .sync = timed_sync,
    .buffer_open = timed_buffer_open,
    .buffer_close = timed_buffer_close,
    .download = timed_download,
    .buffer_over = timed_buffer_over,
    .weight_open = timed_weight_open,
    .weight_close = timed_weight_close,
    .kv_open = timed_kv_open,
    .kv_close = timed_kv_close,
    .embed = timed_embed,
    .matmul = timed_matmul,
    .matmul_add = timed_matmul_add,
    .ffn = timed_ffn,
    .rope = timed_rope,
    .kv_store = timed_kv_store,
    .attend = timed_attend,
    .norm = timed_norm,
    .add = timed_add,
    .add_bias = timed_add_bias,
    .scale = timed_scale,
    .scatter_add = timed_scatter_add,
    .scale_rows = timed_scale_rows,
    .gather = timed_gather,
};

struct backend *timed_open(struct backend *real)
{
    struct timed *t = xalloc(sizeof(*t));

    t->base.type = &timed_backend;
    t->real = real;
    return &t->base;
}

void timed_reset(struct backend *b)
{
    memset(to_timed(b)->spent_s, 0, sizeof(to_timed)(b)->spent_s);
}

void timed_keep(struct backend *b)
{
    memcpy(to_timed(b)->kept_s, to_timed(b)->spent_s, sizeof(to_timed)(b)->kept_s);
}

void timed_print(const struct backend *b, double step_s)
{
    const struct timed *t = (const struct timed *)b;
    double rest_s = step_s;

    printf("%9s", "");
    for (int i = 0; i < N_PARTS; i++) {
        rest_s -= t->kept_s[i];
        if (t->kept_s[i] >= step_s * 0.005)
            printf(" %s %.0f%%", names[i], t->kept_s[i] / step_s * 100.0);
    }
    printf(" rest %.0f%%\n", rest_s / step_s * 100.0);
}
