/* What an open transformer holds: its weights, its pages, and the memory of one step. Private to
 * compute/model/. */
#ifndef COMPUTE_MODEL_STATE_H
#define COMPUTE_MODEL_STATE_H

#include <stdatomic.h>

#include "compute/backend/backend.h"
#include "compute/backend/states.h"
#include "compute/model/config.h"
#include "compute/model/ropes.h"
#include "compute/model/shape.h"
#include "compute/model/tensors.h"

/* A feed-forward network: of a layer, or an expert. */
struct model_network {
    const struct weight *gate, *up, *down;                /* gate is NULL where it has none */
    const struct weight *gate_bias, *up_bias, *down_bias; /* of one row; or NULL */
    size_t hidden;
    bool cuts; /* what the gate makes, at so many standard deviations */
    float cut;
};

/* The experts of a layer (experts.h). */
struct model_experts {
    struct model_network *networks; /* [n_experts] */
    float *select_bias;             /* [n_experts], or NULL */
    float *scales;                  /* [n_experts] of shares, or NULL */
};

/* The memory of one call with experts. Tokens are listed by the experts that they use: those of
 * expert e are rows[first[e]] … rows[first[e + 1] - 1]. */
struct expert_tables {
    struct buffer *normed, *gathered, *output; /* [max_tokens][width] */
    struct buffer *scores;                     /* [max_tokens][n_experts] */
    float *host_scores;                        /* the same */
    struct buffer *shared_scores;              /* [max_tokens] of the expert that all use, */
    float *shared_shares;                      /* [max_tokens] and its shares */
    uint32_t *all_rows;                        /* [max_tokens] 0, 1, … */
    uint32_t *chosen;                          /* [max_tokens][n_used] */
    float *shares;                             /* [max_tokens][n_used] of those */
    size_t *first;                             /* [n_experts + 1] */
    uint32_t *rows;                            /* [max_tokens * n_used] */
    float *factors;                            /* [max_tokens * n_used] of those */
    float *ones;                               /* the same where these are of inputs; else NULL */
};

/* Of layer_embeddings.h: the weights, and the memory of one call. */
struct layer_embeddings {
    struct weight *weights[N_LAYER_EMBEDDINGS];
    size_t n_rows;                      /* of the table; what is behind has that of id 0 */
    int32_t *ids;                       /* [max_tokens] */
    size_t n;                           /* tokens of the call */
    struct buffer *all, *projected;     /* [max_tokens][n_layers][embedding_width] */
    struct buffer *own, *picked, *gate; /* [max_tokens][embedding_width] */
    struct buffer *out;                 /* [max_tokens][width] */
};

/* A layer's products of latent attention (latent.h). */
struct model_latent {
    struct weight **keys, **values; /* [n_heads], or NULL */
};

/* The memory of one call with latent attention: all [max_tokens] but for one more number each. */
struct latent_tables {
    struct buffer *down;    /* [query_rank], or [head_dim]: before the norm */
    struct buffer *queries; /* [n_heads][plain_dim + n_rotated] */
    struct buffer *rotated; /* [n_heads][n_rotated] */
    struct buffer *latent;  /* [latent_rank] of a head */
    struct buffer *part;    /* [plain_dim], or [value_dim]: of a head */
    struct buffer *values;  /* [n_heads][value_dim] */
};

/* Of streams.h: the model's products, and the memory of one call. */
struct stream_tables {
    struct weight *to[SHAPE_MAX_STREAMS], *back[SHAPE_MAX_STREAMS]; /* from 1 on */
    struct buffer *x[SHAPE_MAX_STREAMS];                            /* [max_tokens][width] each */
    struct buffer *predicted[SHAPE_MAX_STREAMS];                    /* likewise */
    struct buffer *made, *other;                                    /* likewise */
    struct buffer *low;                                             /* [max_tokens][laurel_rank] */
    struct buffer *scores;                                          /* [max_tokens][n_streams] */
    float *host_scores;                                             /* the same */
    float *host_x;                                                  /* [max_tokens][width] */
    float *sizes;   /* [max_tokens] of the residual stream: the root of the mean square */
    float *factors; /* [n_streams][n_streams][max_tokens] */
    int32_t *zeros; /* [max_tokens] */
};

/* A layer's inputs [max_drafts] of its convolution and its gates; NULL where it has no state. */
struct recurrent_inputs {
    struct buffer *in, *gates;
};

/* The memory of one call with recurrent layers: all [max_tokens] but for one more number each. */
struct recurrent_tables {
    struct buffer *in, *convolved;      /* [n_channels] */
    struct buffer *gate, *out, *picked; /* [n_heads][value_dim]; picked: of the wanted tokens */
    struct buffer *both;                /* [2 * n_heads] as the products give them */
    struct buffer *parts[2];            /* [n_heads] of these, the strengths and the decays */
    struct buffer *gates;               /* [2][n_heads] */
    struct buffer
        *all; /* [n_channels + n_heads * (value_dim + 1)]: gate, inputs, decays; or NULL */
    struct buffer
        *group; /* [n_heads * value_dim / n_key_heads] of an output that is normed; or NULL */
    struct state_row *rows; /* the host's */
    /* Of the call's draft tokens, for transformer_accept; NULL without max_drafts. */
    struct recurrent_inputs *drafts; /* [n_layers] */
    size_t n_drafts;
    uint32_t *picks;          /* [max_drafts] of the call's tokens, or of the drafts */
    struct state_save *moves; /* [max_drafts] */
};

struct model_layer {
    struct weight *parts[N_PARTS]; /* NULL: the model has none */
    struct model_experts experts;  /* networks NULL: none */
    struct model_latent latent;
    struct weight **state_norms; /* [n_key_heads] of groups of heads of state; or NULL */
    float scale;                 /* of its output */
    float *predicts, *corrects;  /* PART_STREAM_PREDICT, PART_STREAM_CORRECT; or NULL */
};

struct transformer {
    struct backend *backend;
    const struct gguf *file;
    struct transformer_shape shape;
    struct transformer_config config;
    size_t weight_bytes;
    size_t max_picks;        /* of max_tokens and max_logits, the larger */
    atomic_size_t n_sharers; /* models that use its weights; any thread */

    struct model_layer *layers; /* [n_layers] */
    struct weight *embed, *norm;
    struct weight *norm_bias; /* or NULL */
    /* Of ones, as wide as heads: of the layers without a window, and with one; or NULL. */
    struct weight *ones[2];
    struct weight *own_head;  /* NULL where the head is embed */
    struct weight *head_bias; /* or NULL */
    struct model_ropes ropes;
    struct kv *kv;
    struct states *states; /* NULL: the model has no recurrent layers */
    bool borrows_kv;       /* kv and states are of the model whose micro-batches it runs */
    struct micro_batch *micro_batches; /* [n_micro_batches] or none */
    size_t n_micro_batches;
    size_t n_undivided; /* the number of next steps that are not divided */

    /* One call's activations, on the device. */
    struct buffer *x;               /* [max_tokens][width], the residual stream */
    struct buffer *q, *attn_output; /* [max_tokens][n_heads * head_dim] */
    struct buffer *k, *v;           /* [max_tokens][n_kv_heads * head_dim] */
    struct buffer *picked;          /* [max_picks][width] of x, in the last layer */
    struct buffer *hidden;          /* [max_tokens][width] of that, of rows without logits */
    struct buffer *branch; /* [max_tokens][width], a half of a layer before it is added to x; NULL
                              where it is added at once */
    struct buffer *normed; /* [max_tokens][width] where the norms are an operator; else NULL */
    struct buffer *gated, *upped; /* [max_tokens][a network's hidden width] where it is not fused */
    struct expert_tables experts;
    struct latent_tables latent;
    struct layer_embeddings embeddings;
    struct recurrent_tables recurrent;
    struct stream_tables streams;
    struct buffer *gated_queries; /* [max_tokens][n_heads][2][head_dim] as the product gives them */
    struct buffer *query_gate;    /* [max_tokens][n_heads * head_dim]; both NULL without gates */
    struct buffer *conv_in;       /* [max_tokens][3][width] of a convolution */
    struct buffer *conv[2];       /* [max_tokens][width] */
    struct buffer *beside; /* [max_tokens][width] the experts' output beside a network's; or NULL */
    struct buffer *logits; /* [max_logits][n_vocab] */
    struct buffer *fetched; /* the same, of those that the host wants; only where it draws */

    /* One call's tables, on the host; the backend reads them until it is synced. */
    int32_t *ids;            /* [max_tokens] */
    uint32_t *positions;     /* [max_tokens] */
    float *query_factors;    /* [max_tokens]; NULL: none */
    struct attend_row *rows; /* [max_tokens] */
    /* The tokens whose logits are wanted, and behind them those whose hidden states are; as a part
     * of all: */
    uint32_t *picks;              /* [max_picks] */
    uint32_t *pick_positions;     /* [max_picks] */
    float *pick_query_factors;    /* [max_picks] */
    struct attend_row *pick_rows; /* [max_picks] */
    uint32_t *hidden_picks;       /* [max_tokens] of the picks, those for hidden */
    float *staged_hidden;         /* [max_tokens][width] */
    float *staged;                /* [max_logits][n_vocab]: logits that go to several places */
    struct draw *draws;           /* [max_logits] */
    struct drawn *drawn;          /* [max_logits] */
    uint32_t *wanted;             /* [max_logits] rows of logits that the host wants */
    float **places;               /* [max_logits] and where they go */
};

/* Opens a buffer of activations: n rows of width floats. EXHAUSTED. */
static inline enum status state_open_buffer(struct transformer *m, struct buffer **out, size_t n,
                                            size_t width, struct error *err)
{
    size_t size_bytes = n * width * sizeof(float);

    *out = m->backend->type->buffer_open(m->backend, size_bytes);
    return *out != NULL ? STATUS_OK : error_no_memory(err, size_bytes, "activations");
}

#endif
