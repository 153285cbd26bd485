/* The numbers of a model, as its file states them: read_shape.h reads and checks them. */
#ifndef COMPUTE_MODEL_SHAPE_H
#define COMPUTE_MODEL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/model/arch/arch.h"
#include "compute/numerics/kv_type.h"

enum { SHAPE_MAX_LAYERS = 1024, SHAPE_MAX_GROUPS = 64, SHAPE_MAX_STREAMS = 8 };

/* What layers may differ in. */
struct shape_layer {
    uint32_t ffn_width;
    uint16_t n_kv_heads, head_dim;
    bool cuts; /* what its network's gate makes is cut at so many standard deviations */
    float cut;
};

/* Of layers that carry a state: the numbers of struct recurrence, and the rows' width before it. */
struct shape_state {
    size_t n_heads; /* 0: the model has no such layers */
    size_t n_key_heads, key_dim, value_dim;
    size_t n_taps, n_channels; /* of the convolution before it */
    bool is_tiled;             /* as of struct recurrence */
};

struct transformer_shape {
    const struct arch *arch;
    size_t n_layers, width, n_heads, n_kv_heads, head_dim, ffn_width, n_vocab, context;
    /* Of each; those above are the greatest. are_alike: all have the same heads,
     * and none convolves. */
    struct shape_layer layers[SHAPE_MAX_LAYERS];
    bool are_alike;
    size_t n_kv_layers; /* that have keys and values; those behind them use another's */
    struct shape_state state;
    uint64_t has_state[SHAPE_MAX_LAYERS / 64]; /* a bit a layer */
    uint64_t is_dense[SHAPE_MAX_LAYERS / 64];  /* likewise: that has no experts */
    size_t n_taps;          /* of convolutions: layers that have neither key heads nor a state */
    size_t embedding_width; /* of each layer's own embedding of a token; 0: none */
    size_t n_streams;       /* of streams.h; 0: only the residual one */
    size_t laurel_rank;     /* of the product beside attention, with streams */
    size_t window_rotated;  /* as n_rotated, of the layers with a window */
    size_t n_blocks; /* of the file; those behind the layers predict further tokens, unused */
    float norm_eps, rope_base;

    size_t n_rotated; /* numbers of a head; 0: queries and keys are not rotated */
    float attention_scale, attention_cap; /* as struct attention */
    /* Latent attention: all heads share one key, of latent_rank numbers that are not rotated and
     * n_rotated that are (head_dim together); its first latent_rank numbers are the value, too.
     * plain_dim: of a query, what is not rotated; value_dim: of a head's output; query_rank: 0, or
     * queries are made in two steps. latent_rank 0: attention is not latent. */
    size_t latent_rank, plain_dim, value_dim, query_rank;
    /* Of the layers that have one, where it is shorter than the context; else 0. */
    size_t window;
    bool has_windows; /* as has_window says, even where it is no shorter than the context */
    bool is_parallel; /* as of struct arch */
    uint64_t has_window[SHAPE_MAX_LAYERS / 64]; /* a bit a layer */
    float embedding_scale, residual_scale;      /* factors; 1: none */
    float logit_factor, logit_cap;              /* cap 0: none */
    /* Queries are multiplied by 1 + rise * ln(1 + (position + ahead) / every); rise 0: they are
     * not. */
    float query_rise;
    size_t query_every, query_ahead;
    bool norms_rotated; /* as of struct arch */

    size_t n_experts, n_experts_used;      /* of a layer, and of a token in it; 0: none */
    size_t expert_width, shared_width;     /* of one, and of the one that all tokens use; 0: none */
    size_t n_dense_lead, expert_step;      /* layers before the first with experts; each so many */
    size_t n_expert_groups, n_groups_used; /* only the best groups are chosen from; 0: no groups */
    enum arch_routing routing;
    bool fuses_experts; /* their gates and ups are one tensor */
    bool norms_shares;  /* a token's shares are divided by their sum */
    float expert_scale; /* of the experts' sum */
};

bool transformer_is_windowed(const struct transformer_shape *s, size_t layer);
bool transformer_has_experts(const struct transformer_shape *s, size_t layer);

/* Whether a convolution of its inputs stands in the place of attention. */
bool transformer_convolves(const struct transformer_shape *s, size_t layer);
/* Whether it carries a state in the place of attention. */
bool transformer_recurs(const struct transformer_shape *s, size_t layer);
/* Whether one of these, or attention, stands before the network. */
bool transformer_mixes(const struct transformer_shape *s, size_t layer);
/* Whether it has a network, of experts or not. */
bool transformer_has_network(const struct transformer_shape *s, size_t layer);
/* Whether it attends to keys and values. */
bool transformer_attends(const struct transformer_shape *s, size_t layer);
/* Bytes of a slot of state, in all layers; 0: no layer has one. */
size_t transformer_state_bytes(const struct transformer_shape *s);
/* The layer whose keys and values a layer attends to. */
size_t transformer_kv_layer(const struct transformer_shape *s, size_t layer);
/* Bytes of a page of keys and values, in all layers. */
size_t transformer_kv_page_bytes(const struct transformer_shape *s, enum kv_type type);

/* Positions that a layer's tokens see; 0: all up to their own. */
size_t transformer_window(const struct transformer_shape *s, size_t layer);
/* Whether a layer's queries and keys are rotated. */
bool transformer_rotates(const struct transformer_shape *s, size_t layer);

#endif
