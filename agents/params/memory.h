/* The memory of one set of parameters: blocks that each hold all of its numbers once, for uploads
 * and snapshots, used again from round to round. Any thread. */
#ifndef AGENTS_PARAMS_MEMORY_H
#define AGENTS_PARAMS_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/status.h"

/* The memory budget of all sets together; outlives them. */
struct params_budget {
    size_t max_bytes;
    atomic_size_t held_bytes; /* a sum: orders nothing */
};

void params_budget_init(struct params_budget *b, size_t max_bytes);
/* STATUS_EXHAUSTED with a retry hint if the budget would be exceeded, STATUS_PRECONDITION if it is
 * too small for this alone. */
enum status params_budget_take(struct params_budget *b, size_t size_bytes,
                               struct error *err) MUST_CHECK;
void params_budget_give(struct params_budget *b, size_t size_bytes);

struct params_memory;

/* Blocks of n numbers; at most n_keep unused blocks are kept. Holders of blocks share it; the last
 * reference frees it. */
enum status params_memory_open(struct params_memory **out, struct params_budget *budget, size_t n,
                               size_t n_keep, struct error *err) MUST_CHECK;
struct params_memory *params_memory_ref(struct params_memory *m);
void params_memory_unref(struct params_memory *m); /* NULL is fine */
/* Releases the owner's reference, frees the kept blocks and keeps none from now on. */
void params_memory_close(struct params_memory *m);

/* *out [n] has undefined contents; a new block is zeroed. STATUS_EXHAUSTED as above. */
enum status params_memory_take(float **out, struct params_memory *m, struct error *err) MUST_CHECK;
void params_memory_give(struct params_memory *m, float *block); /* NULL is fine */

/* Bytes of all blocks, used or kept. */
size_t params_memory_held(struct params_memory *m);

#endif
