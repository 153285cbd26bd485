/* Several residual streams (AltUp). Before a layer each becomes itself and a sum of all, by scores
 * of the token; the layer then runs on the first alone, and what it has added is added to each, by
 * scores again. A product of low rank (Laurel) stands beside attention. The scores become factors
 * on the host. Private to compute/model/. */
#ifndef COMPUTE_MODEL_STREAMS_H
#define COMPUTE_MODEL_STREAMS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "compute/model/tensors.h"

struct transformer;

/* Whether a part is read by streams_open_layer and has no weight of its own. */
bool streams_have_part(enum transformer_part part);

/* Open weights and the memory of a call; the others follow in any case. All of them do nothing
 * where the model has no further streams. */
enum status streams_open_weights(struct transformer *m, struct error *err) MUST_CHECK;
void streams_close_weights(struct transformer *m);
enum status streams_open_layer(struct transformer *m, size_t layer, struct error *err) MUST_CHECK;
void streams_close_layer(struct transformer *m, size_t layer);
enum status streams_open_tables(struct transformer *m, struct error *err) MUST_CHECK;
void streams_close_tables(struct transformer *m);

/* The rest is for a model that has them, in this order, n tokens each. */

/* Makes the streams of the embeddings m->x. */
enum status streams_begin(struct transformer *m, size_t n, struct error *err) MUST_CHECK;
/* m->x = the first stream as it is predicted. */
enum status streams_predict(struct transformer *m, size_t layer, size_t n,
                            struct error *err) MUST_CHECK;
/* Adds to m->x, which has the attention's output, that of the product beside it. */
void streams_add_laurel(struct transformer *m, size_t layer, size_t n);
/* Corrects the streams by m->x, which has the network's output, and adds the layer's embedding. */
enum status streams_correct(struct transformer *m, size_t layer, size_t n,
                            struct error *err) MUST_CHECK;
/* m->x = the mean of all, each of the first one's size. */
enum status streams_end(struct transformer *m, size_t n, struct error *err) MUST_CHECK;

#endif
