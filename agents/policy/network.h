/* A policy's network on a backend: its parameters and the buffers of one pass of up to max_rows
 * rows. Compute thread, except for opening and closing. */
#ifndef AGENTS_POLICY_NETWORK_H
#define AGENTS_POLICY_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/policy/policy.h"
#include "compute/backend/net.h"

struct param {
    size_t n_rows, n_cols;
    struct buffer *value;
    struct buffer *gradient; /* NULL until network_prepare */
    struct buffer *first,
        *second; /* Adam's moments; NULL until network_prepare or network_load takes them */
};

/* out = in weight^T + bias */
struct network_layer {
    char name[32];       /* its tensors are NAME.weight and NAME.bias */
    float bound;         /* fresh parameters lie within ±bound */
    struct param weight; /* [n_out][n_in] */
    struct param bias;   /* [1][n_out] */
};

/* Layers in the order of the file. */
enum { NETWORK_MAX_LAYERS = POLICY_MAX_LAYERS + 2, PARAM_NAME_SIZE = 40 };

struct network {
    struct policy_spec spec;
    struct backend *backend; /* borrowed */
    size_t max_rows;
    struct network_layer layers[NETWORK_MAX_LAYERS];
    size_t n_layers;
    size_t n_outputs;                      /* of the head */
    struct network_layer *actions, *value; /* in layers; value NULL without a value head */

    /* Buffers of one pass, [max_rows][…]. */
    struct buffer *in;                        /* [n_observations] */
    struct buffer *hidden[POLICY_MAX_LAYERS]; /* [n_hidden]; for an lstm the first is h_out */
    struct buffer *logits, *logp;             /* [n_outputs]; logp NULL unless it is a softmax's */
    struct buffer *outputs;                   /* logp, or else logits: not opened by itself */
    struct buffer *values;                    /* [1]; NULL without a value head */
    struct buffer *h_in, *c_in, *c_out;       /* [n_hidden], of an lstm */
    struct buffer *gates, *from_h;            /* [4 * n_hidden], of an lstm */

    /* The pass's gradients; NULL until network_prepare. */
    struct buffer *dlogits, *dvalues;
    struct buffer *dtop, *dbelow;    /* [n_hidden] */
    struct buffer *dh, *dc, *dgates; /* for an lstm: before network_backward by h_out and c_out,
                                        after it by h_in and c_in */

    size_t n_numbers; /* of all parameters */
    uint64_t n_steps; /* steps of the optimiser that the parameters have had */
    /* The host's copy of a device's numbers, which survives the device: the parameters, followed by
     * Adam's moments once n_steps > 0, [3][n_numbers]. NULL if the backend's memory is the host's,
     * which is not lost. */
    float *kept;
};

/* Sets the shapes, names and bounds of a spec's layers; opens no buffers. */
void network_shape(struct network *out, const struct policy_spec *spec);
/* Returns a layer's weight (which 0) or bias (which 1), and its name, e.g. "hidden.0.weight". */
struct param *network_param(struct network *net, size_t layer, int which,
                            char ret_name[PARAM_NAME_SIZE]);

/* Opens the buffers of the parameters and of a pass. After network_shape. */
enum status network_open(struct network *net, struct backend *b, size_t max_rows,
                         struct error *err) MUST_CHECK;
void network_close(struct network *net);
/* Uploads numbers [n_kinds][n_numbers] to the backend; n_kinds by n_steps, as network_n_kinds. */
enum status network_load(struct network *net, const float *numbers, struct error *err) MUST_CHECK;
/* After an INTERNAL failure of a device: opens the device and all buffers again and loads kept.
 * After a failure only this and network_close may be called. */
enum status network_restart(struct network *net, const struct backend_config *config,
                            struct error *err) MUST_CHECK;
size_t network_weight_bytes(const struct network *net);
/* How many numbers there are for each parameter: 1, or 3 with Adam's moments. */
size_t network_n_kinds(const struct network *net);

/* Computes logp and values (and hidden[0], c_out) from in (and h_in, c_in) of n rows. draws [n]. */
void network_forward(struct network *net, const struct net_draw *draws, size_t n);

/* Networks of one shape, and the rows of a pass of all of them that are theirs. */
enum { NETWORK_MAX_GROUP = 64 };

struct network_part {
    struct network *net;
    size_t n_rows;
};

/* Whether network_forward_group can compute both in one pass. */
bool network_groups_with(const struct network *a, const struct network *b);
/* As network_forward, of n_parts networks that group with one another, up to NETWORK_MAX_GROUP;
 * each computes the next of its n_rows rows. All of the rows go through the buffers of the first
 * network, and no more than its max_rows. */
void network_forward_group(const struct network_part *parts, size_t n_parts,
                           const struct net_draw *draws);

/* Opens the buffers of gradients and moments, once. */
enum status network_prepare(struct network *net, struct error *err) MUST_CHECK;
void network_zero_gradients(struct network *net);
/* The backward pass of the last network_forward: from dlogits and dvalues (and dh, dc) adds to the
 * parameters' gradients (and sets dh, dc of the previous step). */
void network_backward(struct network *net, const struct net_draw *draws, size_t n);
/* One step of Adam. If the next sync succeeds, network_stepped counts the step and takes ownership
 * of a device's new numbers (from network_fetch). Else network_load undoes the step, which only a
 * device needs: in the host's memory no step fails. */
void network_step(struct network *net, float learning_rate);
void network_stepped(struct network *net, float *numbers);
/* Downloads numbers [n_kinds][n_numbers], which are valid after the next sync; n_kinds 1, or 3 if
 * there are moments. */
void network_fetch(struct network *net, size_t n_kinds, float *numbers);

#endif
