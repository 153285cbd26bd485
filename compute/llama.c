#include "compute/llama.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/llama_parts.h"

struct layer {
    struct weight *parts[N_PARTS];
};

struct llama {
    struct backend *backend;
    struct llama_shape shape;
    struct llama_config config;
    size_t weight_bytes;

    struct layer *layers; /* [n_layers] */
    struct weight *embed, *norm;
    struct weight *own_head; /* NULL where the head is embed */
    float *rope_scale;       /* [head_dim / 2], or NULL */
    struct kv *kv;

    /* One call's activations, on the device. */
    struct buffer *x;         /* [max_tokens][width], the residual stream */
    struct buffer *q, *mixed; /* [max_tokens][n_heads * head_dim] */
    struct buffer *k, *v;     /* [max_tokens][n_kv_heads * head_dim] */
    struct buffer *picked;    /* [max_logits][width] */
    struct buffer *logits;    /* [max_logits][n_vocab] */

    /* One call's tables, on the host; the backend reads them until it is synced. */
    int32_t *ids;            /* [max_tokens] */
    uint32_t *positions;     /* [max_tokens] */
    struct attend_row *rows; /* [max_tokens] */
    uint32_t *picks;         /* [max_logits] */
    float *staged;           /* [max_logits][n_vocab]: logits on their way to several places */
};

const struct llama_shape *llama_shape(const struct llama *m)
{
    return &m->shape;
}

size_t llama_weight_bytes(const struct llama *m)
{
    return m->weight_bytes;
}

size_t llama_page_bytes(const struct llama *m)
{
    return m->shape.n_layers * 2 * KV_PAGE_TOKENS * m->shape.n_kv_heads *
           kv_head_bytes(m->config.kv_type, m->shape.head_dim);
}

static enum status open_weight(struct llama *m, struct weight **out, const struct tensor *t,
                               struct error *err)
{
    enum status rc = m->backend->type->weight_open(m->backend, t, out, err);

    if (rc == STATUS_OK)
        m->weight_bytes += t->size_bytes;
    return rc;
}

static void take_weights(struct llama *m, const struct llama *from)
{
    assert(from->backend->type == m->backend->type);
    assert(from->shape.n_layers == m->shape.n_layers && from->shape.width == m->shape.width);
    m->layers = from->layers;
    m->embed = from->embed;
    m->norm = from->norm;
    m->own_head = from->own_head;
    m->weight_bytes = from->weight_bytes;
}

static enum status open_weights(struct llama *m, const struct gguf *g, struct error *err)
{
    const struct llama_shape *s = &m->shape;
    const struct tensor *t, *embed;
    enum status rc;

    if (m->config.weights_of != NULL) {
        take_weights(m, m->config.weights_of);
        return STATUS_OK;
    }
    m->layers = try_alloc(s->n_layers, sizeof *m->layers);
    if (m->layers == NULL)
        return error_no_memory(err, s->n_layers * sizeof *m->layers, "layers");
    for (size_t layer = 0; layer < s->n_layers; layer++)
        for (int part = 0; part < N_PARTS; part++)
            if ((rc = llama_layer_tensor(&t, g, s, layer, (enum llama_part)part, err)) !=
                    STATUS_OK ||
                (rc = open_weight(m, &m->layers[layer].parts[part], t, err)) != STATUS_OK)
                return rc;
    if ((rc = llama_embed_tensor(&embed, g, s, err)) != STATUS_OK ||
        (rc = open_weight(m, &m->embed, embed, err)) != STATUS_OK ||
        (rc = llama_norm_tensor(&t, g, s, err)) != STATUS_OK ||
        (rc = open_weight(m, &m->norm, t, err)) != STATUS_OK ||
        (rc = llama_head_tensor(&t, g, s, err)) != STATUS_OK)
        return rc;
    return t == embed ? STATUS_OK : open_weight(m, &m->own_head, t, err);
}

static enum status open_rope_scale(struct llama *m, const struct gguf *g, struct error *err)
{
    const struct tensor *t;
    enum status rc = llama_rope_tensor(&t, g, &m->shape, err);

    if (rc != STATUS_OK || t == NULL)
        return rc;
    m->rope_scale = try_alloc(t->n_cols, sizeof *m->rope_scale);
    if (m->rope_scale == NULL)
        return error_no_memory(err, t->size_bytes, t->name);
    memcpy(m->rope_scale, t->data, t->size_bytes);
    return STATUS_OK;
}

static enum status open_buffer(struct llama *m, struct buffer **out, size_t n, size_t width,
                               struct error *err)
{
    size_t size_bytes = n * width * sizeof(float);

    *out = m->backend->type->buffer_open(m->backend, size_bytes);
    return *out != NULL ? STATUS_OK : error_no_memory(err, size_bytes, "activations");
}

static enum status open_buffers(struct llama *m, struct error *err)
{
    const struct llama_shape *s = &m->shape;
    size_t n = m->config.max_tokens, n_logits = m->config.max_logits;
    size_t q_width = s->n_heads * s->head_dim, kv_width = s->n_kv_heads * s->head_dim;
    enum status rc;

    if ((rc = open_buffer(m, &m->x, n, s->width, err)) != STATUS_OK ||
        (rc = open_buffer(m, &m->q, n, q_width, err)) != STATUS_OK ||
        (rc = open_buffer(m, &m->mixed, n, q_width, err)) != STATUS_OK ||
        (rc = open_buffer(m, &m->k, n, kv_width, err)) != STATUS_OK ||
        (rc = open_buffer(m, &m->v, n, kv_width, err)) != STATUS_OK ||
        (rc = open_buffer(m, &m->picked, n_logits, s->width, err)) != STATUS_OK)
        return rc;
    return open_buffer(m, &m->logits, n_logits, s->n_vocab, err);
}

static enum status open_tables(struct llama *m, struct error *err)
{
    size_t n = m->config.max_tokens, n_logits = m->config.max_logits;

    m->ids = try_alloc(n, sizeof *m->ids);
    m->positions = try_alloc(n, sizeof *m->positions);
    m->rows = try_alloc(n, sizeof *m->rows);
    m->picks = try_alloc(n_logits, sizeof *m->picks);
    m->staged = try_alloc(n_logits, m->shape.n_vocab * sizeof *m->staged);
    if (m->ids == NULL || m->positions == NULL || m->rows == NULL || m->picks == NULL ||
        m->staged == NULL)
        return error_no_memory(err, n_logits * m->shape.n_vocab * sizeof *m->staged,
                               "the tables of a step");
    return STATUS_OK;
}

static enum status open_kv(struct llama *m, struct error *err)
{
    struct kv_shape shape = {
        .n_layers = m->shape.n_layers,
        .n_kv_heads = m->shape.n_kv_heads,
        .head_dim = m->shape.head_dim,
        .n_pages = m->config.n_kv_pages,
        .type = m->config.kv_type,
    };

    return m->backend->type->kv_open(m->backend, &shape, &m->kv, err);
}

enum status llama_open(struct llama **out, struct backend *b, const struct gguf *g,
                       const struct llama_config *config, struct error *err)
{
    struct llama_shape shape;
    struct llama *m = NULL;
    enum status rc = llama_read_shape(&shape, g, err);

    if (rc != STATUS_OK)
        return rc;
    assert(config->max_tokens > 0 && config->max_logits > 0 && config->n_kv_pages > 0);
    m = xalloc(sizeof *m);
    m->backend = b;
    m->shape = shape;
    m->config = *config;
    if ((rc = open_weights(m, g, err)) != STATUS_OK ||
        (rc = open_rope_scale(m, g, err)) != STATUS_OK || (rc = open_kv(m, err)) != STATUS_OK ||
        (rc = open_buffers(m, err)) != STATUS_OK || (rc = open_tables(m, err)) != STATUS_OK ||
        (rc = b->type->sync(b, err)) != STATUS_OK)
        goto out;
    *out = m;
    m = NULL; /* given away */
out:
    llama_close(m);
    return rc;
}

static void close_weights(struct llama *m)
{
    const struct backend_type *op = m->backend->type;

    if (m->config.weights_of != NULL)
        return;
    for (size_t layer = 0; m->layers != NULL && layer < m->shape.n_layers; layer++)
        for (int part = 0; part < N_PARTS; part++)
            op->weight_close(m->backend, m->layers[layer].parts[part]);
    op->weight_close(m->backend, m->embed);
    op->weight_close(m->backend, m->norm);
    op->weight_close(m->backend, m->own_head);
    free(m->layers);
}

static void close_buffers(struct llama *m)
{
    struct buffer *buffers[] = {m->x, m->q, m->mixed, m->k, m->v, m->picked, m->logits};

    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        m->backend->type->buffer_close(m->backend, buffers[i]);
}

void llama_close(struct llama *m)
{
    if (m == NULL)
        return;
    close_buffers(m);
    close_weights(m);
    m->backend->type->kv_close(m->backend, m->kv);
    free(m->rope_scale);
    free(m->ids);
    free(m->positions);
    free(m->rows);
    free(m->picks);
    free(m->staged);
    free(m);
}

/* Lays the rows out one after the other. Returns the number of tokens; *ret_logits that of logits.
 */
static size_t lay_out(struct llama *m, const struct llama_row *rows, size_t n_rows,
                      size_t *ret_logits)
{
    size_t n = 0, n_logits = 0;

    for (size_t i = 0; i < n_rows; i++) {
        const struct llama_row *row = &rows[i];

        assert(row->n_tokens > 0 && row->n_tokens <= m->config.max_tokens - n);
        assert(row->n_logits <= row->n_tokens && row->n_logits <= m->config.max_logits - n_logits);
        assert(row->pos + row->n_tokens <= m->shape.context);
        m->rows[i] = (struct attend_row){
            .first = n, .n_tokens = row->n_tokens, .pos = row->pos, .pages = row->pages};
        for (size_t t = 0; t < row->n_tokens; t++, n++) {
            assert(row->ids[t] >= 0 && (size_t)row->ids[t] < m->shape.n_vocab);
            m->ids[n] = row->ids[t];
            m->positions[n] = (uint32_t)(row->pos + t);
            if (t >= row->n_tokens - row->n_logits)
                m->picks[n_logits++] = (uint32_t)n;
        }
    }
    *ret_logits = n_logits;
    return n;
}

/* x += attention(norm(x)) */
static void run_attention(struct llama *m, size_t layer, size_t n, size_t n_rows)
{
    const struct llama_shape *s = &m->shape;
    struct backend *b = m->backend;
    const struct backend_type *op = b->type;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input normed = {m->x, parts[PART_ATTN_NORM], s->norm_eps}, mixed = {.x = m->mixed};
    const struct product qkv[] = {
        {parts[PART_Q], m->q}, {parts[PART_K], m->k}, {parts[PART_V], m->v}};
    const struct product out = {parts[PART_ATTN_OUT], m->x};
    struct rope rope = {.n_heads = s->n_heads,
                        .head_dim = s->head_dim,
                        .base = s->rope_base,
                        .scale = m->rope_scale};

    op->matmul(b, &normed, n, qkv, sizeof qkv / sizeof qkv[0]);
    op->rope(b, &rope, m->positions, n, m->q);
    rope.n_heads = s->n_kv_heads;
    op->rope(b, &rope, m->positions, n, m->k);
    op->kv_store(b, m->kv, layer, m->k, m->v, m->rows, n_rows);
    op->attend(b, m->kv, layer, s->n_heads, m->q, m->rows, n_rows, m->mixed);
    op->matmul_add(b, &mixed, n, &out);
}

/* x += down(silu(gate(norm(x))) * up(norm(x))) */
static void run_ffn(struct llama *m, size_t layer, size_t n)
{
    struct backend *b = m->backend;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input normed = {m->x, parts[PART_FFN_NORM], m->shape.norm_eps};
    const struct ffn ffn = {parts[PART_GATE], parts[PART_UP], parts[PART_DOWN]};

    b->type->ffn(b, &normed, n, &ffn, m->x);
}

/* The logits of the picked tokens alone. */
static void run_head(struct llama *m, size_t n_logits, struct buffer *out)
{
    struct backend *b = m->backend;
    const struct input normed = {m->picked, m->norm, m->shape.norm_eps};
    const struct product head = {m->own_head != NULL ? m->own_head : m->embed, out};

    b->type->gather(b, m->x, m->picks, n_logits, m->shape.width, m->picked);
    b->type->matmul(b, &normed, n_logits, &head, 1);
}

/* Where all rows' logits lie, if they lie one after the other in the caller's memory; else NULL. */
static float *one_place(const struct llama *m, const struct llama_row *rows, size_t n_rows)
{
    float *first = NULL, *next = NULL;

    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].n_logits == 0)
            continue;
        if (first == NULL)
            first = next = rows[i].logits;
        if (rows[i].logits != next)
            return NULL;
        next += rows[i].n_logits * m->shape.n_vocab;
    }
    return first;
}

/* Puts the logits in the one place that they all go to, straight from the head where the device
 * can; or, where there is no such place, in staged. */
static void run_logits(struct llama *m, size_t n_logits, float *place)
{
    struct backend *b = m->backend;
    size_t size_bytes = n_logits * m->shape.n_vocab * sizeof(float);
    struct buffer *over = NULL;

    if (place == NULL)
        place = m->staged;
    if (b->type->buffer_over != NULL)
        over = b->type->buffer_over(b, place, size_bytes);
    run_head(m, n_logits, over != NULL ? over : m->logits);
    if (over == NULL)
        b->type->download(b, place, m->logits, size_bytes);
    b->type->buffer_close(b, over);
}

enum status llama_forward(struct llama *m, const struct llama_row *rows, size_t n_rows,
                          const struct kv_copy *copies, size_t n_copies, struct error *err)
{
    struct backend *b = m->backend;
    size_t n_logits, n = lay_out(m, rows, n_rows, &n_logits);
    float *place = one_place(m, rows, n_rows), *from = m->staged;
    enum status rc;

    for (size_t i = 0; i < n_copies; i++)
        b->type->kv_copy(b, m->kv, copies[i].from, copies[i].to);
    b->type->embed(b, m->embed, m->ids, n, m->x);
    for (size_t layer = 0; layer < m->shape.n_layers; layer++) {
        run_attention(m, layer, n, n_rows);
        run_ffn(m, layer, n);
    }
    if (n_logits > 0)
        run_logits(m, n_logits, place);
    rc = b->type->sync(b, err);
    if (rc != STATUS_OK || place != NULL)
        return rc;
    for (size_t i = 0; i < n_rows; i++) {
        size_t n_values = rows[i].n_logits * m->shape.n_vocab;

        if (n_values > 0)
            memcpy(rows[i].logits, from, n_values * sizeof *from);
        from += n_values;
    }
    return STATUS_OK;
}
