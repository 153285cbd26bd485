/* What stands behind the pooled state of a text: dense layers that make its embedding, or a head
 * that scores a query with a document. It is small, and computed on the host, in f64. */
#ifndef COMPUTE_ENCODER_HEAD_H
#define COMPUTE_ENCODER_HEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct gguf;
struct head;

enum head_kind {
    HEAD_DENSE, /* dense_2, dense_3 */
    HEAD_RANK,  /* cls, cls.norm, cls.output */
};

struct head_config {
    enum head_kind kind;
    size_t width;   /* of a state */
    bool uses_gelu; /* behind cls, else tanh */
    float norm_eps;
};

/* *out is NULL where the file has no such tensors. DATA_LOSS where their shapes do not fit. Keeps
 * no reference to g. */
enum status head_open(struct head **out, const struct gguf *g, const struct head_config *config,
                      struct error *err) MUST_CHECK;
void head_close(struct head *h); /* NULL is fine */

size_t head_n_out(const struct head *h);

/* out [head_n_out] of a state [width]. Of one head one thread at a time. */
void head_run(struct head *h, const float *in, float *out);

/* The relevance that a rank head's scores [n] state, from 0 to 1: the sigmoid of the only one; of
 * two the share of the first, "yes", by softmax. */
float head_relevance(const float *scores, size_t n);

/* Whether a tensor of that name is a head's. */
bool head_has_tensor(const char *name);

#endif
