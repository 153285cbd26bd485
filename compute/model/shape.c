#include "compute/model/shape.h"

#include "compute/model/arch/arch.h"

size_t transformer_window(const struct transformer_shape *s, size_t layer)
{
    return s->has_window[layer / 64] >> layer % 64 & 1 ? s->window : 0;
}

bool transformer_rotates(const struct transformer_shape *s, size_t layer)
{
    size_t every = s->arch->unrotated_every;

    return s->n_rotated > 0 && (every == 0 || (layer + 1) % every != 0);
}
