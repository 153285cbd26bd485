/* A set of n-grams that outlives the texts they came from: for distinct-n over a corpus. */
#ifndef WORLDS_SCORE_GRAMS_H
#define WORLDS_SCORE_GRAMS_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worlds/score/words.h"

/* Zeroed is empty. */
struct grams {
    struct words set; /* of copies in memory */
    struct arena memory;
    uint64_t n_total; /* with repetitions */
};

void grams_deinit(struct grams *g);
void grams_clear(struct grams *g);
/* gram: n words between single spaces. */
enum status grams_add(struct grams *g, struct text gram) MUST_CHECK;
enum status grams_merge(struct grams *g, const struct grams *from) MUST_CHECK;

/* The two parts of an average, distinct over total, with ParlAI's bounds: 1e-7 in place of 0. */
static inline double grams_num(uint64_t n_distinct)
{
    return n_distinct == 0 ? 1e-12 : (double)n_distinct;
}
static inline double grams_den(uint64_t n_total)
{
    return n_total == 0 ? 1e-5 : (double)n_total;
}

#endif
