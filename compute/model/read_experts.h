/* The part of read_shape.h that concerns experts. Private to compute/model/. */
#ifndef COMPUTE_MODEL_READ_EXPERTS_H
#define COMPUTE_MODEL_READ_EXPERTS_H

#include "base/status.h"

struct gguf;
struct transformer_shape;

/* Fills the shape's numbers of experts; its layers and widths are there already. */
enum status experts_read_shape(struct transformer_shape *s, const struct gguf *g,
                               struct error *err) MUST_CHECK;

#endif
