/* A feed-forward network: the fused operator where it has one, else step by step. Private to
 * compute/model/. */
#ifndef COMPUTE_MODEL_NETWORK_H
#define COMPUTE_MODEL_NETWORK_H

#include <stdbool.h>
#include <stddef.h>

struct buffer;
struct input;
struct model_network;
struct transformer;

/* out [n][width] = the network of the input's rows, or += that; out is not what the input reads. */
void network_run(struct transformer *m, const struct model_network *f, const struct input *in,
                 size_t n, bool stores, struct buffer *out);

#endif
