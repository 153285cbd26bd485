/* The kernels of small networks that learn, of their optimisers, and of drawing tokens; launched as
 * those of kernels.h are. Bits are those of `ref`, and so of `cpu`. All numbers are f32 [n][width]
 * unless said otherwise; what comes from the host is aligned to 16. */
#ifndef COMPUTE_CUDA_NET_KERNELS_H
#define COMPUTE_CUDA_NET_KERNELS_H

#include "compute/cuda/kernels.h"
#include "compute/numerics/draw.h"
#include "compute/numerics/net_draw.h"

#ifdef __cplusplus
extern "C" {
#endif

struct optim_rates;

/* compute/backend/net.h says what each does. */
void cuda_net_zero(float *x, struct cuda_count n, uint32_t width, struct CUstream_st *stream);
void cuda_net_add(float *x, const float *y, struct cuda_count n, uint32_t width,
                  struct CUstream_st *stream);
void cuda_net_keep_rows(const bool *keep, struct cuda_count n, uint32_t width, float *x,
                        struct CUstream_st *stream);
void cuda_net_relu(float *x, struct cuda_count n, uint32_t width, struct CUstream_st *stream);
void cuda_net_relu_backward(const float *out, struct cuda_count n, uint32_t width, float *dx,
                            struct CUstream_st *stream);

void cuda_net_linear(const float *in, const float *w, const float *bias, struct cuda_count n,
                     uint32_t n_in, uint32_t n_out, float *out, struct CUstream_st *stream);
/* din may be NULL. */
void cuda_net_linear_backward(const float *in, const float *w, const float *dout,
                              struct cuda_count n, uint32_t n_in, uint32_t n_out, float *din,
                              float *dw, float *dbias, struct CUstream_st *stream);

void cuda_net_dropout(const struct net_draw *draws, uint32_t layer, float rate, struct cuda_count n,
                      uint32_t width, float *x, struct CUstream_st *stream);
/* In both, one thread reads a row: widths are small, numbers of actions. */
void cuda_net_softmax(const float *in, struct cuda_count n, uint32_t width, bool is_log, float *out,
                      struct CUstream_st *stream);
void cuda_net_log_prob_backward(const float *logp, const int32_t *actions, const float *weights,
                                float entropy_weight, struct cuda_count n, uint32_t width,
                                float *dlogits, struct CUstream_st *stream);
void cuda_net_lstm(float *gates, const float *from_h, const float *c_in, struct cuda_count n,
                   uint32_t width, float *c_out, float *h_out, struct CUstream_st *stream);
void cuda_net_lstm_backward(const float *gates, const float *c_in, const float *c_out,
                            const float *dh, struct cuda_count n, uint32_t width, float *dc,
                            float *dgates, struct CUstream_st *stream);

/* rates are device memory; v NULL: sgd. */
void cuda_optim_step(const struct optim_rates *rates, size_t n, const float *g, float *p, float *m,
                     float *v, struct CUstream_st *stream);

/* Draws a token for each of n draws from the row of logits [n_vocab] that it names. Leaves to the
 * host (id -1), besides the cases of draw.h: vocabularies of more than CUDA_DRAW_VOCAB tokens, and
 * cuts that leave more than CUDA_DRAW_MOST tokens. */
enum { CUDA_DRAW_MOST = 2048, CUDA_DRAW_VOCAB = 512 * DRAW_BLOCK };

void cuda_draw(const float *logits, uint32_t n_vocab, const struct draw *draws, struct cuda_count n,
               const int32_t *ends, uint32_t n_ends, struct drawn *out, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
