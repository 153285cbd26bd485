/* The numbers and the tensors of an encoder, as its file states them. */
#ifndef COMPUTE_ENCODER_SHAPE_H
#define COMPUTE_ENCODER_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/encoder/arch.h"
#include "compute/gguf/tensor.h"

struct gguf;

enum { ENCODER_MAX_LAYERS = 256 };

/* pooling_type of the file. */
enum encoder_pooling {
    ENCODER_POOLS_NONE, /* or it does not say */
    ENCODER_POOLS_MEAN,
    ENCODER_POOLS_CLS,
    ENCODER_POOLS_LAST,
    ENCODER_POOLS_RANK,
};

struct encoder_shape {
    const struct encoder_arch *arch;
    size_t n_layers, width, n_heads, n_kv_heads, head_dim, ffn_width, n_vocab, context;
    size_t n_types;     /* of texts; 0: the file has no embeddings of them */
    size_t n_positions; /* that have embeddings; at least context, or 0: none has */
    size_t half_window; /* positions on each side that a token of a layer with a window sees */
    uint64_t has_window[ENCODER_MAX_LAYERS / 64]; /* a bit a layer */
    float norm_eps, rope_base, window_rope_base;
    double rope_factor;    /* that positions are divided by */
    float attention_scale; /* as struct attention */
    enum encoder_pooling pooling;
};

/* Parts of a layer. Each bias follows its weight. */
enum encoder_part {
    ENCODER_ATTN_NORM,
    ENCODER_ATTN_NORM_BIAS,
    ENCODER_Q,
    ENCODER_Q_BIAS,
    ENCODER_K,
    ENCODER_K_BIAS,
    ENCODER_V,
    ENCODER_V_BIAS,
    ENCODER_Q_NORM,
    ENCODER_K_NORM,
    ENCODER_ATTN_OUT,
    ENCODER_ATTN_OUT_BIAS,
    ENCODER_ATTN_POST_NORM,
    ENCODER_ATTN_SUM_NORM,
    ENCODER_ATTN_SUM_NORM_BIAS,
    ENCODER_FFN_NORM,
    ENCODER_FFN_NORM_BIAS,
    ENCODER_GATE,
    ENCODER_UP,
    ENCODER_UP_BIAS,
    ENCODER_DOWN,
    ENCODER_DOWN_BIAS,
    ENCODER_FFN_POST_NORM,
    ENCODER_FFN_SUM_NORM,
    ENCODER_FFN_SUM_NORM_BIAS,
    ENCODER_N_PARTS,
};

/* Parts of the whole model. */
enum encoder_model_part {
    ENCODER_EMBEDDING,
    ENCODER_TYPES,
    ENCODER_POSITIONS,
    ENCODER_EMBEDDING_NORM,
    ENCODER_EMBEDDING_NORM_BIAS,
    ENCODER_OUTPUT_NORM,
    ENCODER_OUTPUT_NORM_BIAS,
    ENCODER_N_MODEL_PARTS,
};

/* Reads and checks all. UNIMPLEMENTED names a key or tensor that would change the result and is not
 * computed; DATA_LOSS what contradicts the rest. */
enum status encoder_read_shape(struct encoder_shape *out, const struct gguf *g,
                               struct error *err) MUST_CHECK;

bool encoder_is_windowed(const struct encoder_shape *s, size_t layer);

/* The tensor of a part; its name is NULL where the layer, or the model, has none. DATA_LOSS with
 * both shapes where it has another shape than the numbers say. */
enum status encoder_layer_tensor(struct tensor *out, const struct gguf *g,
                                 const struct encoder_shape *s, size_t layer,
                                 enum encoder_part part, struct error *err) MUST_CHECK;
enum status encoder_model_tensor(struct tensor *out, const struct gguf *g,
                                 const struct encoder_shape *s, enum encoder_model_part part,
                                 struct error *err) MUST_CHECK;

#endif
