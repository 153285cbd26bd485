/* Latent attention: all heads share one key, whose first numbers are the value, too. Queries are
 * brought into the latent space, and outputs out of it, by a product for each head; so pages hold
 * one row a token, and prompts and single tokens are computed alike. Private to compute/model/. */
#ifndef COMPUTE_MODEL_LATENT_H
#define COMPUTE_MODEL_LATENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/model/tensors.h"

struct buffer;
struct input;
struct model_latent;
struct transformer;

/* Whether a part is opened by latent_open_weights. */
bool latent_has_part(enum transformer_part part);

/* Opens a layer's products for each head; those opened before a failure are closed by the other. */
enum status latent_open_weights(struct transformer *m, struct model_latent *l, size_t layer,
                                struct error *err) MUST_CHECK;
void latent_close_weights(struct transformer *m, struct model_latent *l);

/* Opens the memory of a call; latent_close_tables follows in any case. Does nothing where attention
 * is not latent. */
enum status latent_open_tables(struct transformer *m, struct error *err) MUST_CHECK;
void latent_close_tables(struct transformer *m);

/* m->k [n][head_dim] = the rows' keys. positions is host memory [n]. */
void latent_run_keys(struct transformer *m, size_t layer, const struct input *in,
                     const uint32_t *positions, size_t n);
/* m->q [n][n_heads * head_dim] = the rows' queries. */
void latent_run_queries(struct transformer *m, size_t layer, const struct input *in,
                        const uint32_t *positions, size_t n);
/* Returns what the layer's output reads [n][n_heads * value_dim], made of m->attn_output. */
const struct buffer *latent_run_values(struct transformer *m, size_t layer, size_t n);

#endif
