/* Reads the numbers of a model from its file. */
#ifndef COMPUTE_MODEL_READ_SHAPE_H
#define COMPUTE_MODEL_READ_SHAPE_H

#include "base/status.h"
#include "compute/model/shape.h"

struct gguf;

/* The shape that a file's metadata states, checked against the tensors. An architecture we do not
 * run is UNIMPLEMENTED and names it. Any thread. */
enum status transformer_read_shape(struct transformer_shape *out, const struct gguf *g,
                                   struct error *err) MUST_CHECK;

#endif
