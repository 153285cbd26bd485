/* The ropes of a model: their scaling, as the file states it. */
#ifndef COMPUTE_MODEL_ROPES_H
#define COMPUTE_MODEL_ROPES_H

#include "base/status.h"
#include "compute/backend/rope.h"

struct gguf;
struct transformer_shape;

/* Of the layers without a window and of those with one; n_heads is left 0. */
struct model_ropes {
    struct rope all, windowed;
    float score_factor; /* of attention's scores; 1: none */
    double *scale;      /* the ropes' */
};

/* context: positions that a sequence may have. model_ropes_deinit follows in any case. */
enum status model_ropes_init(struct model_ropes *out, const struct gguf *g,
                             const struct transformer_shape *s, size_t context,
                             struct error *err) MUST_CHECK;
void model_ropes_deinit(struct model_ropes *r);

#endif
