/* Embeddings that each layer has of its own: a part of a wide embedding of the token, beside a
 * projection of the usual one, is added behind the layer's network, through a gate. Private to
 * compute/model/. */
#ifndef COMPUTE_MODEL_LAYER_EMBEDDINGS_H
#define COMPUTE_MODEL_LAYER_EMBEDDINGS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct buffer;
struct transformer;

/* Open weights, and the memory of a call; the others follow in any case. They do nothing where the
 * model has no such embeddings. */
enum status layer_embeddings_open_weights(struct transformer *m, struct error *err) MUST_CHECK;
void layer_embeddings_close_weights(struct transformer *m);
enum status layer_embeddings_open_tables(struct transformer *m, struct error *err) MUST_CHECK;
void layer_embeddings_close_tables(struct transformer *m);

/* Makes all layers' embeddings of m->ids [n], whose usual ones are x. */
void layer_embeddings_begin(struct transformer *m, size_t n, const struct buffer *x);
/* What the layer's make of x [n][width], until the next call; NULL where there are none. picks [n]
 * are the rows of the call that x has; NULL: the first n. */
const struct buffer *layer_embeddings_make(struct transformer *m, size_t layer,
                                           const uint32_t *picks, size_t n, const struct buffer *x);
/* x [n][width] += that. */
void layer_embeddings_add(struct transformer *m, size_t layer, const uint32_t *picks, size_t n,
                          struct buffer *x);

#endif
