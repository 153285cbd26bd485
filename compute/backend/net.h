/* Operators of small f32 networks that learn: policies, recurrent cells. A backend that has them
 * names them in its table. The rules are the backend's: calls come from the compute thread, one
 * after the other; an operator returns nothing, backend_sync says what failed; a row is computed
 * from that row alone, in an order that does not depend on n, so a batched forward equals an
 * unbatched one bit for bit. Gradients of parameters are added to the buffers' contents, in the
 * order of rows, so rows may come in several calls.
 *
 * Activations are [n][width], weights [n_out][n_in], biases [n_out], all row-major f32. The bits of
 * `ref` are the definition, and `cpu` gives the same. */
#ifndef COMPUTE_BACKEND_NET_H
#define COMPUTE_BACKEND_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/backend/backend.h"
#include "compute/numerics/net_draw.h"
#include "compute/numerics/optim.h"

/* Rows of one batch that a layer's weights of their own apply to. */
struct net_group {
    size_t n_rows;
    const struct buffer *w, *bias; /* may be another backend's, of the same type */
};

struct net_ops {
    void (*zero)(struct backend *b, struct buffer *x, size_t n, size_t width);
    /* x += y */
    void (*add)(struct backend *b, struct buffer *x, const struct buffer *y, size_t n,
                size_t width);
    /* x[rows[i]] += y[i], i rising: the gradient of a lookup. rows may repeat; host memory [n]
     * below n_x, until the next sync. NULL: a device, which has no such networks yet. */
    void (*add_at)(struct backend *b, struct buffer *x, size_t n_x, const uint32_t *rows,
                   const struct buffer *y, size_t n, size_t width);
    /* x[i] = keep[i] ? x[i] : 0; keep is host memory [n] */
    void (*keep_rows)(struct backend *b, const bool *keep, size_t n, size_t width,
                      struct buffer *x);

    /* out[i][j] = bias[j] + the sum over k of in[i][k] * w[j][k]: sixteen chains of fma, k in chain
     * k % 16, folded by scalar_sum_lanes. */
    void (*linear)(struct backend *b, const struct buffer *in, const struct buffer *w,
                   const struct buffer *bias, size_t n, size_t n_in, size_t n_out,
                   struct buffer *out);
    /* As linear, of layers of one shape: the first groups[0].n_rows rows by groups[0]'s weights,
     * the next by those of groups[1] … groups is host memory [n_groups]. A row has the bits that
     * linear would give it. NULL: a device, whose buffers are its own backend's. */
    void (*linear_grouped)(struct backend *b, const struct buffer *in,
                           const struct net_group *groups, size_t n_groups, size_t n_in,
                           size_t n_out, struct buffer *out);
    /* din[i][k] = sum over j of dout[i][j] * w[j][k] (not when din is NULL); dw[j][k] += sum over i
     * of dout[i][j] * in[i][k]; dbias[j] += sum over i of dout[i][j]. Chains of fma in rising
     * order, but dbias, which is plain sums. */
    void (*linear_backward)(struct backend *b, const struct buffer *in, const struct buffer *w,
                            const struct buffer *dout, size_t n, size_t n_in, size_t n_out,
                            struct buffer *din, struct buffer *dw, struct buffer *dbias);

    /* x[i][k] = kept ? x[i][k] / (1 - rate) : 0, kept with probability 1 - rate by draws[i], layer
     * and k; in place. Applied to a gradient with the same draws, it is its own backward. draws is
     * host memory [n]. */
    void (*dropout)(struct backend *b, const struct net_draw *draws, uint32_t layer, float rate,
                    size_t n, size_t width, struct buffer *x);
    void (*relu)(struct backend *b, struct buffer *x, size_t n, size_t width);
    /* dx where out > 0, else 0; in place */
    void (*relu_backward)(struct backend *b, const struct buffer *out, size_t n, size_t width,
                          struct buffer *dx);

    void (*softmax)(struct backend *b, const struct buffer *in, size_t n, size_t width,
                    struct buffer *out);
    void (*log_softmax)(struct backend *b, const struct buffer *in, size_t n, size_t width,
                        struct buffer *out);
    /* The gradient by the logits of the sum over i of
     *     weights[i] * logp[i][actions[i]] + entropy_weight * the sum over a of p * logp,
     * logp being log_softmax of the logits. actions and weights are host memory [n]. */
    void (*log_prob_backward)(struct backend *b, const struct buffer *logp, const int32_t *actions,
                              const float *weights, float entropy_weight, size_t n, size_t width,
                              struct buffer *dlogits);

    /* One step of LSTM cells, all [n][width] but gates and from_h [n][4 * width]: i, f, g, o, which
     * are linear in the input and in the state before. gates become sigmoid and (g) tanh of the sum
     * of both; c_out = f * c_in + i * g; h_out = o * tanh(c_out). c_out may be c_in. */
    void (*lstm)(struct backend *b, struct buffer *gates, const struct buffer *from_h,
                 const struct buffer *c_in, size_t n, size_t width, struct buffer *c_out,
                 struct buffer *h_out);
    /* dh is by h_out; dc is by c_out on entry and by c_in on return; dgates is by the sums that
     * gates were made of. */
    void (*lstm_backward)(struct backend *b, const struct buffer *gates, const struct buffer *c_in,
                          const struct buffer *c_out, const struct buffer *dh, size_t n,
                          size_t width, struct buffer *dc, struct buffer *dgates);

    /* As optim_step_fn; m and v as it needs them. */
    void (*optim_step)(struct backend *b, const struct optim *o, uint64_t step, float lr, size_t n,
                       const struct buffer *g, struct buffer *p, struct buffer *m,
                       struct buffer *v);
};

extern const struct net_ops ref_net_ops, cpu_net_ops;

#endif
