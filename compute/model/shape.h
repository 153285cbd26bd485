/* The numbers of a model, as its file states them: read_shape.h reads and checks them. */
#ifndef COMPUTE_MODEL_SHAPE_H
#define COMPUTE_MODEL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arch;

enum { SHAPE_MAX_LAYERS = 1024 };

struct transformer_shape {
    const struct arch *arch;
    size_t n_layers, width, n_heads, n_kv_heads, head_dim, ffn_width, n_vocab, context;
    float norm_eps, rope_base;

    size_t n_rotated; /* numbers of a head; 0: queries and keys are not rotated */
    float attention_scale, attention_cap;       /* as struct attention */
    size_t window;                              /* of the layers that have one; 0: none has */
    uint64_t has_window[SHAPE_MAX_LAYERS / 64]; /* a bit a layer */
    float embedding_scale, residual_scale;      /* factors; 1: none */
    float logit_factor, logit_cap;              /* cap 0: none */
    /* Queries are multiplied by 1 + rise * ln(1 + position / every); rise 0: they are not. */
    float query_rise;
    size_t n_experts, n_experts_used; /* of a layer, and of a token in it; 0: none */
    float expert_scale;               /* of their sum */
    size_t query_every;
};

/* Positions that a layer's tokens see; 0: all up to their own. */
size_t transformer_window(const struct transformer_shape *s, size_t layer);
/* Whether a layer's queries and keys are rotated. */
bool transformer_rotates(const struct transformer_shape *s, size_t layer);

#endif
