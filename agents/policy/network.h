/* A policy's network on a backend: its parameters, and the buffers of one pass of up to max_rows
 * rows. All functions are called on the compute thread; opening and closing may be on any one
 * thread. Failures of a device come with the backend's next sync; where a function calls sync
 * itself, its comment says so. */
#ifndef AGENTS_POLICY_NETWORK_H
#define AGENTS_POLICY_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/policy/policy.h"
#include "compute/backend/net.h"

/* A matrix of parameters, [n_rows][n_cols]. */
struct param {
    size_t n_rows, n_cols;
    struct buffer *value;
    struct buffer *gradient; /* NULL until network_prepare */
    struct buffer *first,
        *second; /* Adam's moments; NULL until network_prepare or network_load opens them */
};

/* A linear layer: out = in weight^T + bias. */
struct network_layer {
    char name[32];       /* in the file its tensors are NAME.weight and NAME.bias */
    float bound;         /* fresh parameters lie within ±bound */
    struct param weight; /* [n_out][n_in] */
    struct param bias;   /* [1][n_out] */
};

enum { NETWORK_MAX_LAYERS = POLICY_MAX_LAYERS + 2, PARAM_NAME_SIZE = 40 };

/* network_shape lays it out, network_open opens its buffers, network_load fills the parameters;
 * then passes may run. network_prepare adds what learning needs. network_close frees everything and
 * may be called after a failure, or for a zeroed struct. */
struct network {
    struct policy_spec spec;
    struct backend *backend;                         /* borrowed */
    size_t max_rows;                                 /* the most rows of a pass */
    struct network_layer layers[NETWORK_MAX_LAYERS]; /* [n_layers] in the order of the file */
    size_t n_layers;
    size_t n_outputs;                      /* outputs of the head */
    struct network_layer *actions, *value; /* in layers; value is NULL without a value head */

    /* Buffers of one pass, [max_rows][…]. */
    struct buffer *in;                        /* [n_observations] */
    struct buffer *hidden[POLICY_MAX_LAYERS]; /* [n_hidden]; for an lstm the first is h_out */
    struct buffer *logits, *logp;       /* [n_outputs]; logp is NULL unless the head is a softmax */
    struct buffer *outputs;             /* the head's outputs: logp for a softmax, else logits; no
                                           buffer of its own */
    struct buffer *values;              /* [1]; NULL without a value head */
    struct buffer *h_in, *c_in, *c_out; /* [n_hidden], for an lstm */
    struct buffer *gates, *from_h;      /* [4 * n_hidden], for an lstm */

    /* Gradients of the pass, [max_rows][…]; NULL until network_prepare. */
    struct buffer *dlogits, *dvalues; /* by logits and values; the caller fills them in */
    struct buffer *dtop, *dbelow;     /* [n_hidden] scratch */
    struct buffer *dh, *dc, *dgates;  /* for an lstm; dh and dc are by h_out and c_out before
                                         network_backward, by h_in and c_in after it */

    size_t n_numbers; /* how many parameters there are */
    uint64_t n_steps; /* steps of the optimiser that the parameters have had */
    /* The host's copy of a device's numbers, which survives the device: the parameters, followed by
     * Adam's moments once n_steps > 0, [network_n_kinds][n_numbers]. Owned. NULL if the backend
     * computes in the host's memory, which is not lost. */
    float *kept;
};

/* Sets the shapes, names and bounds of a spec's layers; opens no buffers. */
void network_shape(struct network *out, const struct policy_spec *spec);
/* Returns a layer's weight (which 0) or bias (which 1), and its name, e.g. "hidden.0.weight". */
struct param *network_param(struct network *net, size_t layer, int which,
                            char ret_name[PARAM_NAME_SIZE]);

/* Opens the buffers of the parameters and of a pass, after network_shape. Borrows b. EXHAUSTED. */
enum status network_open(struct network *net, struct backend *b, size_t max_rows,
                         struct error *err) MUST_CHECK;
void network_close(struct network *net);
/* Uploads numbers [network_n_kinds][n_numbers]: the parameters and, if n_steps is above 0, Adam's
 * moments; else the moments become 0. Calls sync. EXHAUSTED; INTERNAL if a device has failed. */
enum status network_load(struct network *net, const float *numbers, struct error *err) MUST_CHECK;
/* Called after a device has failed (INTERNAL): opens the device and all buffers again, and loads
 * kept. If it fails, only network_restart and network_close may be called. */
enum status network_restart(struct network *net, const struct backend_config *config,
                            struct error *err) MUST_CHECK;
size_t network_weight_bytes(const struct network *net); /* of the parameters alone */
/* Returns how many numbers there are for each parameter: 1, or 3 with Adam's moments. */
size_t network_n_kinds(const struct network *net);

/* Computes n rows: outputs and values (for an lstm also hidden[0] and c_out) from in (for an lstm
 * also h_in and c_in). draws [n] decides on dropout. */
void network_forward(struct network *net, const struct net_draw *draws, size_t n);

enum { NETWORK_MAX_GROUP = 64 }; /* networks in one pass */

/* One network of several that are computed in one pass, and how many rows of the pass it has. */
struct network_part {
    struct network *net;
    size_t n_rows;
};

/* Returns whether network_forward_group can compute both networks in one pass: they have one shape,
 * and one backend that can. */
bool network_groups_with(const struct network *a, const struct network *b);
/* Computes rows of n_parts networks that group with one another, 1 … NETWORK_MAX_GROUP, as
 * network_forward would. All rows are in the buffers of the first network, part by part, and there
 * are at most as many as its max_rows. draws [rows]. */
void network_forward_group(const struct network_part *parts, size_t n_parts,
                           const struct net_draw *draws);

/* Opens the buffers that learning needs: gradients and moments, which are 0 at first. Does nothing
 * for those that are open. EXHAUSTED. */
enum status network_prepare(struct network *net, struct error *err) MUST_CHECK;
void network_zero_gradients(struct network *net);
/* Computes the backward pass of the last network_forward, from dlogits and dvalues (for an lstm
 * also dh and dc): adds to the parameters' gradients, and for an lstm replaces dh and dc by those
 * of the step before. draws and n are as in the forward pass. */
void network_backward(struct network *net, const struct net_draw *draws, size_t n);
/* Takes one step of Adam. The caller then syncs. If that succeeds it calls network_stepped, which
 * counts the step and takes numbers: for a device its new numbers (network_fetch), else NULL. If it
 * fails, which only a device does, the caller undoes the step by network_load. */
void network_step(struct network *net, float learning_rate);
void network_stepped(struct network *net, float *numbers);
/* Downloads numbers [n_kinds][n_numbers], which are valid after the next sync. n_kinds is 1 (the
 * parameters), or 3 if there are moments. */
void network_fetch(struct network *net, size_t n_kinds, float *numbers);

#endif
