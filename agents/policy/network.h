/* A policy's network on a backend: parameters, and the memory of one pass of up to max_rows rows.
 * Compute thread, but for opening and closing. */
#ifndef AGENTS_POLICY_NETWORK_H
#define AGENTS_POLICY_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/policy/policy.h"
#include "compute/net.h"

struct param {
    size_t n_rows, n_cols;
    struct buffer *value;
    struct buffer *gradient;       /* NULL until network_prepare */
    struct buffer *first, *second; /* Adam's moments; NULL until then, or loaded */
};

/* out = in weight^T + bias */
struct layer {
    char name[32];       /* of its tensors: NAME.weight, NAME.bias */
    float bound;         /* fresh parameters lie within it */
    struct param weight; /* [n_out][n_in] */
    struct param bias;   /* [1][n_out] */
};

/* Layers in the order of the file. */
enum { NETWORK_MAX_LAYERS = POLICY_MAX_LAYERS + 2, PARAM_NAME_SIZE = 40 };

struct network {
    struct policy_spec spec;
    struct backend *backend; /* borrowed */
    size_t max_rows;
    struct layer layers[NETWORK_MAX_LAYERS];
    size_t n_layers;
    struct layer *actions, *value; /* of them; value NULL without */

    /* One pass, [max_rows][…]. */
    struct buffer *in;                        /* [n_observations] */
    struct buffer *hidden[POLICY_MAX_LAYERS]; /* [n_hidden]; of an lstm the first is h_out */
    struct buffer *logits, *logp;             /* [n_actions] */
    struct buffer *values;                    /* [1]; NULL without */
    struct buffer *h_in, *c_in, *c_out;       /* [n_hidden], of an lstm */
    struct buffer *gates, *from_h;            /* [4 * n_hidden], of an lstm */

    /* Its gradients; NULL until network_prepare. */
    struct buffer *dlogits, *dvalues;
    struct buffer *dtop, *dbelow;    /* [n_hidden] */
    struct buffer *dh, *dc, *dgates; /* of an lstm: by h_out and c_out coming in, by h_in and c_in
                                        going out */

    size_t n_numbers; /* of all parameters */
    uint64_t n_steps; /* of the optimiser, that the parameters have behind them */
    /* Of a device, the host's copy, that outlives it: the parameters, and once there are steps
     * Adam's moments behind them, [3][n_numbers]. NULL where memory is the host's: what is there
     * is not lost. */
    float *kept;
};

/* The shapes, names and bounds of a spec's layers; no buffer. */
void network_shape(struct network *out, const struct policy_spec *spec);
/* "hidden.0.weight"; which 0: the weight, 1: the bias. Returns that of the two. */
struct param *network_param(struct network *net, size_t layer, int which,
                            char ret_name[PARAM_NAME_SIZE]);

/* After network_shape: takes the parameters' memory and that of a pass. */
enum status network_open(struct network *net, struct backend *b, size_t max_rows,
                         struct error *err) MUST_CHECK;
void network_close(struct network *net);
/* Puts numbers [n_kinds][n_numbers] on the backend, by n_steps. */
enum status network_load(struct network *net, const float *numbers, struct error *err) MUST_CHECK;
/* After an INTERNAL failure of a device: opens the device again, and all anew on it, from what is
 * kept. On failure only this and network_close may follow. */
enum status network_restart(struct network *net, const struct backend_config *config,
                            struct error *err) MUST_CHECK;
size_t network_weight_bytes(const struct network *net);
/* Of numbers that there are for each parameter: itself (1), or Adam's moments behind it (3). */
size_t network_n_kinds(const struct network *net);

/* From in (and h_in, c_in) of n rows to logp, values (and hidden[0], c_out). draws [n]. */
void network_forward(struct network *net, const struct net_draw *draws, size_t n);

/* Takes the memory of gradients and moments, once. */
enum status network_prepare(struct network *net, struct error *err) MUST_CHECK;
void network_zero_gradients(struct network *net);
/* Of the pass that was made last: from dlogits, dvalues (and dh, dc) to the parameters' gradients,
 * added (and to dh, dc of the step before). */
void network_backward(struct network *net, const struct net_draw *draws, size_t n);
/* One step of Adam. If the next sync is well, network_stepped counts it and takes what it made of a
 * device's numbers (network_fetch); else network_load takes the step back, which only a device
 * needs: with the host's memory no step fails. */
void network_step(struct network *net, float learning_rate);
void network_stepped(struct network *net, float *numbers);
/* numbers [n_kinds][n_numbers], to be there after the next sync; n_kinds 1, or 3 if there are
 * moments. */
void network_fetch(struct network *net, size_t n_kinds, float *numbers);

#endif
