/* The merges of byte-level BPE: which pairs of tokens merge into one, in which order. */
#ifndef AGENTS_LM_TOKENIZER_MERGES_H
#define AGENTS_LM_TOKENIZER_MERGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct merge_slot;

struct merges {
    struct merge_slot *slots; /* open addressing, at most half full */
    size_t mask;
    int32_t *results; /* [n], by rank */
    size_t n;
};

/* Room for n_max merges. A zeroed struct is a closed one. */
enum status merges_open(struct merges *out, size_t n_max, struct error *err) MUST_CHECK;
void merges_close(struct merges *m);

/* Adds the merge of the next rank. A pair that was added before keeps its first rank. */
void merges_add(struct merges *m, int32_t left, int32_t right, int32_t result);

struct merge_symbol;

/* Scratch memory, kept from one piece to the next. A zeroed struct is an empty one. */
struct merge_work {
    struct merge_symbol *symbols; /* [cap] */
    uint64_t *heap;               /* [2 * cap] */
    size_t cap;
};

void merge_work_deinit(struct merge_work *w);

/* Merges ids [n] in place, lowest rank first and leftmost first among equals, until no pair is
 * left; *ret_n is how many remain. An id < 0 merges with nothing. O(n log n). n < 2^31. */
enum status merges_apply(const struct merges *m, struct merge_work *w, int32_t *ids, size_t n,
                         size_t *ret_n, struct error *err) MUST_CHECK;

#endif
