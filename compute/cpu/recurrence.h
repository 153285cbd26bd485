/* A part of the work of state_ops.recur: columns of one head's state over the tokens of a row.
 * Columns are independent of one another. */
#ifndef COMPUTE_CPU_RECURRENCE_H
#define COMPUTE_CPU_RECURRENCE_H

#include "compute/backend/states.h"

enum { RECUR_COLUMNS = 32 };

struct recur_block {
    const struct recurrence *how;
    size_t head, column, n_columns; /* n_columns at most RECUR_COLUMNS */
    size_t n_tokens;
    const float *x, *gates; /* of the row's first token */
    float *out;             /* likewise */
    float skip;
    const float *from; /* the head's matrix; NULL: zeros */
    const struct state_save *saves;
    size_t n_saves;
    const struct states *states;
    size_t layer;
};

#endif
