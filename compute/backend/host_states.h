/* States in the host's memory, as ref and cpu hold them. */
#ifndef COMPUTE_BACKEND_HOST_STATES_H
#define COMPUTE_BACKEND_HOST_STATES_H

#include "compute/backend/states.h"

struct states {
    size_t n_slots, slot_floats;
    size_t *at;     /* [n_layers] where a layer begins in a slot */
    size_t *n_tail; /* [n_layers] */
    float *data;    /* [n_slots][slot_floats] */
};

enum status host_states_open(struct backend *b, const struct states_shape *shape,
                             struct states **out, struct error *err) MUST_CHECK;
void host_states_close(struct backend *b, struct states *s);
void host_states_read(struct backend *b, const struct states *s, int32_t slot, float *out);
void host_states_write(struct backend *b, struct states *s, int32_t slot, const float *from);

/* A layer's rows before the next token [n_taps - 1][width], and its matrices; NULL for
 * STATES_NONE. */
float *host_states_tail(const struct states *s, size_t layer, int32_t slot);
float *host_states_matrices(const struct states *s, size_t layer, int32_t slot);

/* The row that is back rows before row t of a convolution: of x, the row's first token's, or of
 * tail; NULL: it is zero. */
const float *host_states_row(const float *tail, size_t n_tail_rows, const float *x, size_t width,
                             size_t t, size_t back);
/* Writes the tails of a row's saves. x: of the row's first token. */
void host_states_save_tails(struct states *s, size_t layer, const struct state_row *row,
                            size_t n_tail_rows, size_t width, const float *x);

#endif
