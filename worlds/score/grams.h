/* A set of n-grams, with copies of their texts, for the metric distinct-n over a corpus. One
 * thread. */
#ifndef WORLDS_SCORE_GRAMS_H
#define WORLDS_SCORE_GRAMS_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worlds/score/words.h"

/* A zeroed struct is an empty set. */
struct grams {
    struct words set;    /* each n-gram as one word of the table, a text in memory */
    struct arena memory; /* of the copies */
    uint64_t n_total;    /* n-grams added, repetitions counted */
};

void grams_deinit(struct grams *g);
void grams_clear(struct grams *g);
/* Adds an n-gram: its words with single spaces between them. The text is copied. EXHAUSTED. */
enum status grams_add(struct grams *g, struct text gram) MUST_CHECK;
/* Adds all n-grams of another set, with its n_total. EXHAUSTED. */
enum status grams_merge(struct grams *g, const struct grams *from) MUST_CHECK;

/* Numerator and denominator of distinct-n, n_distinct / n_total, with what ParlAI uses in place of
 * 0. */
static inline double grams_num(uint64_t n_distinct)
{
    return n_distinct == 0 ? 1e-12 : (double)n_distinct;
}
static inline double grams_den(uint64_t n_total)
{
    return n_total == 0 ? 1e-5 : (double)n_total;
}

#endif
