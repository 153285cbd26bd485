/* The weights of a model's file: their names and shapes. */
#ifndef COMPUTE_MODEL_TENSORS_H
#define COMPUTE_MODEL_TENSORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "compute/gguf/tensor.h"

struct gguf;
struct transformer_shape;

/* Of one layer. An architecture has some of them, and a file leaves out some that are optional. The
 * bias of a norm before a half of the layer follows it. */
enum transformer_part {
    PART_ATTN_NORM,
    PART_ATTN_NORM_BIAS,
    PART_Q,
    PART_K,
    PART_V,
    PART_Q_BIAS,
    PART_K_BIAS,
    PART_V_BIAS,
    PART_Q_NORM,
    PART_K_NORM,
    PART_QUERY_DOWN, /* latent attention: queries in two steps, */
    PART_QUERY_DOWN_NORM,
    PART_QUERY_UP,
    PART_LATENT, /* keys before their norm, */
    PART_LATENT_NORM,
    PART_LATENT_KEYS,   /* for each head, from a query to the latent numbers, */
    PART_LATENT_VALUES, /* and from them to its output */
    PART_ATTN_OUT,
    PART_ATTN_OUT_BIAS,
    PART_SINKS,
    PART_ATTN_POST_NORM,
    PART_FFN_NORM,
    PART_FFN_NORM_BIAS,
    PART_GATE,
    PART_UP,
    PART_DOWN,
    PART_UP_BIAS,
    PART_DOWN_BIAS,
    PART_FFN_POST_NORM,
    PART_NETWORK_POST_NORM, /* where experts are beside the network: of its output, */
    PART_EXPERTS_NORM,      /* and of the experts' input */
    PART_EXPERTS_POST_NORM, /* and output */
    PART_ROUTER_NORM,       /* of the router's input */
    PART_EXPERT_SCALES,     /* of shares */
    PART_GATE_UP_EXPERTS,   /* of each expert the gate's rows, then those of up */
    PART_CONV_IN, /* a convolution in the place of attention: of three parts that its rows make, */
    PART_CONV_TAPS,
    PART_CONV_OUT,
    PART_STATE_IN,   /* a state in the place of attention: the inputs of its convolution, */
    PART_STATE_GATE, /* of its output, */
    PART_STATE_ALL,  /* or the gate, the inputs and the decays one after the other */
    PART_STATE_STRENGTH,
    PART_STATE_DECAY,
    PART_STATE_BOTH, /* or these two, of each key head one after the other */
    PART_STATE_TAPS,
    PART_STATE_TAPS_BIAS,
    PART_STATE_SKIP, /* of a head's values to its output */
    PART_STATE_BIAS, /* of decays */
    PART_STATE_SLOPE,
    PART_STATE_NORM, /* a row for each group of heads, or one for each head */
    PART_STATE_OUT,
    PART_EMBEDDING_GATE, /* of the layer's own embedding, */
    PART_EMBEDDING_OUT,
    PART_EMBEDDING_NORM,
    PART_LAYER_SCALE,
    PART_STREAM_ROUTER, /* of streams.h: what scores a row, and its input's norm, */
    PART_STREAM_ROUTER_NORM,
    PART_STREAM_PREDICT, /* what each stream gets of each, [streams][streams] by scores, */
    PART_STREAM_CORRECT, /* and of what the layer has added, */
    PART_STREAM_SCALE,   /* what the layer's own embedding is gated by, */
    PART_LAUREL_LEFT,    /* and a product of low rank beside attention */
    PART_LAUREL_RIGHT,
    PART_LAUREL_NORM,
    PART_ROUTER,
    PART_ROUTER_BIAS,
    PART_SELECT_BIAS,  /* added to what experts are chosen by, but not to their shares */
    PART_GATE_EXPERTS, /* the experts one after the other */
    PART_UP_EXPERTS,
    PART_DOWN_EXPERTS,
    PART_GATE_EXPERTS_BIAS, /* a row each */
    PART_UP_EXPERTS_BIAS,
    PART_DOWN_EXPERTS_BIAS,
    PART_SHARED_GATE, /* the expert that all tokens use */
    PART_SHARED_UP,
    PART_SHARED_DOWN,
    PART_SHARED_ROUTER, /* its share is the sigmoid of this product; without: 1 */
    N_PARTS,
};

/* The tensor of a part, or the rows of a fused tensor, of the shape that s says: DATA_LOSS with
 * both shapes if not. Its name is NULL where the model has no such part. */
enum status transformer_layer_tensor(struct tensor *out, const struct gguf *g,
                                     const struct transformer_shape *s, size_t layer,
                                     enum transformer_part part, struct error *err) MUST_CHECK;

/* Rows first … first + n - 1. */
struct tensor tensor_rows(const struct tensor *t, size_t first, size_t n);
/* Numbers first … first + n - 1 of a tensor of one row of floats. */
struct tensor tensor_columns(const struct tensor *t, size_t first, size_t n);

/* The numbers of a part, row by row, in memory of the caller's, who frees it; NULL where the layer
 * has no such part. */
enum status transformer_read_row(float **out, const struct gguf *g,
                                 const struct transformer_shape *s, size_t layer,
                                 enum transformer_part part, struct error *err) MUST_CHECK;

/* Of the whole model. The head is token_embd.weight again where the file has no output.weight; its
 * bias is NULL where there is none. */
enum status transformer_embed_tensor(const struct tensor **out, const struct gguf *g,
                                     const struct transformer_shape *s,
                                     struct error *err) MUST_CHECK;
enum status transformer_norm_tensor(const struct tensor **out, const struct gguf *g,
                                    const struct transformer_shape *s,
                                    struct error *err) MUST_CHECK;
enum status transformer_head_tensor(const struct tensor **out, const struct gguf *g,
                                    const struct transformer_shape *s,
                                    struct error *err) MUST_CHECK;
/* NULL where the head's norm has none. */
enum status transformer_norm_bias_tensor(const struct tensor **out, const struct gguf *g,
                                         const struct transformer_shape *s,
                                         struct error *err) MUST_CHECK;
enum status transformer_head_bias_tensor(const struct tensor **out, const struct gguf *g,
                                         const struct transformer_shape *s,
                                         struct error *err) MUST_CHECK;

/* Of layers' own embeddings (layer_embeddings.h), of a model that has them. */
enum layer_embedding_part {
    LAYER_EMBEDDING_TABLE,
    LAYER_EMBEDDING_PROJECTION,
    LAYER_EMBEDDING_NORM,
    N_LAYER_EMBEDDINGS,
};
enum status transformer_layer_embedding_tensor(const struct tensor **out, const struct gguf *g,
                                               const struct transformer_shape *s,
                                               enum layer_embedding_part part,
                                               struct error *err) MUST_CHECK;

/* The product that makes stream `stream`, from 1 on, of the residual one; or with is_back what it
 * adds to the output. */
enum status transformer_stream_tensor(struct tensor *out, const struct gguf *g,
                                      const struct transformer_shape *s, size_t stream,
                                      bool is_back, struct error *err) MUST_CHECK;

/* UNIMPLEMENTED for a tensor that would silently be left out of a sum. */
enum status transformer_refuse_unknown_tensors(const struct transformer_shape *s,
                                               const struct gguf *g, struct error *err) MUST_CHECK;

/* A tensor of that shape: NOT_FOUND where there is none. */
enum status transformer_tensor_of_shape(const struct tensor **out, const struct gguf *g,
                                        const char *name, size_t n_rows, size_t n_cols,
                                        struct error *err) MUST_CHECK;

/* UNIMPLEMENTED for a key under the architecture's name that requires what we do not compute. */
enum status transformer_check_keys(const struct transformer_shape *s, const struct gguf *g,
                                   struct error *err) MUST_CHECK;

#endif
