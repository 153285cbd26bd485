/* The weights of a llama file: their names and shapes. Shared by the reading of the shape and the
 * running of it; nobody else includes this. */
#ifndef COMPUTE_LLAMA_PARTS_H
#define COMPUTE_LLAMA_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/gguf.h"
#include "compute/llama.h"

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

/* Of the whole model. The head is token_embd.weight again where the file has no output.weight;
 * rope_freqs (divisors of rope's frequencies) is NULL where the file has none. */
enum status llama_embed_tensor(const struct tensor **out, const struct gguf *g,
                               const struct llama_shape *s, struct error *err) MUST_CHECK;
enum status llama_norm_tensor(const struct tensor **out, const struct gguf *g,
                              const struct llama_shape *s, struct error *err) MUST_CHECK;
enum status llama_head_tensor(const struct tensor **out, const struct gguf *g,
                              const struct llama_shape *s, struct error *err) MUST_CHECK;
enum status llama_rope_tensor(const struct tensor **out, const struct gguf *g,
                              const struct llama_shape *s, struct error *err) MUST_CHECK;

#endif
