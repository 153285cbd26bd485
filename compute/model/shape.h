/* The numbers of a model, as its file states them. */
#ifndef COMPUTE_MODEL_SHAPE_H
#define COMPUTE_MODEL_SHAPE_H

#include <stddef.h>

#include "base/status.h"

struct gguf;

struct llama_shape {
    size_t n_layers, width, n_heads, n_kv_heads, head_dim, ffn_width, n_vocab, context;
    float norm_eps, rope_base;
};

/* The shape that a file's metadata states, checked against the tensors. An architecture we do not
 * run is UNIMPLEMENTED and names it. Any thread. */
enum status llama_read_shape(struct llama_shape *out, const struct gguf *g,
                             struct error *err) MUST_CHECK;

#endif
