/* The memory of one parameter set: blocks that each hold all numbers of the set once. Uploads and
 * snapshots use the same blocks again from round to round. All functions here may be called on any
 * thread. */
#ifndef AGENTS_PARAMS_MEMORY_H
#define AGENTS_PARAMS_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/status.h"

/* A memory budget: of all parameter sets together, or of those of a principal. It must outlive
 * them. */
struct params_budget {
    struct params_budget *all; /* also counts what this one does; NULL: this is it */
    size_t max_bytes;
    atomic_size_t held_bytes; /* bytes taken and not given back; relaxed, since it is only a sum */
};

/* all: NULL, or the budget that this is half of. */
void params_budget_init(struct params_budget *b, size_t max_bytes, struct params_budget *all);
/* Takes size_bytes from the budget. STATUS_EXHAUSTED with a retry hint if the budget would be
 * exceeded, STATUS_PRECONDITION if the whole budget is smaller than size_bytes. */
enum status params_budget_take(struct params_budget *b, size_t size_bytes,
                               struct error *err) MUST_CHECK;
/* Gives back what params_budget_take took. */
void params_budget_give(struct params_budget *b, size_t size_bytes);

/* The blocks of one set. Its owner opens it with the first reference and ends with
 * params_memory_close. Each block in use, and each params_memory_ref, is a further reference. The
 * last reference to go frees the memory and its kept blocks. */
struct params_memory;

/* Makes a memory of blocks of n numbers, which keeps at most n_keep unused blocks for later.
 * Borrows budget. EXHAUSTED. */
enum status params_memory_open(struct params_memory **out, struct params_budget *budget, size_t n,
                               size_t n_keep, struct error *err) MUST_CHECK;
struct params_memory *params_memory_ref(struct params_memory *m);
void params_memory_unref(struct params_memory *m); /* m may be NULL */
/* Releases the owner's reference. Unused blocks are freed, now and from now on. */
void params_memory_close(struct params_memory *m);

/* Takes a block of n numbers: a kept block, whose contents are undefined, or a new one, which is
 * zeroed and counts in the budget. Errors are those of params_budget_take. */
enum status params_memory_take(float **out, struct params_memory *m, struct error *err) MUST_CHECK;
/* Gives back a block, which is kept or freed. block may be NULL. */
void params_memory_give(struct params_memory *m, float *block);

/* Returns the bytes of all blocks, in use or kept. */
size_t params_memory_held(struct params_memory *m);

#endif
