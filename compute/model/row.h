/* The rows that a call of a model runs. */
#ifndef COMPUTE_MODEL_ROW_H
#define COMPUTE_MODEL_ROW_H

#include <stddef.h>
#include <stdint.h>

#include "compute/backend/states.h"
#include "compute/numerics/draw.h"

/* One sequence's part in a call. */
struct transformer_row {
    const int32_t *ids; /* [n_tokens] the tokens to run, each < n_vocab */
    size_t n_tokens;
    size_t pos;           /* position of ids[0]; all before it are in the pages already */
    const int32_t *pages; /* [(pos + n_tokens) / KV_PAGE_TOKENS, rounded up] */
    /* Of a model with recurrent state: the slot that holds it behind pos tokens, STATES_NONE at
     * pos 0, and the slots that it is written to (struct state_row). */
    int32_t state;
    const struct state_save *saves; /* [n_saves], until the call returns */
    size_t n_saves;
    /* The last n_drafts tokens may turn out to be others: saves end before them, and the row is the
     * only one that reads or writes the slot of the last save. transformer_accept then moves that
     * slot on, behind the first n_accepted of them. */
    size_t n_drafts, n_accepted;
    size_t n_logits; /* of the last n_logits tokens; 0 for a chunk that is not the last */
    float *logits;   /* [n_logits][n_vocab], the caller's */
    /* Where the device is to draw the tokens itself (transformer_can_draw), else NULL. A logits row
     * is then written only where drawn has an id < 0. */
    const struct draw *draws; /* [n_logits] but for their row */
    struct drawn *drawn;      /* [n_logits] */
    /* Of the last n_hidden tokens, of a row without logits: the last layer's output behind the
     * final norm. */
    size_t n_hidden;
    float *hidden; /* [n_hidden][width], the caller's */
};

#endif
