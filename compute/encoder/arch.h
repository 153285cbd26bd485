/* The architectures of encoders as data: what encoder.c computes for each. */
#ifndef COMPUTE_ENCODER_ARCH_H
#define COMPUTE_ENCODER_ARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/backend/backend.h"
#include "compute/model/arch/arch.h"

/* Where the two halves of a layer are normed: their input; their output, too; or the sum of both.
 */
enum encoder_norms { ENCODER_NORMS_BEFORE, ENCODER_NORMS_AROUND, ENCODER_NORMS_SUM };

/* Whether the network has a gate: none, one of its own, or the first rows of ffn_up. */
enum encoder_gate { ENCODER_UNGATED, ENCODER_GATED, ENCODER_GATE_IN_UP };

struct encoder_arch {
    struct arch is; /* its name alone */
    enum encoder_norms norms;
    enum encoder_gate gate;
    enum activation activation;
    bool norms_by_rms;        /* norms are by the root mean square; else LayerNorm */
    bool norms_heads;         /* queries and keys, by the root mean square of each head */
    bool norms_embedding;     /* the sum of embeddings, before the first layer */
    bool norms_output;        /* behind the last layer */
    bool embedding_is_normed; /* layer 0 has no norm before attention */
    bool embeds_by_width;     /* embeddings are multiplied by the root of the width */
    bool has_positions;       /* each position has an embedding */
    bool has_types;           /* each of two texts has an embedding */
    bool rotates;
    bool full_is_first;    /* of window_pattern layers the first has no window, else the last */
    size_t window_pattern; /* 0: no layer has a window */
    float rope_base, window_rope_base; /* where the file has none */
    bool head_gelu;                    /* the rank head's activation is GELU, else tanh */
};

/* The architecture of that name; NULL: there is none. */
const struct encoder_arch *encoder_arch_find(const char *name, size_t len);

#endif
