#include "compute/model/shape.h"

#include "compute/backend/states.h"

bool transformer_is_windowed(const struct transformer_shape *s, size_t layer)
{
    return s->has_windows && (s->has_window[layer / 64] >> layer % 64 & 1);
}

size_t transformer_window(const struct transformer_shape *s, size_t layer)
{
    return transformer_is_windowed(s, layer) ? s->window : 0;
}

bool transformer_rotates(const struct transformer_shape *s, size_t layer)
{
    if (s->n_rotated == 0)
        return false;
    if (s->arch->unrotated == UNROTATED_GLOBAL)
        return !s->has_windows || transformer_is_windowed(s, layer);
    if (s->arch->unrotated == UNROTATED_ALL)
        return false;
    return s->arch->unrotated == UNROTATED_NONE || (layer + 1) % 4 != 0;
}

bool transformer_has_experts(const struct transformer_shape *s, size_t layer)
{
    return s->n_experts > 0 && layer >= s->n_dense_lead && (layer + 1) % s->expert_step == 0 &&
           (s->is_dense[layer / 64] >> layer % 64 & 1) == 0;
}

bool transformer_recurs(const struct transformer_shape *s, size_t layer)
{
    return s->state.n_heads > 0 && (s->has_state[layer / 64] >> layer % 64 & 1);
}

bool transformer_attends(const struct transformer_shape *s, size_t layer)
{
    return s->layers[layer].n_kv_heads > 0;
}

bool transformer_convolves(const struct transformer_shape *s, size_t layer)
{
    return s->n_taps > 0 && !transformer_attends(s, layer);
}

bool transformer_mixes(const struct transformer_shape *s, size_t layer)
{
    return transformer_attends(s, layer) || transformer_recurs(s, layer) ||
           transformer_convolves(s, layer);
}

bool transformer_has_network(const struct transformer_shape *s, size_t layer)
{
    return !s->arch->has_halves || !transformer_mixes(s, layer);
}

size_t transformer_state_bytes(const struct transformer_shape *s)
{
    const struct shape_state *t = &s->state;
    const struct states_layer one = {.n_tail = t->n_heads > 0 ? (t->n_taps - 1) * t->n_channels : 0,
                                     .n_matrices = t->n_heads * t->key_dim * t->value_dim};
    const struct states_shape layer = {.n_slots = 1, .n_layers = 1, .layers = &one};
    size_t n = 0;

    for (size_t i = 0; i < s->n_layers; i++)
        n += transformer_recurs(s, i);
    return n * states_floats(&layer) * sizeof(float);
}

size_t transformer_kv_layer(const struct transformer_shape *s, size_t layer)
{
    const bool windowed = transformer_is_windowed(s, layer);

    if (layer < s->n_kv_layers)
        return layer;
    for (layer = s->n_kv_layers - 1; layer > 0; layer--)
        if (transformer_is_windowed(s, layer) == windowed)
            break;
    return layer;
}

size_t transformer_kv_page_bytes(const struct transformer_shape *s, enum kv_type type)
{
    size_t heads_bytes = 0, rows_bytes = 0;

    for (size_t i = 0; i < s->n_kv_layers; i++)
        rows_bytes += transformer_convolves(s, i) ? s->width * sizeof(float) : 0;
    for (size_t i = 0; i < s->n_kv_layers; i++)
        heads_bytes += s->are_alike
                           ? s->n_kv_heads * kv_head_bytes(type, s->head_dim)
                           : s->layers[i].n_kv_heads * kv_head_bytes(type, s->layers[i].head_dim);
    return KV_PAGE_TOKENS * (2 * heads_bytes + rows_bytes);
}
