/* Layers that carry a state in the place of attention: a convolution of the token's numbers, its
 * heads' steps (compute/backend/states.h), and a norm and a gate of what they give. Private to
 * compute/model/. */
#ifndef COMPUTE_MODEL_RECURRENT_H
#define COMPUTE_MODEL_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct buffer;
struct input;
struct transformer;
struct transformer_row;

/* Opens a layer's norms of groups of heads; recurrent_close_weights follows in any case. */
enum status recurrent_open_weights(struct transformer *m, size_t layer,
                                   struct error *err) MUST_CHECK;
void recurrent_close_weights(struct transformer *m, size_t layer);

/* Opens the slots of state; the memory of a call. Both do nothing where no layer carries a state.
 * recurrent_close_tables follows in any case. */
enum status recurrent_open_states(struct transformer *m, struct error *err) MUST_CHECK;
enum status recurrent_open_tables(struct transformer *m, struct error *err) MUST_CHECK;
void recurrent_close_tables(struct transformer *m);

/* Adds the drafts of a row, whose tokens are laid out from first on, to those of the call. */
void recurrent_add_drafts(struct transformer *m, const struct transformer_row *row, size_t first);
/* As transformer_accept, but for the sync; returns whether there is one to make. */
bool recurrent_accept(struct transformer *m, const struct transformer_row *rows, size_t n_rows);
/* Runs a layer's steps over the n tokens of the call's rows. */
void recurrent_run(struct transformer *m, size_t layer, const struct input *in, size_t n,
                   size_t n_rows);
/* Returns what the layer's output reads [n][n_heads * value_dim], of the picked tokens; picks NULL:
 * of all, n of them. */
const struct buffer *recurrent_output(struct transformer *m, size_t layer, const uint32_t *picks,
                                      size_t n);

#endif
