/* An encoder: a transformer whose tokens see the whole text, before and behind them. It makes a
 * vector of each text, in one step, and keeps nothing of it. The compute thread's. */
#ifndef COMPUTE_ENCODER_ENCODER_H
#define COMPUTE_ENCODER_ENCODER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/backend/backend.h"
#include "compute/encoder/shape.h"

struct encoder;

struct encoder_config {
    size_t max_tokens, max_rows;  /* of one call */
    enum encoder_pooling pooling; /* NONE: the file's, else the mean */
};

/* A text, or two: tokens from n_first on are the second's. */
struct encoder_row {
    const int32_t *ids; /* [n_tokens] at least one, at most the context */
    size_t n_tokens, n_first;
    float *out; /* [encoder_n_out] */
};

/* Borrows b until encoder_close, and g until this returns. UNIMPLEMENTED names what the backend has
 * no kernels for; PRECONDITION: the pooling is by rank, and the file has no head for it. */
enum status encoder_open(struct encoder **out, struct backend *b, const struct gguf *g,
                         const struct encoder_config *config, struct error *err) MUST_CHECK;
void encoder_close(struct encoder *e); /* NULL is fine */

const struct encoder_shape *encoder_shape(const struct encoder *e);
enum encoder_pooling encoder_pooling_of(const struct encoder *e); /* never NONE */
size_t encoder_weight_bytes(const struct encoder *e);

/* The numbers of an embedding, not normalised; 1 where it ranks, which is the relevance. */
size_t encoder_n_out(const struct encoder *e);

/* A row's vector does not depend on the rows beside it, bit for bit. On failure no row's out is
 * defined; INTERNAL: the device has failed, and only encoder_close may follow. */
enum status encoder_run(struct encoder *e, const struct encoder_row *rows, size_t n_rows,
                        struct error *err) MUST_CHECK;

#endif
