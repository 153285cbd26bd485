/* The options that a model is opened with. */
#ifndef COMPUTE_MODEL_CONFIG_H
#define COMPUTE_MODEL_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/kv_type.h"

struct transformer;

struct transformer_config {
    size_t max_tokens;  /* of one call, all rows together */
    size_t max_logits;  /* rows of logits of one call */
    size_t max_context; /* positions of a sequence; 0: the file's. Some ropes depend on it. */
    size_t n_kv_pages;
    enum kv_type kv_type;
    size_t n_kv_host_pages; /* pages of the host's memory beside them; only where
                               transformer_can_offload */
    size_t n_state_slots;   /* at least 1 where the model has recurrent state, else ignored */
    size_t max_drafts;      /* of one call, of a model with recurrent state, else ignored; at most
                               max_tokens */
    const int32_t *ends;    /* [n_ends] tokens that a draw may ban; borrowed */
    size_t n_ends;
    /* The model whose weights are used instead of preparing them again: of the same file, on a
     * backend of the same type, on any thread. It outlives this one. NULL: none. PRECONDITION where
     * the path has another file by now. */
    struct transformer *weights_of;
};

#endif
