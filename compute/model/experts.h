/* The feed-forward network of a layer with experts: a router chooses a few for each token. */
#ifndef COMPUTE_MODEL_EXPERTS_H
#define COMPUTE_MODEL_EXPERTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "compute/model/tensors.h"

struct buffer;
struct input;
struct model_experts;
struct tensor;
struct transformer;
struct weight;

/* Opens a layer's router as floats, whatever the file has: with quantised weights backends round
 * activations, and a score that is a little off may choose another expert. */
enum status experts_open_router(struct transformer *m, struct weight **out, const struct tensor *t,
                                struct error *err) MUST_CHECK;

/* Whether a part is opened by experts_open_weights. */
bool experts_have_part(enum transformer_part part);

/* Opens the weights of a layer's experts; those opened before a failure are closed by the other. */
enum status experts_open_weights(struct transformer *m, struct model_experts *e, size_t layer,
                                 struct error *err) MUST_CHECK;
void experts_close_weights(struct transformer *m, struct model_experts *e);

/* Opens the memory, with room for the model's max_tokens; experts_close_tables follows in any
 * case. */
enum status experts_open_tables(struct transformer *m, struct error *err) MUST_CHECK;
void experts_close_tables(struct transformer *m);

/* x [n][width] += for each row the outputs of its experts, by their shares, and of the one that all
 * rows use. Each row's are added in the order of the experts, so its bits do not depend on other
 * rows. It waits for the device, since the host chooses; fails as sync does. router_in is what the
 * router reads; its scores are then divided by the root of the width. NULL: it reads `in`, too. */
enum status experts_run(struct transformer *m, size_t layer, const struct input *in,
                        const struct input *router_in, size_t n, struct buffer *x,
                        struct error *err) MUST_CHECK;

#endif
