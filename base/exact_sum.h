/* The exact sum of any doubles, rounded once: the same bits in whatever order they are added and
 * however they were split between threads. Radford Neal's small superaccumulator ("Fast exact
 * summation using small and large superaccumulators", 2015): a fixed-point number as wide as all
 * doubles, in pieces of 32 bits whose carries wait. */
#ifndef BASE_EXACT_SUM_H
#define BASE_EXACT_SUM_H

#include <stdint.h>

enum { EXACT_SUM_PIECES = 67 };

/* Zeroed is 0. */
struct exact_sum {
    int64_t whole;  /* small whole numbers, the most frequent terms */
    double special; /* the sum of infinities and NaNs */
    uint32_t n_since_carry;
    int64_t pieces[EXACT_SUM_PIECES]; /* piece i counts 2^(32 i - 1075) */
};

void exact_sum_add(struct exact_sum *s, double x);
void exact_sum_merge(struct exact_sum *s, const struct exact_sum *other);
double exact_sum_read(const struct exact_sum *s);

#endif
