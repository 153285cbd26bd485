#include "compute/model/shape.h"

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
    return s->arch->unrotated == UNROTATED_NONE || (layer + 1) % 4 != 0;
}

bool transformer_has_experts(const struct transformer_shape *s, size_t layer)
{
    return s->n_experts > 0 && layer >= s->n_dense_lead && (layer + 1) % s->expert_step == 0;
}
