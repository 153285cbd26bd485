/* The forward pass of encoders. Keys and values lie in pages, as the operators of attention have
 * it, but only while a step runs: all layers use the same pages, one after the other. */
#include "compute/encoder/encoder.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/encoder/head.h"
#include "compute/gguf/gguf.h"
#include "compute/model/tensors.h"

struct encoder_layer {
    struct weight *parts[ENCODER_N_PARTS]; /* NULL: the layer has none */
    struct weight *gate;                   /* of a network whose gate is in ffn_up */
};

struct encoder {
    struct backend *backend;
    struct encoder_shape shape;
    struct encoder_config config;
    size_t weight_bytes;
    struct encoder_layer *layers; /* [n_layers] */
    struct weight *parts[ENCODER_N_MODEL_PARTS];
    struct head *head;  /* of the pooled state; NULL: none */
    double *rope_scale; /* [head_dim / 2], or NULL */
    struct kv *kv;
    /* One call's activations, [max_tokens] rows. */
    struct buffer *x, *normed, *branch;  /* [width] */
    struct buffer *q, *k, *v, *attended; /* of the heads */
    struct buffer *gate, *up;            /* [ffn_width] */
    /* One call's tables, on the host. */
    int32_t *ids, *types, *places; /* [max_tokens] */
    uint32_t *positions;           /* [max_tokens] */
    int32_t *pages;                /* [n_pages] 0, 1, … */
    struct attend_row *all, *near; /* [max_rows] of layers without a window, and with one */
    float *hidden;                 /* [max_tokens][width] */
    float *pooled, *scores;        /* [width], [head's outputs] */
};

static enum status encoder_open_weight(struct encoder *e, struct weight **out,
                                       const struct tensor *t, struct error *err)
{
    if (t->name == NULL)
        return STATUS_OK;
    e->weight_bytes += t->size_bytes;
    return e->backend->type->weight_open(e->backend, t, out, err);
}

/* ffn_up's first rows are the gate's. */
static enum status open_gate_in_up(struct encoder *e, struct encoder_layer *l,
                                   const struct tensor *both, struct error *err)
{
    const size_t n = e->shape.ffn_width;
    const struct tensor gate = tensor_rows(both, 0, n), up = tensor_rows(both, n, n);
    enum status rc = encoder_open_weight(e, &l->gate, &gate, err);

    return rc == STATUS_OK ? encoder_open_weight(e, &l->parts[ENCODER_UP], &up, err) : rc;
}

static enum status encoder_open_layer(struct encoder *e, const struct gguf *g, size_t layer,
                                      struct error *err)
{
    struct encoder_layer *l = &e->layers[layer];
    enum status rc = STATUS_OK;

    for (int part = 0; part < ENCODER_N_PARTS && rc == STATUS_OK; part++) {
        struct tensor t;

        rc = encoder_layer_tensor(&t, g, &e->shape, layer, (enum encoder_part)part, err);
        if (rc != STATUS_OK)
            return rc;
        if (part == ENCODER_UP_BIAS && t.name != NULL && e->shape.arch->gate == ENCODER_GATE_IN_UP)
            return error_set(err, STATUS_UNIMPLEMENTED, "%s: tensor '%s' is not supported",
                             gguf_path(g), t.name);
        rc = part == ENCODER_UP && e->shape.arch->gate == ENCODER_GATE_IN_UP
                 ? open_gate_in_up(e, l, &t, err)
                 : encoder_open_weight(e, &l->parts[part], &t, err);
    }
    return rc;
}

static enum status encoder_open_weights(struct encoder *e, const struct gguf *g, struct error *err)
{
    enum status rc = STATUS_OK;

    e->layers = try_alloc(e->shape.n_layers, sizeof(*e->layers));
    if (e->layers == NULL)
        return error_no_memory(err, e->shape.n_layers * sizeof(*e->layers), "layers");
    for (int part = 0; part < ENCODER_N_MODEL_PARTS && rc == STATUS_OK; part++) {
        struct tensor t;

        rc = encoder_model_tensor(&t, g, &e->shape, (enum encoder_model_part)part, err);
        if (rc == STATUS_OK)
            rc = encoder_open_weight(e, &e->parts[part], &t, err);
    }
    for (size_t layer = 0; layer < e->shape.n_layers && rc == STATUS_OK; layer++)
        rc = encoder_open_layer(e, g, layer, err);
    return rc;
}

static enum status encoder_open_buffer(struct encoder *e, struct buffer **out, size_t width,
                                       struct error *err)
{
    size_t size_bytes = e->config.max_tokens * width * sizeof(float);

    *out = e->backend->type->buffer_open(e->backend, size_bytes);
    return *out != NULL ? STATUS_OK : error_no_memory(err, size_bytes, "activations");
}

static enum status encoder_open_buffers(struct encoder *e, struct error *err)
{
    const struct encoder_shape *s = &e->shape;
    const size_t queries = s->n_heads * s->head_dim, keys = s->n_kv_heads * s->head_dim;
    struct buffer **const places[] = {&e->x, &e->normed,   &e->branch, &e->q, &e->k,
                                      &e->v, &e->attended, &e->gate,   &e->up};
    const size_t widths[] = {s->width, s->width, s->width,     queries,     keys,
                             keys,     queries,  s->ffn_width, s->ffn_width};
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]) && rc == STATUS_OK; i++)
        rc = encoder_open_buffer(e, places[i], widths[i], err);
    return rc;
}

static size_t encoder_pages_for(size_t n_tokens)
{
    return (n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

/* Each row begins a page. */
static size_t count_pages(const struct encoder *e)
{
    return encoder_pages_for(e->config.max_tokens) + e->config.max_rows;
}

static enum status encoder_open_tables(struct encoder *e, struct error *err)
{
    const size_t n = e->config.max_tokens, n_rows = e->config.max_rows, n_pages = count_pages(e);
    const size_t n_scores = e->head != NULL ? head_n_out(e->head) : 1;
    const struct kv_shape kv = {.n_layers = 1,
                                .n_kv_heads = e->shape.n_kv_heads,
                                .head_dim = e->shape.head_dim,
                                .n_pages = n_pages,
                                .type = KV_F32};

    e->ids = try_alloc(n, sizeof(*e->ids));
    e->types = try_alloc(n, sizeof(*e->types));
    e->places = try_alloc(n, sizeof(*e->places));
    e->positions = try_alloc(n, sizeof(*e->positions));
    e->pages = try_alloc(n_pages, sizeof(*e->pages));
    e->all = try_alloc(n_rows, sizeof(*e->all));
    e->near = try_alloc(n_rows, sizeof(*e->near));
    e->hidden = try_alloc(n, e->shape.width * sizeof(*e->hidden));
    e->pooled = try_alloc(e->shape.width, sizeof(*e->pooled));
    e->scores = try_alloc(n_scores, sizeof(*e->scores));
    if (e->ids == NULL || e->types == NULL || e->places == NULL || e->positions == NULL ||
        e->pages == NULL || e->all == NULL || e->near == NULL || e->hidden == NULL ||
        e->pooled == NULL || e->scores == NULL)
        return error_no_memory(err, n * e->shape.width * sizeof(*e->hidden),
                               "the tables of a step");
    for (size_t i = 0; i < n_pages; i++)
        e->pages[i] = (int32_t)i;
    return e->backend->type->kv_open(e->backend, &kv, &e->kv, err);
}

static enum status encoder_open_rope(struct encoder *e, struct error *err)
{
    const size_t n = e->shape.head_dim / 2;

    if (e->shape.rope_factor == 1.0)
        return STATUS_OK;
    e->rope_scale = try_alloc(n, sizeof(*e->rope_scale));
    if (e->rope_scale == NULL)
        return error_no_memory(err, n * sizeof(*e->rope_scale), "rope");
    for (size_t i = 0; i < n; i++)
        e->rope_scale[i] = e->shape.rope_factor;
    return STATUS_OK;
}

static enum status encoder_open_head(struct encoder *e, const struct gguf *g, struct error *err)
{
    const bool ranks = e->config.pooling == ENCODER_POOLS_RANK;
    const struct head_config config = {.kind = ranks ? HEAD_RANK : HEAD_DENSE,
                                       .width = e->shape.width,
                                       .uses_gelu = e->shape.arch->head_gelu,
                                       .norm_eps = e->shape.norm_eps};
    enum status rc = head_open(&e->head, g, &config, err);

    if (rc == STATUS_OK && ranks && e->head == NULL)
        rc = error_set(err, STATUS_PRECONDITION,
                       "%s: it is to rank, but has no head that does (cls.output.weight)",
                       gguf_path(g));
    return rc;
}

static enum status check_backend_of_encoder(const struct backend *b, const struct gguf *g,
                                            struct error *err)
{
    const struct backend_type *t = b->type;

    if (t->attends_ahead && t->layer_norm != NULL && t->activate != NULL)
        return STATUS_OK;
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "%s: it is an encoder, for which the backend '%s' has no kernels: use the "
                     "backend cpu",
                     gguf_path(g), t->name);
}

static enum status encoder_fill(struct encoder *e, const struct gguf *g, struct error *err)
{
    enum status rc;

    if ((rc = check_backend_of_encoder(e->backend, g, err)) != STATUS_OK ||
        (rc = encoder_read_shape(&e->shape, g, err)) != STATUS_OK)
        return rc;
    if (e->config.pooling == ENCODER_POOLS_NONE)
        e->config.pooling = e->shape.pooling;
    if (e->config.pooling == ENCODER_POOLS_NONE)
        e->config.pooling = ENCODER_POOLS_MEAN;
    if ((rc = encoder_open_head(e, g, err)) != STATUS_OK ||
        (rc = encoder_open_rope(e, err)) != STATUS_OK ||
        (rc = encoder_open_weights(e, g, err)) != STATUS_OK ||
        (rc = encoder_open_buffers(e, err)) != STATUS_OK)
        return rc;
    return encoder_open_tables(e, err);
}

enum status encoder_open(struct encoder **out, struct backend *b, const struct gguf *g,
                         const struct encoder_config *config, struct error *err)
{
    struct encoder *e = try_alloc(1, sizeof(*e));
    enum status rc;

    if (e == NULL)
        return error_no_memory(err, sizeof(*e), "an encoder");
    e->backend = b;
    e->config = *config;
    rc = encoder_fill(e, g, err);
    if (rc == STATUS_OK) {
        *out = e;
        e = NULL; /* given away */
    }
    encoder_close(e);
    return rc;
}

static void encoder_close_weights(struct encoder *e)
{
    const struct backend_type *op = e->backend->type;

    for (int part = 0; part < ENCODER_N_MODEL_PARTS; part++)
        op->weight_close(e->backend, e->parts[part]);
    for (size_t i = 0; e->layers != NULL && i < e->shape.n_layers; i++) {
        op->weight_close(e->backend, e->layers[i].gate);
        for (int part = 0; part < ENCODER_N_PARTS; part++)
            op->weight_close(e->backend, e->layers[i].parts[part]);
    }
    free(e->layers);
}

void encoder_close(struct encoder *e)
{
    if (e == NULL)
        return;
    struct buffer *const buffers[] = {e->x, e->normed,   e->branch, e->q, e->k,
                                      e->v, e->attended, e->gate,   e->up};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
        e->backend->type->buffer_close(e->backend, buffers[i]);
    e->backend->type->kv_close(e->backend, e->kv);
    encoder_close_weights(e);
    head_close(e->head);
    free(e->rope_scale);
    free(e->ids);
    free(e->types);
    free(e->places);
    free(e->positions);
    free(e->pages);
    free(e->all);
    free(e->near);
    free(e->hidden);
    free(e->pooled);
    free(e->scores);
    free(e);
}

const struct encoder_shape *encoder_shape(const struct encoder *e)
{
    return &e->shape;
}

enum encoder_pooling encoder_pooling_of(const struct encoder *e)
{
    return e->config.pooling;
}

size_t encoder_weight_bytes(const struct encoder *e)
{
    return e->weight_bytes;
}

size_t encoder_n_out(const struct encoder *e)
{
    if (e->config.pooling == ENCODER_POOLS_RANK)
        return 1;
    return e->head != NULL ? head_n_out(e->head) : e->shape.width;
}

/* x [n][width], normed by a gain and the bias behind it, where there is a gain; out may be x. */
static void encoder_norm(struct encoder *e, struct weight *const *gain, const struct buffer *x,
                         size_t n, struct buffer *out)
{
    const struct backend_type *op = e->backend->type;
    const struct layer_norm how = {.gain = gain[0], .bias = gain[1], .eps = e->shape.norm_eps};
    const struct input in = {.x = x, .gain = gain[0], .eps = e->shape.norm_eps};

    if (gain[0] == NULL)
        return;
    if (e->shape.arch->norms_by_rms)
        op->norm(e->backend, &in, n, e->shape.width, out);
    else
        op->layer_norm(e->backend, &how, x, n, e->shape.width, out);
}

/* What a half of a layer reads. */
static struct input half_input(struct encoder *e, struct weight *const *gain, size_t n)
{
    encoder_norm(e, gain, e->x, n, e->normed);
    return (struct input){.x = gain[0] != NULL ? e->normed : e->x};
}

static void encoder_add_bias(struct encoder *e, const struct weight *bias, size_t n,
                             struct buffer *x)
{
    if (bias != NULL)
        e->backend->type->add_bias(e->backend, bias, n, x);
}

/* Adds branch, a half of a layer, to x. post: its norm, or NULL; sum: those of the sum. */
static void encoder_add_half(struct encoder *e, struct weight *post, struct weight *const *sum,
                             size_t n)
{
    struct weight *const posts[2] = {post, NULL};

    encoder_norm(e, posts, e->branch, n, e->branch);
    e->backend->type->add(e->backend, e->branch, 1.0f, n, e->shape.width, e->x);
    encoder_norm(e, sum, e->x, n, e->x);
}

/* Norms the heads of x, queries or keys, and rotates them. */
static void encoder_finish_heads(struct encoder *e, bool is_windowed, const struct weight *gain,
                                 size_t n_heads, size_t n, struct buffer *x)
{
    const struct encoder_shape *s = &e->shape;
    const struct backend_type *op = e->backend->type;
    const struct input in = {.x = x, .gain = gain, .eps = s->norm_eps};
    const struct rope rope = {.n_heads = n_heads,
                              .head_dim = s->head_dim,
                              .base = is_windowed ? s->window_rope_base : s->rope_base,
                              .scale = is_windowed ? NULL : e->rope_scale,
                              .halves = true,
                              .n_positions = s->context};

    if (gain != NULL)
        op->norm(e->backend, &in, n * n_heads, s->head_dim, x);
    if (s->arch->rotates)
        op->rope(e->backend, &rope, e->positions, n, x);
}

static void encoder_attend(struct encoder *e, size_t layer, size_t n, size_t n_rows)
{
    const struct encoder_shape *s = &e->shape;
    const struct backend_type *op = e->backend->type;
    struct weight *const *parts = e->layers[layer].parts;
    const bool is_windowed = encoder_is_windowed(s, layer);
    const struct attend_row *rows = is_windowed ? e->near : e->all;
    const struct attention how = {.n_heads = s->n_heads,
                                  .scale = s->attention_scale,
                                  .window = is_windowed ? s->half_window + 1 : 0};
    const struct input in = half_input(e, parts + ENCODER_ATTN_NORM, n);
    const struct product products[] = {
        {parts[ENCODER_Q], e->q}, {parts[ENCODER_K], e->k}, {parts[ENCODER_V], e->v}};
    const struct input attended = {.x = e->attended};
    const struct product out = {parts[ENCODER_ATTN_OUT], e->branch};

    op->matmul(e->backend, &in, n, products, 3);
    encoder_add_bias(e, parts[ENCODER_Q_BIAS], n, e->q);
    encoder_add_bias(e, parts[ENCODER_K_BIAS], n, e->k);
    encoder_add_bias(e, parts[ENCODER_V_BIAS], n, e->v);
    encoder_finish_heads(e, is_windowed, parts[ENCODER_Q_NORM], s->n_heads, n, e->q);
    encoder_finish_heads(e, is_windowed, parts[ENCODER_K_NORM], s->n_kv_heads, n, e->k);
    op->kv_store(e->backend, e->kv, 0, e->k, e->v, rows, n_rows);
    op->attend(e->backend, e->kv, 0, &how, e->q, rows, n_rows, e->attended);
    op->matmul(e->backend, &attended, n, &out, 1);
    encoder_add_bias(e, parts[ENCODER_ATTN_OUT_BIAS], n, e->branch);
    encoder_add_half(e, parts[ENCODER_ATTN_POST_NORM], parts + ENCODER_ATTN_SUM_NORM, n);
}

static void encoder_feed(struct encoder *e, size_t layer, size_t n)
{
    const struct encoder_shape *s = &e->shape;
    const struct backend_type *op = e->backend->type;
    const struct encoder_layer *l = &e->layers[layer];
    const struct weight *gate =
        s->arch->gate == ENCODER_GATE_IN_UP ? l->gate : l->parts[ENCODER_GATE];
    const struct input in = half_input(e, l->parts + ENCODER_FFN_NORM, n);
    const struct product products[] = {{l->parts[ENCODER_UP], e->up}, {gate, e->gate}};
    struct buffer *active = gate != NULL ? e->gate : e->up;
    const struct input activated = {.x = active};
    const struct product down = {l->parts[ENCODER_DOWN], e->branch};

    op->matmul(e->backend, &in, n, products, gate != NULL ? 2 : 1);
    encoder_add_bias(e, l->parts[ENCODER_UP_BIAS], n, e->up);
    op->activate(e->backend, s->arch->activation, gate != NULL ? e->up : NULL, n, s->ffn_width,
                 active);
    op->matmul(e->backend, &activated, n, &down, 1);
    encoder_add_bias(e, l->parts[ENCODER_DOWN_BIAS], n, e->branch);
    encoder_add_half(e, l->parts[ENCODER_FFN_POST_NORM], l->parts + ENCODER_FFN_SUM_NORM, n);
}

/* Adds a row of a table to each token. */
static void embed_also(struct encoder *e, const struct weight *table, const int32_t *ids, size_t n)
{
    if (table == NULL)
        return;
    e->backend->type->embed(e->backend, table, ids, n, e->branch);
    e->backend->type->add(e->backend, e->branch, 1.0f, n, e->shape.width, e->x);
}

static void encoder_embed(struct encoder *e, size_t n)
{
    const struct encoder_shape *s = &e->shape;
    const struct backend_type *op = e->backend->type;

    op->embed(e->backend, e->parts[ENCODER_EMBEDDING], e->ids, n, e->x);
    if (s->arch->embeds_by_width)
        op->scale(e->backend, sqrtf((float)s->width), 0.0f, n, s->width, e->x);
    embed_also(e, e->parts[ENCODER_TYPES], e->types, n);
    embed_also(e, e->parts[ENCODER_POSITIONS], e->places, n);
    encoder_norm(e, e->parts + ENCODER_EMBEDDING_NORM, e->x, n, e->x);
}

/* Lays out the rows one after the other, each with pages of its own; returns their tokens. */
static size_t encoder_lay_out(struct encoder *e, const struct encoder_row *rows, size_t n_rows)
{
    size_t n = 0, page = 0;

    assert(n_rows <= e->config.max_rows);
    for (size_t i = 0; i < n_rows; i++) {
        const struct encoder_row *row = &rows[i];

        assert(row->n_tokens > 0 && row->n_tokens <= e->shape.context);
        assert(row->n_tokens <= e->config.max_tokens - n);
        e->all[i] = (struct attend_row){.first = n,
                                        .n_tokens = row->n_tokens,
                                        .pages = e->pages + page,
                                        .n_ahead = row->n_tokens};
        e->near[i] = e->all[i];
        e->near[i].n_ahead = e->shape.half_window;
        page += encoder_pages_for(row->n_tokens);
        for (size_t t = 0; t < row->n_tokens; t++, n++) {
            assert(row->ids[t] >= 0 && (size_t)row->ids[t] < e->shape.n_vocab);
            e->ids[n] = row->ids[t];
            e->types[n] = t >= row->n_first && e->shape.n_types > 1;
            e->places[n] = (int32_t)t;
            e->positions[n] = (uint32_t)t;
        }
    }
    return n;
}

/* The pooled state of a row whose states are hidden [n][width]. Sums are in f64, in order. */
static void encoder_pool(const struct encoder *e, const float *hidden, size_t n, float *out)
{
    const size_t width = e->shape.width;
    size_t first = 0;

    if (e->config.pooling == ENCODER_POOLS_LAST)
        first = n - 1;
    else if (e->config.pooling != ENCODER_POOLS_MEAN)
        n = 1;
    for (size_t c = 0; c < width; c++) {
        double sum = 0;

        for (size_t t = first; t < n; t++)
            sum += (double)hidden[t * width + c];
        out[c] = (float)(sum / (double)(n - first));
    }
}

static void encoder_put(struct encoder *e, const struct encoder_row *row, const float *hidden)
{
    encoder_pool(e, hidden, row->n_tokens, e->pooled);
    if (e->head == NULL)
        memcpy(row->out, e->pooled, e->shape.width * sizeof(*row->out));
    else if (e->config.pooling != ENCODER_POOLS_RANK)
        head_run(e->head, e->pooled, row->out);
    else {
        head_run(e->head, e->pooled, e->scores);
        row->out[0] = head_relevance(e->scores, head_n_out(e->head));
    }
}

enum status encoder_run(struct encoder *e, const struct encoder_row *rows, size_t n_rows,
                        struct error *err)
{
    const struct backend_type *op = e->backend->type;
    const size_t n = encoder_lay_out(e, rows, n_rows), width = e->shape.width;
    const float *hidden = e->hidden;
    enum status rc;

    encoder_embed(e, n);
    for (size_t layer = 0; layer < e->shape.n_layers; layer++) {
        encoder_attend(e, layer, n, n_rows);
        encoder_feed(e, layer, n);
    }
    encoder_norm(e, e->parts + ENCODER_OUTPUT_NORM, e->x, n, e->x);
    op->download(e->backend, e->hidden, e->x, n * width * sizeof(*e->hidden));
    rc = op->sync(e->backend, err);
    for (size_t i = 0; rc == STATUS_OK && i < n_rows; i++) {
        encoder_put(e, &rows[i], hidden);
        hidden += rows[i].n_tokens * width;
    }
    return rc;
}
