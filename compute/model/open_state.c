/* Opens the weights on the backend, layer by layer, then the buffers of a step, the tables and the
 * memory of keys and values. Closing takes any state that opening has left. */
#include "compute/model/open_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"
#include "compute/model/experts.h"
#include "compute/model/latent.h"
#include "compute/model/layer_embeddings.h"
#include "compute/model/recurrent.h"
#include "compute/model/state.h"
#include "compute/model/streams.h"

static enum status state_open_weight(struct transformer *m, struct weight **out,
                                     const struct tensor *t, struct error *err)
{
    enum status rc = m->backend->type->weight_open(m->backend, t, out, err);

    if (rc == STATUS_OK)
        m->weight_bytes += t->size_bytes;
    return rc;
}

static void take_weights(struct transformer *m, struct transformer *from)
{
    assert(from->backend->type == m->backend->type);
    assert(from->shape.n_layers == m->shape.n_layers && from->shape.width == m->shape.width);
    m->layers = from->layers;
    m->embed = from->embed;
    m->norm = from->norm;
    m->norm_bias = from->norm_bias;
    memcpy(m->ones, from->ones, sizeof(m->ones));
    memcpy(m->embeddings.weights, from->embeddings.weights, sizeof(m->embeddings.weights));
    m->embeddings.n_rows = from->embeddings.n_rows;
    memcpy(m->streams.to, from->streams.to, sizeof(m->streams.to));
    memcpy(m->streams.back, from->streams.back, sizeof(m->streams.back));
    m->own_head = from->own_head;
    m->head_bias = from->head_bias;
    m->weight_bytes = from->weight_bytes;
    atomic_fetch_add(&from->n_sharers, 1);
}

/* The number that the layer's output is multiplied by. */
static enum status read_layer_scale(struct transformer *m, size_t layer, struct error *err)
{
    float *row;
    enum status rc = transformer_read_row(&row, m->file, &m->shape, layer, PART_LAYER_SCALE, err);

    m->layers[layer].scale = rc == STATUS_OK && row != NULL ? row[0] : 1.0f;
    free(row);
    return rc;
}

/* A weight that norms heads without one. */
static enum status open_ones(struct transformer *m, struct weight **out, size_t width,
                             struct error *err)
{
    float *row = try_alloc(width, sizeof(*row));
    struct tensor t = {.file = m->file,
                       .name = "ones",
                       .type = DTYPE_F32,
                       .n_rows = 1,
                       .n_cols = width,
                       .data = row,
                       .size_bytes = width * sizeof(*row)};
    enum status rc;

    if (row == NULL)
        return error_no_memory(err, t.size_bytes, "a norm");
    for (size_t i = 0; i < width; i++)
        row[i] = 1.0f;
    rc = m->backend->type->weight_open(m->backend, &t, out, err);
    free(row);
    return rc;
}

/* Of layers without a window and of those with one; both are opened where heads are normed so. */
static enum status open_all_ones(struct transformer *m, struct error *err)
{
    size_t widths[2] = {m->shape.head_dim, m->shape.head_dim};
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < m->shape.n_layers; i++)
        widths[transformer_is_windowed(&m->shape, i)] = m->shape.layers[i].head_dim;
    for (size_t i = 0;
         (m->shape.arch->norms_values || m->shape.norms_rotated) && i < 2 && rc == STATUS_OK; i++)
        rc = open_ones(m, &m->ones[i], widths[i], err);
    return rc;
}

static enum status state_open_layer(struct transformer *m, size_t layer, struct error *err)
{
    enum status rc = STATUS_OK;

    for (int part = 0; part < N_PARTS && rc == STATUS_OK; part++) {
        struct tensor t;

        rc = transformer_layer_tensor(&t, m->file, &m->shape, layer, (enum transformer_part)part,
                                      err);
        if (rc == STATUS_OK && (part == PART_CONV_TAPS || part == PART_STATE_TAPS) &&
            t.name != NULL) {
            t.n_cols *= t.n_rows; /* the operator reads one row */
            t.n_rows = 1;
        }
        if (rc == STATUS_OK && t.name != NULL && !experts_have_part((enum transformer_part)part) &&
            !latent_has_part((enum transformer_part)part) &&
            !streams_have_part((enum transformer_part)part) && part != PART_LAYER_SCALE &&
            !(part == PART_STATE_NORM && m->shape.arch->recurrence == RECURRENCE_SUM))
            rc = part == PART_ROUTER || part == PART_STREAM_ROUTER
                     ? experts_open_router(m, &m->layers[layer].parts[part], &t, err)
                     : state_open_weight(m, &m->layers[layer].parts[part], &t, err);
    }
    if (rc == STATUS_OK && transformer_has_experts(&m->shape, layer))
        rc = experts_open_weights(m, &m->layers[layer].experts, layer, err);
    if (rc == STATUS_OK && m->shape.latent_rank > 0)
        rc = latent_open_weights(m, &m->layers[layer].latent, layer, err);
    if (rc == STATUS_OK)
        rc = recurrent_open_weights(m, layer, err);
    if (rc == STATUS_OK)
        rc = streams_open_layer(m, layer, err);
    return rc == STATUS_OK ? read_layer_scale(m, layer, err) : rc;
}

static enum status prepare_weights(struct transformer *m, struct error *err)
{
    const struct gguf *g = m->file;
    const struct transformer_shape *s = &m->shape;
    const struct tensor *t, *embed;
    enum status rc;

    m->layers = try_alloc(s->n_layers, sizeof(*m->layers));
    if (m->layers == NULL)
        return error_no_memory(err, s->n_layers * sizeof(*m->layers), "layers");
    for (size_t layer = 0; layer < s->n_layers; layer++)
        if ((rc = state_open_layer(m, layer, err)) != STATUS_OK)
            return rc;
    if ((rc = open_all_ones(m, err)) != STATUS_OK ||
        (rc = layer_embeddings_open_weights(m, err)) != STATUS_OK ||
        (rc = streams_open_weights(m, err)) != STATUS_OK ||
        (rc = transformer_embed_tensor(&embed, g, s, err)) != STATUS_OK ||
        (rc = state_open_weight(m, &m->embed, embed, err)) != STATUS_OK ||
        (rc = transformer_norm_tensor(&t, g, s, err)) != STATUS_OK ||
        (rc = state_open_weight(m, &m->norm, t, err)) != STATUS_OK ||
        (rc = transformer_norm_bias_tensor(&t, g, s, err)) != STATUS_OK ||
        (t != NULL && (rc = state_open_weight(m, &m->norm_bias, t, err)) != STATUS_OK) ||
        (rc = transformer_head_bias_tensor(&t, g, s, err)) != STATUS_OK ||
        (t != NULL && (rc = state_open_weight(m, &m->head_bias, t, err)) != STATUS_OK) ||
        (rc = transformer_head_tensor(&t, g, s, err)) != STATUS_OK)
        return rc;
    return t == embed ? STATUS_OK : state_open_weight(m, &m->own_head, t, err);
}

/* If the file has changed, that error replaces any other. */
static enum status open_weights(struct transformer *m, struct error *err)
{
    struct transformer *from = m->config.weights_of;
    struct error changed;
    enum status rc;

    if (from != NULL && !gguf_is_same(m->file, from->file))
        return error_set(
            err, STATUS_PRECONDITION,
            "%s: the file has changed since its weights were loaded; load the model again",
            gguf_path(m->file));
    if (from != NULL) {
        take_weights(m, from);
        return STATUS_OK;
    }
    rc = prepare_weights(m, err);
    if (gguf_check_unchanged(m->file, &changed) != STATUS_OK) {
        *err = changed;
        rc = changed.status;
    }
    return rc;
}

/* Whether the halves of a layer are normed or scaled before they are added to x. */
static bool has_branch(const struct transformer_shape *s)
{
    return s->arch->norms != NORMS_BEFORE || s->residual_scale != 1.0f;
}

/* The widest network that is run step by step; 0: all are fused. */
static size_t widest_network(const struct transformer_shape *s)
{
    size_t most = s->ffn_width > s->expert_width ? s->ffn_width : s->expert_width;

    most = most > s->shared_width ? most : s->shared_width;
    return s->arch->network == NETWORK_GATED && s->n_streams == 0 ? 0 : most;
}

/* What only some architectures need. */
static enum status open_further_buffers(struct transformer *m, struct error *err)
{
    const struct transformer_shape *s = &m->shape;
    size_t n = m->config.max_tokens, hidden = widest_network(s);
    enum status rc = STATUS_OK;

    if (s->arch->norm_kind == NORM_KIND_LAYER)
        rc = state_open_buffer(m, &m->normed, n > m->max_picks ? n : m->max_picks, s->width, err);
    if (rc == STATUS_OK && s->n_experts > 0 && s->arch->experts_beside_network)
        rc = state_open_buffer(m, &m->beside, n, s->width, err);
    if (s->arch->gates_attention && rc == STATUS_OK)
        rc = state_open_buffer(m, &m->gated_queries, n, 2 * s->n_heads * s->head_dim, err);
    if (s->arch->gates_attention && rc == STATUS_OK)
        rc = state_open_buffer(m, &m->query_gate, n, s->n_heads * s->head_dim, err);
    if (s->n_taps > 0 && rc == STATUS_OK)
        rc = state_open_buffer(m, &m->conv_in, n, 3 * s->width, err);
    for (size_t i = 0; s->n_taps > 0 && i < 2 && rc == STATUS_OK; i++)
        rc = state_open_buffer(m, &m->conv[i], n, s->width, err);
    if (rc != STATUS_OK || hidden == 0)
        return rc;
    rc = state_open_buffer(m, &m->gated, n, hidden, err);
    return rc == STATUS_OK ? state_open_buffer(m, &m->upped, n, hidden, err) : rc;
}

static enum status open_buffers(struct transformer *m, struct error *err)
{
    const struct transformer_shape *s = &m->shape;
    size_t n = m->config.max_tokens, n_logits = m->config.max_logits;
    size_t q_width = s->n_heads * s->head_dim, kv_width = s->n_kv_heads * s->head_dim;
    enum status rc;

    if ((rc = state_open_buffer(m, &m->x, n, s->width, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &m->q, n, q_width, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &m->attn_output, n, q_width, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &m->k, n, kv_width, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &m->v, n, kv_width, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &m->picked, m->max_picks, s->width, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &m->hidden, n, s->width, err)) != STATUS_OK ||
        (has_branch(s) && (rc = state_open_buffer(m, &m->branch, n, s->width, err)) != STATUS_OK))
        return rc;
    rc = experts_open_tables(m, err);
    if (rc == STATUS_OK)
        rc = latent_open_tables(m, err);
    if (rc == STATUS_OK)
        rc = layer_embeddings_open_tables(m, err);
    if (rc == STATUS_OK)
        rc = recurrent_open_tables(m, err);
    if (rc == STATUS_OK)
        rc = streams_open_tables(m, err);
    if (rc == STATUS_OK)
        rc = open_further_buffers(m, err);
    if (rc == STATUS_OK)
        rc = state_open_buffer(m, &m->logits, n_logits, s->n_vocab, err);
    if (rc == STATUS_OK && m->backend->type->sample != NULL)
        rc = state_open_buffer(m, &m->fetched, n_logits, s->n_vocab, err);
    return rc;
}

enum status state_open_tables(struct transformer *m, struct error *err)
{
    size_t n = m->config.max_tokens, n_logits = m->config.max_logits;
    size_t n_picks = n > n_logits ? n : n_logits;

    m->max_picks = n_picks;
    m->ids = try_alloc(n, sizeof(*m->ids));
    m->positions = try_alloc(n, sizeof(*m->positions));
    m->rows = try_alloc(n, sizeof(*m->rows));
    m->picks = try_alloc(n_picks, sizeof(*m->picks));
    m->pick_positions = try_alloc(n_picks, sizeof(*m->pick_positions));
    m->pick_rows = try_alloc(n_picks, sizeof(*m->pick_rows));
    m->hidden_picks = try_alloc(n, sizeof(*m->hidden_picks));
    m->staged_hidden = try_alloc(n, m->shape.width * sizeof(*m->staged_hidden));
    m->staged = try_alloc(n_logits, m->shape.n_vocab * sizeof(*m->staged));
    m->draws = try_alloc(n_logits, sizeof(*m->draws));
    m->drawn = try_alloc(n_logits, sizeof(*m->drawn));
    m->wanted = try_alloc(n_logits, sizeof(*m->wanted));
    m->places = try_alloc(n_logits, sizeof(*m->places));
    if (m->shape.query_rise > 0.0f) {
        m->query_factors = try_alloc(n, sizeof(*m->query_factors));
        m->pick_query_factors = try_alloc(n_picks, sizeof(*m->pick_query_factors));
        if (m->query_factors == NULL || m->pick_query_factors == NULL)
            return error_no_memory(err, n * sizeof(*m->query_factors), "the tables of a step");
    }
    if (m->ids == NULL || m->positions == NULL || m->rows == NULL || m->picks == NULL ||
        m->pick_positions == NULL || m->pick_rows == NULL || m->staged == NULL ||
        m->draws == NULL || m->drawn == NULL || m->wanted == NULL || m->places == NULL ||
        m->hidden_picks == NULL || m->staged_hidden == NULL)
        return error_no_memory(err, n_logits * m->shape.n_vocab * sizeof(*m->staged),
                               "the tables of a step");
    return STATUS_OK;
}

static enum status open_kv(struct transformer *m, struct error *err)
{
    const struct transformer_shape *s = &m->shape;
    struct kv_layer *layers = NULL;
    enum status rc;
    struct kv_shape shape = {
        .n_layers = s->n_kv_layers,
        .n_kv_heads = m->shape.n_kv_heads,
        .head_dim = m->shape.head_dim,
        .n_pages = m->config.n_kv_pages,
        .type = m->config.kv_type,
        .n_slots = m->config.n_kv_host_pages,
    };

    if (!s->are_alike) {
        shape.layers = layers = try_alloc(s->n_kv_layers, sizeof(*layers));
        if (layers == NULL)
            return error_no_memory(err, s->n_kv_layers * sizeof(*layers), "layers");
        for (size_t i = 0; i < s->n_kv_layers; i++)
            layers[i] = (struct kv_layer){s->layers[i].n_kv_heads, s->layers[i].head_dim,
                                          transformer_convolves(s, i) ? s->width : 0};
    }
    rc = m->backend->type->kv_open(m->backend, &shape, &m->kv, err);
    free(layers);
    return rc;
}

/* Before keys and values take the memory, and before a step would wait for it. */
static enum status prepare_ropes(struct transformer *m, struct error *err)
{
    const struct backend_type *op = m->backend->type;

    if (m->shape.n_rotated > 0)
        op->rope(m->backend, &m->ropes.all, NULL, 0, NULL);
    if (m->shape.n_rotated > 0 && m->shape.has_windows)
        op->rope(m->backend, &m->ropes.windowed, NULL, 0, NULL);
    return op->sync(m->backend, err);
}

enum status state_open_device(struct transformer *m, struct error *err)
{
    enum status rc;

    m->weight_bytes = 0;
    if ((rc = open_weights(m, err)) != STATUS_OK || (rc = prepare_ropes(m, err)) != STATUS_OK ||
        (rc = open_kv(m, err)) != STATUS_OK || (rc = recurrent_open_states(m, err)) != STATUS_OK)
        return rc;
    return open_buffers(m, err);
}

static enum status open_borrowed_device(struct transformer *m, struct transformer *of,
                                        struct error *err)
{
    enum status rc;

    take_weights(m, of);
    m->kv = of->kv;
    m->states = of->states;
    rc = open_buffers(m, err);
    return rc == STATUS_OK ? m->backend->type->sync(m->backend, err) : rc;
}

enum status state_open_borrowing(struct transformer **out, struct transformer *of,
                                 struct backend *b, struct error *err)
{
    struct transformer *m = try_alloc(1, sizeof(*m));
    enum status rc;

    if (m == NULL)
        return error_no_memory(err, sizeof(*m), "a micro-batch");
    m->backend = b;
    m->file = of->file;
    m->shape = of->shape;
    m->config = of->config;
    m->config.weights_of = of;
    m->config.max_drafts = 0; /* a step with drafts is not divided where there is state */
    m->borrows_kv = true;
    m->ropes = of->ropes; /* whose scale of lives longer */
    m->ropes.scale = NULL;
    if ((rc = state_open_tables(m, err)) != STATUS_OK ||
        (rc = open_borrowed_device(m, of, err)) != STATUS_OK) {
        state_close(m);
        return rc;
    }
    *out = m;
    return STATUS_OK;
}

static void close_weights(struct transformer *m)
{
    const struct backend_type *op = m->backend->type;

    if (m->config.weights_of != NULL) {
        if (m->layers != NULL)
            atomic_fetch_sub(&m->config.weights_of->n_sharers, 1);
        return;
    }
    for (size_t layer = 0; m->layers != NULL && layer < m->shape.n_layers; layer++) {
        experts_close_weights(m, &m->layers[layer].experts);
        latent_close_weights(m, &m->layers[layer].latent);
        recurrent_close_weights(m, layer);
        streams_close_layer(m, layer);
        for (int part = 0; part < N_PARTS; part++)
            op->weight_close(m->backend, m->layers[layer].parts[part]);
    }
    op->weight_close(m->backend, m->embed);
    op->weight_close(m->backend, m->norm);
    op->weight_close(m->backend, m->norm_bias);
    op->weight_close(m->backend, m->ones[0]);
    op->weight_close(m->backend, m->ones[1]);
    m->ones[0] = m->ones[1] = NULL;
    layer_embeddings_close_weights(m);
    streams_close_weights(m);
    op->weight_close(m->backend, m->own_head);
    op->weight_close(m->backend, m->head_bias);
    free(m->layers);
    m->layers = NULL;
    m->embed = m->norm = m->norm_bias = m->own_head = m->head_bias = NULL;
}

static void close_buffers(struct transformer *m)
{
    struct buffer **buffers[] = {
        &m->x,       &m->q,       &m->attn_output,   &m->k,         &m->v,
        &m->picked,  &m->branch,  &m->logits,        &m->fetched,   &m->hidden,
        &m->normed,  &m->gated,   &m->upped,         &m->beside,    &m->conv_in,
        &m->conv[0], &m->conv[1], &m->gated_queries, &m->query_gate};

    experts_close_tables(m);
    latent_close_tables(m);
    recurrent_close_tables(m);
    layer_embeddings_close_tables(m);
    streams_close_tables(m);
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        m->backend->type->buffer_close(m->backend, *buffers[i]);
        *buffers[i] = NULL;
    }
}

void state_close_device(struct transformer *m)
{
    if (m->backend->is_down)
        return;
    close_buffers(m);
    close_weights(m);
    if (!m->borrows_kv)
        m->backend->type->kv_close(m->backend, m->kv);
    if (!m->borrows_kv && m->states != NULL)
        m->backend->type->state->close(m->backend, m->states);
    m->kv = NULL;
    m->states = NULL;
}

void state_close(struct transformer *m)
{
    if (m == NULL)
        return;
    state_close_device(m);
    model_ropes_deinit(&m->ropes);
    free(m->ids);
    free(m->positions);
    free(m->query_factors);
    free(m->pick_query_factors);
    free(m->rows);
    free(m->picks);
    free(m->pick_positions);
    free(m->pick_rows);
    free(m->staged);
    free(m->hidden_picks);
    free(m->staged_hidden);
    free(m->draws);
    free(m->drawn);
    free(m->wanted);
    free(m->places);
    free(m);
}
