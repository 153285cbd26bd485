/* Architectures as data. A descriptor says what the layers of an architecture compute; one forward
 * pass (compute/model/rows.c) reads it. An architecture that needs no new operator is a descriptor
 * in table.c and nothing else.
 *
 *     x = embedding * its scale
 *     each layer:  x += residual scale * after(attention(before(x)))
 *                  x += residual scale * after(network(before(x)))
 *     logits = cap(head(norm(x)) * factor)
 *
 * before and after are norms, or nothing. In a parallel block the network reads what attention
 * reads, and has no norm of its own. */
#ifndef COMPUTE_MODEL_ARCH_ARCH_H
#define COMPUTE_MODEL_ARCH_ARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "compute/backend/backend.h"

struct gguf;

/* Where the two halves of a layer are normed. */
enum arch_norms { NORMS_BEFORE, NORMS_AFTER, NORMS_AROUND };

/* The norms of layers and of the head: by the root mean square; or with the mean subtracted first,
 * and with a bias where the file has one. */
enum arch_norm_kind { NORM_KIND_RMS, NORM_KIND_LAYER };

/* What queries and keys are normed by before they are rotated: each head alone, or all heads of a
 * token as one row. */
enum arch_head_norms { HEAD_NORMS_NONE, HEAD_NORMS_EACH, HEAD_NORMS_ALL };

/* The rope of layers with a window. */
enum arch_window_rope {
    WINDOW_ROPE_SAME,     /* that of the others; their base may differ */
    WINDOW_ROPE_LOCAL,    /* base 10000 unless the file says otherwise, never scaled */
    WINDOW_ROPE_UNSCALED, /* the same base, never scaled */
};

/* Which layers are not rotated. */
enum arch_unrotated {
    UNROTATED_NONE,
    UNROTATED_EVERY_FOURTH, /* the last of each four */
    UNROTATED_GLOBAL,       /* those without a window, of a model that has windows */
    UNROTATED_ALL,
};

/* The feed-forward network. */
enum arch_network {
    NETWORK_GATED,   /* down(activation(gate x) * up x) */
    NETWORK_PLAIN,   /* down(activation(up x)) */
    NETWORK_CLAMPED, /* as gated, by ACTIVATION_CLAMPED */
};

/* How a token's experts are chosen from the router's scores, where the file does not say, and what
 * their shares are. */
enum arch_routing {
    ROUTING_TOP_SOFTMAX,  /* those with the best scores; softmax over these */
    ROUTING_SOFTMAX,      /* by softmax over all, and its shares */
    ROUTING_SIGMOID,      /* by sigmoid, and its shares */
    ROUTING_SOFTMAX_BIAS, /* by softmax over all plus a bias; its shares over their sum */
    /* The best one, then the best of the others; its share is by softmax over those of them whose
     * scores are near it. */
    ROUTING_ONE_BY_ONE,
    ROUTING_TOP_SIGMOID, /* those with the best scores; sigmoid of each */
};

/* What stands in the place of attention in layers that carry a state (compute/backend/states.h). */
enum arch_recurrence {
    RECURRENCE_NONE,
    RECURRENCE_DELTA, /* a gated delta net: a key's value is corrected before it is added */
    RECURRENCE_SUM,   /* Mamba-2: it is added */
};

/* Keys beside those that all architectures have. */
enum arch_keys {
    KEYS_ATTENTION_SCALE = 1 << 0,   /* attention.scale instead of 1/sqrt(head_dim) */
    KEYS_SCALES = 1 << 1,            /* embedding_scale, residual_scale, logit_scale */
    KEYS_WINDOW = 1 << 2,            /* attention.sliding_window and its pattern */
    KEYS_ATTENTION_CAP = 1 << 3,     /* attn_logit_softcapping */
    KEYS_LOGIT_CAP = 1 << 4,         /* final_logit_softcapping */
    KEYS_QUERY_TEMPERATURE = 1 << 5, /* attention.temperature_scale: queries grow with positions */
    KEYS_YARN_BETAS = 1 << 6,        /* rope.scaling.yarn_beta_fast, …_slow */
    KEYS_EXPERTS = 1 << 8,           /* expert_count; without experts the layers are dense */
    /* The file has a window that nobody runs it with; only where it has a pattern of windows, too,
     * as a folder of transformers has, they are run with. */
    KEYS_WINDOW_IGNORED = 1 << 7,
    KEYS_LOGIT_FACTOR = 1 << 9,   /* logit_scale, which multiplies; elsewhere it divides */
    KEYS_ROUTING = 1 << 10,       /* expert_gating_func, expert_weights_norm, groups */
    KEYS_DENSE_LEAD = 1 << 11,    /* leading_dense_block_count */
    KEYS_EXPERT_STEP = 1 << 12,   /* interleave_moe_layer_step */
    KEYS_SHARED_EXPERT = 1 << 13, /* an expert that all tokens use */
    KEYS_NEXT_TOKENS = 1 << 14,   /* nextn_predict_layers: blocks at the end that are skipped */
    KEYS_LATENT = 1 << 15,        /* kv_lora_rank and more: keys and values are latent */
    KEYS_WINDOW_HEADS = 1 << 16,  /* key_length_swa and more: heads of layers with a window */
    KEYS_SHARED_KV = 1 << 17, /* shared_kv_layers at the end have no keys and values of their own */
    KEYS_CONVOLUTION = 1 << 19, /* shortconv.l_cache; layers without key heads are convolutions */
    KEYS_STATE = 1 << 20,       /* ssm.*, of layers that carry a state */
    KEYS_RECURRENT_LAYERS = 1 << 21, /* full_attention_interval, attention.recurrent_layers */
    KEYS_LAYER_EMBEDDINGS = 1 << 18, /* embedding_length_per_layer_input */
    /* attention.temperature_length, attention.norms_heads: of a folder of transformers */
    KEYS_TEMPERATURE_LENGTH = 1 << 22,
    KEYS_STREAMS =
        1 << 23, /* altup.*: streams beside the residual one; activation_sparsity_scale */
};

struct arch {
    const char *name; /* general.architecture; keys begin with it and a dot */
    enum arch_norms norms;
    enum arch_norm_kind norm_kind;
    enum arch_head_norms head_norms;
    bool head_norms_optional;   /* by the tensors of the file */
    bool head_norms_after_rope; /* queries and keys are rotated first */
    bool is_parallel;           /* the network reads what attention reads */
    bool may_be_parallel;       /* where the file has no ffn_norm */
    bool names_ffn_norm_post;   /* the norm before the network is post_attention_norm */
    enum arch_network network;
    enum arch_routing routing;
    size_t sigmoid_vocab;      /* a model of so many tokens routes by sigmoid; 0: none */
    bool has_sinks;            /* of attention (struct attention) */
    bool names_norm_embedding; /* the norm before the head is token_embd_norm */
    bool norms_shares;         /* where the file lacks expert_weights_norm */
    float shares_least;        /* added to the sum that shares are divided by; 0: 1e-20 */
    bool weighs_inputs;        /* shares multiply what experts read, not what they give */
    bool norms_values;         /* each head by its root mean square, without a weight */
    /* Queries and keys of the layers that are rotated likewise, once they are; but where
     * attention.norms_heads is false, or there are so many experts. */
    bool norms_rotated;
    size_t experts_unnormed;
    bool values_may_be_keys;     /* keys before they are normed, where the file has no attn_v */
    bool scores_unscaled;        /* attention's scale is 1 */
    bool pairs_may_stand;        /* a huge divisor in rope_freqs: that pair is not rotated */
    bool has_layer_scales;       /* each layer's output is multiplied by a number of its own */
    bool experts_beside_network; /* layers with experts have the other network, too */
    enum arch_recurrence recurrence;
    /* Each layer attends and carries a state: both read the same rows, and both outputs are added.
     * What is gated need not be normed, and the norm before the network is ffn_norm, bare. */
    bool recurs_beside;
    /* Layers have one half: attention, a state, or a network; tensors say which networks have
     * experts, and how wide the others are. */
    bool has_halves;
    bool never_attends;       /* all layers carry a state, and nothing else */
    bool names_other_epsilon; /* the key of the norms' epsilon may be that of the other kind */
    bool tiles_heads;         /* of state: their key heads come round again and again */
    bool gates_attention;     /* attn_q has for each head its query, then a gate of its output */
    enum activation activation;
    unsigned keys; /* of enum arch_keys */

    bool rope_halves;         /* see struct rope */
    bool rotates_whole_heads; /* rope.dimension_count is a head's width */
    bool has_length_factors; /* rope_factors_long and …_short hold whatever the type of scaling */
    bool requires_scales;    /* embedding_scale and residual_scale may not be absent */
    /* Where they are: embeddings are multiplied by the first, branches by the second over the root
     * of the number of layers, logits by the third over the width; 0: by nothing. */
    float scale_embedding, scale_depth;
    size_t scale_base_width;
    bool may_be_unrotated;   /* not rotated at all where rope.scaling.finetuned is false */
    bool yarn_scales_scores; /* and not cosines and sines */
    bool yarn_is_exact;      /* the ends of yarn's ramp are not rounded to pairs */
    enum arch_unrotated unrotated;
    enum arch_window_rope window_rope;
    size_t window;         /* where the file names none; 0: none */
    bool window_is_chunk;  /* as of struct attention */
    size_t window_layers;  /* only of a model of so many layers; 0: any */
    size_t window_pattern; /* of so many layers all but the last have the window */

    bool gate_is_in_up;             /* ffn_up's rows are the gate's, then those of up */
    bool embeds_by_width;           /* embeddings are multiplied by the root of the width */
    float attention_cap, logit_cap; /* where the file has none */
    /* Only queries of the layers that are not rotated grow with positions, which count themselves:
     * query_rise and query_every where the file lacks them. 0: queries of all layers grow. */
    float unrotated_rise;
    size_t unrotated_every;
    /* A model of so many layers scales its scores by 1/sqrt(width / heads); 0: none. */
    size_t layers_scaled_by_width;
};

enum { ARCH_KEY_MAX = 96 };

/* The architecture of a file. UNIMPLEMENTED names one that is not run here, and why. */
enum status arch_of_file(const struct arch **out, const struct gguf *g,
                         struct error *err) MUST_CHECK;

/* Writes the architecture's key of that name, NUL-ended; returns it. */
const char *arch_key(char key[ARCH_KEY_MAX], const struct arch *a, const char *name);

#endif
