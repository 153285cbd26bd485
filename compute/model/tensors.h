/* The weights of a llama file: their names and shapes. */
#ifndef COMPUTE_MODEL_TENSORS_H
#define COMPUTE_MODEL_TENSORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "compute/gguf/tensor.h"

struct llama_shape;

/* Of one layer. */
enum llama_part {
    PART_ATTN_NORM,
    PART_Q,
    PART_K,
    PART_V,
    PART_ATTN_OUT,
    PART_FFN_NORM,
    PART_GATE,
    PART_UP,
    PART_DOWN,
    N_PARTS,
};

/* The tensor of a part, which has the shape that s says: DATA_LOSS with both shapes if not. */
enum status llama_layer_tensor(const struct tensor **out, const struct gguf *g,
                               const struct llama_shape *s, size_t layer, enum llama_part part,
                               struct error *err) MUST_CHECK;

/* Of the whole model. The head is token_embd.weight again where the file has no output.weight. */
enum status llama_embed_tensor(const struct tensor **out, const struct gguf *g,
                               const struct llama_shape *s, struct error *err) MUST_CHECK;
enum status llama_norm_tensor(const struct tensor **out, const struct gguf *g,
                              const struct llama_shape *s, struct error *err) MUST_CHECK;
enum status llama_head_tensor(const struct tensor **out, const struct gguf *g,
                              const struct llama_shape *s, struct error *err) MUST_CHECK;

/* rope_freqs.weight, divisors of rope's frequencies [head_dim / 2], which the caller frees; NULL
 * where the file has none. */
enum status llama_read_rope_scale(float **out, const struct gguf *g, const struct llama_shape *s,
                                  struct error *err) MUST_CHECK;

/* UNIMPLEMENTED for a key under the architecture's name that requires what we do not compute. */
enum status llama_check_keys(const struct llama_shape *s, const struct gguf *g,
                             struct error *err) MUST_CHECK;

#endif
