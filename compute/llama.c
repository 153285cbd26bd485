#include "compute/llama.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/llama_state.h"

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

static void take_weights(struct llama *m, struct llama *from)
{
    assert(from->backend->type == m->backend->type);
    assert(from->shape.n_layers == m->shape.n_layers && from->shape.width == m->shape.width);
    m->layers = from->layers;
    m->embed = from->embed;
    m->norm = from->norm;
    m->own_head = from->own_head;
    m->weight_bytes = from->weight_bytes;
    atomic_fetch_add(&from->n_sharers, 1);
}

static enum status open_weights(struct llama *m, struct error *err)
{
    const struct gguf *g = m->file;
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

static enum status open_rope_scale(struct llama *m, struct error *err)
{
    const struct tensor *t;
    enum status rc = llama_rope_tensor(&t, m->file, &m->shape, err);

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
    rc = open_buffer(m, &m->logits, n_logits, s->n_vocab, err);
    if (rc == STATUS_OK && llama_can_draw(m))
        rc = open_buffer(m, &m->fetched, n_logits, s->n_vocab, err);
    return rc;
}

static enum status open_tables(struct llama *m, struct error *err)
{
    size_t n = m->config.max_tokens, n_logits = m->config.max_logits;

    m->ids = try_alloc(n, sizeof *m->ids);
    m->positions = try_alloc(n, sizeof *m->positions);
    m->rows = try_alloc(n, sizeof *m->rows);
    m->picks = try_alloc(n_logits, sizeof *m->picks);
    m->pick_positions = try_alloc(n_logits, sizeof *m->pick_positions);
    m->pick_rows = try_alloc(n_logits, sizeof *m->pick_rows);
    m->staged = try_alloc(n_logits, m->shape.n_vocab * sizeof *m->staged);
    m->draws = try_alloc(n_logits, sizeof *m->draws);
    m->drawn = try_alloc(n_logits, sizeof *m->drawn);
    m->wanted = try_alloc(n_logits, sizeof *m->wanted);
    m->places = try_alloc(n_logits, sizeof *m->places);
    if (m->ids == NULL || m->positions == NULL || m->rows == NULL || m->picks == NULL ||
        m->pick_positions == NULL || m->pick_rows == NULL || m->staged == NULL ||
        m->draws == NULL || m->drawn == NULL || m->wanted == NULL || m->places == NULL)
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
        .n_slots = m->config.n_kv_slots,
    };

    return m->backend->type->kv_open(m->backend, &shape, &m->kv, err);
}

bool llama_can_draw(const struct llama *m)
{
    return m->backend->type->sample != NULL;
}

bool llama_can_spill(const struct backend *b)
{
    return b->type->kv_spill != NULL;
}

static enum status open_lane_device(struct llama *m, struct llama *of, struct error *err)
{
    enum status rc;

    take_weights(m, of);
    m->kv = of->kv;
    rc = open_buffers(m, err);
    return rc == STATUS_OK ? m->backend->type->sync(m->backend, err) : rc;
}

enum status llama_open_lane(struct llama **out, struct llama *of, struct backend *b,
                            struct error *err)
{
    struct llama *m = try_alloc(1, sizeof *m);
    enum status rc;

    if (m == NULL)
        return error_no_memory(err, sizeof *m, "a lane");
    m->backend = b;
    m->file = of->file;
    m->shape = of->shape;
    m->config = of->config;
    m->config.weights_of = of;
    m->is_lane = true;
    if ((rc = open_rope_scale(m, err)) != STATUS_OK || (rc = open_tables(m, err)) != STATUS_OK ||
        (rc = open_lane_device(m, of, err)) != STATUS_OK) {
        llama_close(m);
        return rc;
    }
    *out = m;
    return STATUS_OK;
}

/* What is on the device. */
static enum status open_device(struct llama *m, struct error *err)
{
    enum status rc;

    m->weight_bytes = 0;
    if ((rc = open_weights(m, err)) != STATUS_OK || (rc = open_kv(m, err)) != STATUS_OK ||
        (rc = open_buffers(m, err)) != STATUS_OK || (rc = lanes_open(m, err)) != STATUS_OK)
        return rc;
    return m->backend->type->sync(m->backend, err);
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
    assert(config->n_kv_slots == 0 || llama_can_spill(b));
    m->backend = b;
    m->file = g;
    m->shape = shape;
    m->config = *config;
    if ((rc = open_rope_scale(m, err)) != STATUS_OK || (rc = open_tables(m, err)) != STATUS_OK ||
        (rc = open_device(m, err)) != STATUS_OK)
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

    if (m->config.weights_of != NULL) {
        if (m->layers != NULL)
            atomic_fetch_sub(&m->config.weights_of->n_sharers, 1);
        return;
    }
    for (size_t layer = 0; m->layers != NULL && layer < m->shape.n_layers; layer++)
        for (int part = 0; part < N_PARTS; part++)
            op->weight_close(m->backend, m->layers[layer].parts[part]);
    op->weight_close(m->backend, m->embed);
    op->weight_close(m->backend, m->norm);
    op->weight_close(m->backend, m->own_head);
    free(m->layers);
    m->layers = NULL;
    m->embed = m->norm = m->own_head = NULL;
}

static void close_buffers(struct llama *m)
{
    struct buffer **buffers[] = {&m->x, &m->q,      &m->mixed,  &m->k,
                                 &m->v, &m->picked, &m->logits, &m->fetched};

    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        m->backend->type->buffer_close(m->backend, *buffers[i]);
        *buffers[i] = NULL;
    }
}

/* Nothing is there after a restart that failed. */
static void close_device(struct llama *m)
{
    if (m->backend->is_down)
        return;
    lanes_close(m);
    close_buffers(m);
    close_weights(m);
    if (!m->is_lane)
        m->backend->type->kv_close(m->backend, m->kv);
    m->kv = NULL;
}

void llama_close(struct llama *m)
{
    if (m == NULL)
        return;
    close_device(m);
    free(m->rope_scale);
    free(m->ids);
    free(m->positions);
    free(m->rows);
    free(m->picks);
    free(m->pick_positions);
    free(m->pick_rows);
    free(m->staged);
    free(m->draws);
    free(m->drawn);
    free(m->wanted);
    free(m->places);
    free(m);
}

bool llama_work_ahead(struct llama *m, bool is_busy)
{
    const struct backend_type *type = m->backend->type;

    return type->kv_prepare != NULL && m->kv != NULL &&
           type->kv_prepare(m->backend, m->kv, is_busy);
}

enum status llama_restart(struct llama *m, const struct backend_config *config, struct error *err)
{
    enum status rc;

    if (m->config.weights_of != NULL || atomic_load(&m->n_sharers) != m->n_lanes)
        return error_set(err, STATUS_PRECONDITION,
                         "the device has failed, and its weights are shared: start anew");
    close_device(m);
    rc = backend_restart(m->backend, config, err);
    if (rc == STATUS_OK && (rc = open_device(m, err)) != STATUS_OK)
        close_device(m);
    return rc;
}
