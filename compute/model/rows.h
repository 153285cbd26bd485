/* Runs rows through all layers on one backend: lays out their tokens, and delivers the logits. */
#ifndef COMPUTE_MODEL_ROWS_H
#define COMPUTE_MODEL_ROWS_H

#include <stddef.h>

#include "base/status.h"

struct transformer;
struct transformer_row;

enum status rows_run(struct transformer *m, const struct transformer_row *rows, size_t n_rows,
                     struct error *err) MUST_CHECK;

#endif
