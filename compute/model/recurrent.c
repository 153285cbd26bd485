/* A layer that carries a state: the products of its inputs, the convolution, the steps of its
 * heads, and what norms and gates their output. Of a delta net, or of Mamba-2, whose gate comes
 * first. */
#include "compute/model/recurrent.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/model/arch/arch.h"
#include "compute/model/row.h"
#include "compute/model/state.h"

static size_t values_width(const struct transformer *m)
{
    return m->shape.state.n_heads * m->shape.state.value_dim;
}

static bool sums(const struct transformer *m)
{
    return m->shape.arch->recurrence == RECURRENCE_SUM;
}

enum status recurrent_open_weights(struct transformer *m, size_t layer, struct error *err)
{
    const size_t n = m->shape.state.n_key_heads;
    struct tensor all;
    enum status rc;

    if (!sums(m) || !transformer_recurs(&m->shape, layer))
        return STATUS_OK;
    rc = transformer_layer_tensor(&all, m->file, &m->shape, layer, PART_STATE_NORM, err);
    if (rc != STATUS_OK || all.name == NULL)
        return rc;
    m->layers[layer].state_norms = try_alloc(n, sizeof(struct weight *));
    if (m->layers[layer].state_norms == NULL)
        return error_no_memory(err, n * sizeof(struct weight *), "norms of heads");
    for (size_t i = 0; i < n && rc == STATUS_OK; i++) {
        struct tensor t = tensor_rows(&all, i, 1);

        rc = m->backend->type->weight_open(m->backend, &t, &m->layers[layer].state_norms[i], err);
        m->weight_bytes += rc == STATUS_OK ? t.size_bytes : 0;
    }
    return rc;
}

void recurrent_close_weights(struct transformer *m, size_t layer)
{
    struct weight ***norms = &m->layers[layer].state_norms;

    for (size_t i = 0; *norms != NULL && i < m->shape.state.n_key_heads; i++)
        m->backend->type->weight_close(m->backend, (*norms)[i]);
    free(*norms);
    *norms = NULL;
}

enum status recurrent_open_states(struct transformer *m, struct error *err)
{
    const struct shape_state *t = &m->shape.state;
    struct states_shape shape = {.n_slots = m->config.n_state_slots, .n_layers = m->shape.n_layers};
    struct states_layer *layers;
    enum status rc;

    if (t->n_heads == 0)
        return STATUS_OK;
    layers = try_alloc(shape.n_layers, sizeof(*layers));
    if (layers == NULL)
        return error_no_memory(err, shape.n_layers * sizeof(*layers), "layers");
    for (size_t i = 0; i < shape.n_layers; i++)
        if (transformer_recurs(&m->shape, i))
            layers[i] = (struct states_layer){(t->n_taps - 1) * t->n_channels,
                                              t->n_heads * t->key_dim * t->value_dim};
    shape.layers = layers;
    rc = m->backend->type->state->open(m->backend, &shape, &m->states, err);
    free(layers);
    return rc;
}

static enum status open_drafts(struct transformer *m, struct error *err)
{
    const struct shape_state *t = &m->shape.state;
    struct recurrent_tables *r = &m->recurrent;
    const size_t n = m->config.max_drafts, n_layers = m->shape.n_layers;
    enum status rc = STATUS_OK;

    assert(n <= m->config.max_tokens);
    if (n == 0)
        return STATUS_OK;
    r->drafts = try_alloc(n_layers, sizeof(*r->drafts));
    r->picks = try_alloc(n, sizeof(*r->picks));
    r->moves = try_alloc(n, sizeof(*r->moves));
    if (r->drafts == NULL || r->picks == NULL || r->moves == NULL)
        return error_no_memory(err, n * sizeof(*r->moves), "the tables of a step");
    for (size_t i = 0; i < n_layers && rc == STATUS_OK; i++) {
        if (!transformer_recurs(&m->shape, i))
            continue;
        rc = state_open_buffer(m, &r->drafts[i].in, n, t->n_channels, err);
        if (rc == STATUS_OK)
            rc = state_open_buffer(m, &r->drafts[i].gates, n, 2 * t->n_heads, err);
    }
    return rc;
}

static void close_drafts(struct transformer *m)
{
    struct recurrent_tables *r = &m->recurrent;

    for (size_t i = 0; r->drafts != NULL && i < m->shape.n_layers; i++) {
        m->backend->type->buffer_close(m->backend, r->drafts[i].in);
        m->backend->type->buffer_close(m->backend, r->drafts[i].gates);
    }
    free(r->drafts);
    free(r->picks);
    free(r->moves);
    r->drafts = NULL;
    r->picks = NULL;
    r->moves = NULL;
    r->n_drafts = 0;
}

enum status recurrent_open_tables(struct transformer *m, struct error *err)
{
    const struct shape_state *t = &m->shape.state;
    struct recurrent_tables *r = &m->recurrent;
    const size_t n = m->config.max_tokens, values = values_width(m);
    enum status rc;

    if (t->n_heads == 0)
        return STATUS_OK;
    r->rows = try_alloc(n, sizeof(*r->rows));
    if (r->rows == NULL)
        return error_no_memory(err, n * sizeof(*r->rows), "the tables of a step");
    if (sums(m) && ((rc = state_open_buffer(m, &r->all, n, t->n_channels + values + t->n_heads,
                                            err)) != STATUS_OK ||
                    (rc = state_open_buffer(m, &r->group, m->max_picks > n ? m->max_picks : n,
                                            values / t->n_key_heads, err)) != STATUS_OK))
        return rc;
    if ((rc = state_open_buffer(m, &r->in, n, t->n_channels, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->convolved, n, t->n_channels, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->gate, n, values, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->out, n, values, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->picked, m->max_picks, values, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->both, n, 2 * t->n_heads, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->parts[0], n, t->n_heads, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->parts[1], n, t->n_heads, err)) != STATUS_OK ||
        (rc = open_drafts(m, err)) != STATUS_OK)
        return rc;
    return state_open_buffer(m, &r->gates, n, 2 * t->n_heads, err);
}

void recurrent_close_tables(struct transformer *m)
{
    struct recurrent_tables *r = &m->recurrent;
    struct buffer **buffers[] = {&r->in,     &r->convolved, &r->gate,     &r->out,
                                 &r->picked, &r->both,      &r->parts[0], &r->parts[1],
                                 &r->gates,  &r->all,       &r->group};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        m->backend->type->buffer_close(m->backend, *buffers[i]);
        *buffers[i] = NULL;
    }
    close_drafts(m);
    free(r->rows);
    r->rows = NULL;
}

/* The products of a layer's input; those that give strengths and decays, to parts. */
static void recurrent_products(struct transformer *m, size_t layer, const struct input *in,
                               size_t n)
{
    const struct backend_type *op = m->backend->type;
    const struct shape_state *t = &m->shape.state;
    struct weight *const *parts = m->layers[layer].parts;
    struct recurrent_tables *r = &m->recurrent;
    const bool is_fused = parts[PART_STATE_BOTH] != NULL;
    const size_t each = t->n_heads / t->n_key_heads;
    const struct product products[] = {
        {parts[PART_STATE_IN], r->in},
        {parts[PART_STATE_GATE], r->gate},
        {is_fused ? parts[PART_STATE_BOTH] : parts[PART_STATE_STRENGTH],
         is_fused ? r->both : r->parts[0]},
        {parts[PART_STATE_DECAY], r->parts[1]},
    };

    op->matmul(m->backend, in, n, products, is_fused ? 3 : 4);
    for (size_t i = 0; is_fused && i < 2; i++)
        op->copy_columns(m->backend, r->both, 2 * each, i * each, n * t->n_key_heads, each,
                         r->parts[i], each, 0);
    for (size_t i = 0; i < 2; i++)
        op->copy_columns(m->backend, r->parts[i], t->n_heads, 0, n, t->n_heads, r->gates,
                         2 * t->n_heads, i * t->n_heads);
}

/* The same of one product of all. */
static void recurrent_product(struct transformer *m, size_t layer, const struct input *in, size_t n)
{
    const struct backend_type *op = m->backend->type;
    const struct shape_state *t = &m->shape.state;
    struct recurrent_tables *r = &m->recurrent;
    const size_t values = values_width(m), width = values + t->n_channels + t->n_heads;
    const struct product all = {m->layers[layer].parts[PART_STATE_ALL], r->all};

    op->matmul(m->backend, in, n, &all, 1);
    op->copy_columns(m->backend, r->all, width, 0, n, values, r->gate, values, 0);
    op->copy_columns(m->backend, r->all, width, values, n, t->n_channels, r->in, t->n_channels, 0);
    op->copy_columns(m->backend, r->all, width, width - t->n_heads, n, t->n_heads, r->gates,
                     2 * t->n_heads, t->n_heads);
}

/* From what the products give to r->out. */
static void recurrent_step(struct transformer *m, size_t layer, size_t n, size_t n_rows)
{
    const struct backend_type *op = m->backend->type;
    const struct state_ops *state = op->state;
    const struct shape_state *t = &m->shape.state;
    struct weight *const *parts = m->layers[layer].parts;
    struct recurrent_tables *r = &m->recurrent;
    const size_t keys = t->n_key_heads * t->key_dim, values = values_width(m);
    const bool corrects = !sums(m);
    const struct state_gates gates = {.bias = parts[PART_STATE_BIAS],
                                      .slope = parts[PART_STATE_SLOPE],
                                      .n_heads = t->n_heads,
                                      .corrects = corrects};
    const struct recurrence how = {.n_key_heads = t->n_key_heads,
                                   .n_heads = t->n_heads,
                                   .key_dim = t->key_dim,
                                   .value_dim = t->value_dim,
                                   .query_at = corrects ? 0 : values + keys,
                                   .key_at = corrects ? keys : values,
                                   .value_at = corrects ? 2 * keys : 0,
                                   .width = t->n_channels,
                                   .is_tiled = t->is_tiled,
                                   .corrects = corrects,
                                   .skip = parts[PART_STATE_SKIP]};

    state->conv(m->backend, m->states, layer, parts[PART_STATE_TAPS], t->n_taps,
                parts[PART_STATE_TAPS_BIAS], r->in, t->n_channels, r->rows, n_rows, r->convolved);
    op->activate(m->backend, ACTIVATION_SILU, NULL, n, t->n_channels, r->convolved);
    if (corrects)
        state->unit(m->backend, 2 * t->n_key_heads, t->key_dim, t->n_key_heads,
                    1.0f / sqrtf((float)t->key_dim), n, t->n_channels, r->convolved);
    state->gates(m->backend, &gates, n, r->gates);
    state->recur(m->backend, m->states, layer, &how, r->convolved, r->gates, r->rows, n_rows,
                 r->out);
}

/* Copies the picked rows of inputs. */
static void recurrent_copy_inputs(struct transformer *m, const struct recurrent_inputs *from,
                                  size_t n, const struct recurrent_inputs *to)
{
    const struct backend_type *op = m->backend->type;
    const struct shape_state *t = &m->shape.state;

    op->gather(m->backend, from->in, m->recurrent.picks, n, t->n_channels, to->in);
    op->gather(m->backend, from->gates, m->recurrent.picks, n, 2 * t->n_heads, to->gates);
}

void recurrent_run(struct transformer *m, size_t layer, const struct input *in, size_t n,
                   size_t n_rows)
{
    struct recurrent_tables *r = &m->recurrent;
    const struct recurrent_inputs made = {r->in, r->gates};

    if (sums(m))
        recurrent_product(m, layer, in, n);
    else
        recurrent_products(m, layer, in, n);
    if (r->n_drafts > 0)
        recurrent_copy_inputs(m, &made, r->n_drafts, &r->drafts[layer]);
    recurrent_step(m, layer, n, n_rows);
}

void recurrent_add_drafts(struct transformer *m, const struct transformer_row *row, size_t first)
{
    struct recurrent_tables *r = &m->recurrent;

    if (row->n_drafts == 0)
        return;
    assert(row->n_drafts < row->n_tokens && row->n_drafts <= m->config.max_drafts - r->n_drafts);
    for (size_t i = row->n_tokens - row->n_drafts; i < row->n_tokens; i++)
        r->picks[r->n_drafts++] = (uint32_t)(first + i);
}

bool recurrent_accept(struct transformer *m, const struct transformer_row *rows, size_t n_rows)
{
    struct recurrent_tables *r = &m->recurrent;
    const struct recurrent_inputs in = {r->in, r->gates};
    size_t at = 0, n = 0, n_moves = 0; /* at: the row's first draft */

    for (const struct transformer_row *row = rows; row < rows + n_rows; at += row++->n_drafts) {
        struct state_save *move;

        assert(row->n_accepted <= row->n_drafts && at + row->n_drafts <= r->n_drafts);
        if (row->n_drafts == 0 || row->n_accepted == 0)
            continue;
        move = &r->moves[n_moves];
        *move = (struct state_save){row->n_accepted, row->saves[row->n_saves - 1].slot};
        r->rows[n_moves++] = (struct state_row){.first = n,
                                                .n_tokens = row->n_accepted,
                                                .from = move->slot,
                                                .saves = move,
                                                .n_saves = 1};
        for (size_t i = 0; i < row->n_accepted; i++)
            r->picks[n++] = (uint32_t)(at + i);
    }
    for (size_t layer = 0; n > 0 && layer < m->shape.n_layers; layer++) {
        if (!transformer_recurs(&m->shape, layer))
            continue;
        recurrent_copy_inputs(m, &r->drafts[layer], n, &in);
        recurrent_step(m, layer, n, n_moves);
    }
    return n > 0;
}

/* Norms each group of heads of x [n][n_heads * value_dim]. */
static void norm_groups(struct transformer *m, size_t layer, size_t n, struct buffer *x)
{
    const struct backend_type *op = m->backend->type;
    const size_t n_groups = m->shape.state.n_key_heads, all = values_width(m);
    const size_t width = all / n_groups;
    struct buffer *group = m->recurrent.group;

    for (size_t i = 0; i < n_groups; i++) {
        const struct input in = {group, m->layers[layer].state_norms[i], m->shape.norm_eps};

        op->copy_columns(m->backend, x, all, i * width, n, width, group, width, 0);
        op->norm(m->backend, &in, n, width, group);
        op->copy_columns(m->backend, group, width, 0, n, width, x, all, i * width);
    }
}

const struct buffer *recurrent_output(struct transformer *m, size_t layer, const uint32_t *picks,
                                      size_t n)
{
    const struct backend_type *op = m->backend->type;
    const struct shape_state *t = &m->shape.state;
    struct recurrent_tables *r = &m->recurrent;
    const size_t width = values_width(m);
    struct input normed = {r->out, m->layers[layer].parts[PART_STATE_NORM], m->shape.norm_eps};
    struct buffer *gate = r->gate, *mixed = r->out;

    if (picks != NULL) {
        op->gather(m->backend, r->gate, picks, n, width, r->picked);
        gate = r->picked;
        op->gather(m->backend, r->out, picks, n, width, r->gate); /* which is free now */
        normed.x = mixed = r->gate;
    }
    if (!sums(m))
        op->norm(m->backend, &normed, n * t->n_heads, t->value_dim, mixed);
    op->activate(m->backend, ACTIVATION_SILU, mixed, n, width, gate);
    if (m->layers[layer].state_norms != NULL)
        norm_groups(m, layer, n, gate);
    return gate;
}
