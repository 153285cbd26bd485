/* Reads and checks the numbers of layers that carry a state. Private to compute/model/. */
#ifndef COMPUTE_MODEL_READ_STATE_H
#define COMPUTE_MODEL_READ_STATE_H

#include "base/status.h"

struct gguf;
struct transformer_shape;

/* Of an architecture with KEYS_STATE, once the number of layers is known: s->state and
 * s->has_state. */
enum status state_read_shape(struct transformer_shape *s, const struct gguf *g,
                             struct error *err) MUST_CHECK;

#endif
