/* Opens and closes what an open transformer holds. Private to compute/model/. */
#ifndef COMPUTE_MODEL_OPEN_STATE_H
#define COMPUTE_MODEL_OPEN_STATE_H

#include "base/status.h"

struct backend;
struct transformer;

/* Allocates a step's tables on the host. */
enum status state_open_tables(struct transformer *m, struct error *err) MUST_CHECK;
/* Opens weights, pages and buffers on the device; state_close_device follows in any case. */
enum status state_open_device(struct transformer *m, struct error *err) MUST_CHECK;
/* Does nothing where the backend is down: its memory is gone. */
void state_close_device(struct transformer *m);

/* Opens a transformer on b that borrows the weights and pages of m, which outlives it. */
enum status state_open_borrowing(struct transformer **out, struct transformer *m, struct backend *b,
                                 struct error *err) MUST_CHECK;

/* Closes the device's part and the host's, and frees m. NULL is allowed. */
void state_close(struct transformer *m);

#endif
