#include "compute/model/recurrent.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/model/arch/arch.h"
#include "compute/model/state.h"

static size_t values_width(const struct transformer *m)
{
    return m->shape.state.n_heads * m->shape.state.value_dim;
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
    if ((rc = state_open_buffer(m, &r->in, n, t->n_channels, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->convolved, n, t->n_channels, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->gate, n, values, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->out, n, values, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->picked, m->max_picks, values, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->both, n, 2 * t->n_heads, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->parts[0], n, t->n_heads, err)) != STATUS_OK ||
        (rc = state_open_buffer(m, &r->parts[1], n, t->n_heads, err)) != STATUS_OK)
        return rc;
    return state_open_buffer(m, &r->gates, n, 2 * t->n_heads, err);
}

void recurrent_close_tables(struct transformer *m)
{
    struct recurrent_tables *r = &m->recurrent;
    struct buffer **buffers[] = {&r->in,   &r->convolved, &r->gate,     &r->out,  &r->picked,
                                 &r->both, &r->parts[0],  &r->parts[1], &r->gates};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        m->backend->type->buffer_close(m->backend, *buffers[i]);
        *buffers[i] = NULL;
    }
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

void recurrent_run(struct transformer *m, size_t layer, const struct input *in, size_t n,
                   size_t n_rows)
{
    const struct backend_type *op = m->backend->type;
    const struct state_ops *state = op->state;
    const struct shape_state *t = &m->shape.state;
    struct weight *const *parts = m->layers[layer].parts;
    struct recurrent_tables *r = &m->recurrent;
    const size_t keys = t->n_key_heads * t->key_dim;
    const struct state_gates gates = {.bias = parts[PART_STATE_BIAS],
                                      .slope = parts[PART_STATE_SLOPE],
                                      .n_heads = t->n_heads,
                                      .corrects = true};
    const struct recurrence how = {.n_key_heads = t->n_key_heads,
                                   .n_heads = t->n_heads,
                                   .key_dim = t->key_dim,
                                   .value_dim = t->value_dim,
                                   .query_at = 0,
                                   .key_at = keys,
                                   .value_at = 2 * keys,
                                   .width = t->n_channels,
                                   .is_tiled = t->is_tiled,
                                   .corrects = true};

    recurrent_products(m, layer, in, n);
    state->conv(m->backend, m->states, layer, parts[PART_STATE_TAPS], t->n_taps, NULL, r->in,
                t->n_channels, r->rows, n_rows, r->convolved);
    op->activate(m->backend, ACTIVATION_SILU, NULL, n, t->n_channels, r->convolved);
    state->unit(m->backend, 2 * t->n_key_heads, t->key_dim, t->n_key_heads,
                1.0f / sqrtf((float)t->key_dim), n, t->n_channels, r->convolved);
    state->gates(m->backend, &gates, n, r->gates);
    state->recur(m->backend, m->states, layer, &how, r->convolved, r->gates, r->rows, n_rows,
                 r->out);
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
    op->norm(m->backend, &normed, n * t->n_heads, t->value_dim, mixed);
    op->activate(m->backend, ACTIVATION_SILU, mixed, n, width, gate);
    return gate;
}
