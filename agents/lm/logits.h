/* Passes over a vocabulary's logits, in the widest registers that the processor has. Every set of
 * them gives the same bits: element by element the operations are scalar.h's, and sums are those of
 * its sixteen lanes. */
#ifndef AGENTS_LM_LOGITS_H
#define AGENTS_LM_LOGITS_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/draw.h"

enum {
    LOGITS_BLOCK = DRAW_BLOCK, /* values that a pass takes at once, so that they stay near */
    LOGITS_GROUP = 64,         /* that are skipped or looked at together */
};

/* Of x[n], n > 0. */
struct logit_passes {
    const char *name; /* as in PARLEY_CPU: "generic", "avx2", "avx512" */
    bool (*are_finite)(const float *x, size_t n);
    float (*highest)(const float *x, size_t n); /* of numbers */
    /* Where the first group at i or behind it begins that has a value of at least bound, or is the
     * last and not whole; n when there is none. Groups are counted from i. */
    size_t (*find_from)(const float *x, size_t n, size_t i, float bound);
    /* x = e^((x - top) * scale), 0 where that is at most least */
    void (*weigh)(float *x, size_t n, float top, float scale, float least);
    float (*sum)(const float *x, size_t n); /* n at most LOGITS_BLOCK */
};

/* What a look at all of x[n], n > 0, finds. */
struct logit_peak {
    bool are_finite;
    float top;
    size_t block; /* where the block with the first of the highest begins */
};

struct logit_peak logits_peak(const struct logit_passes *p, const float *x, size_t n);
/* Where the first of the highest is. */
size_t logits_first_top(const struct logit_peak *peak, const float *x);
/* ln of the sum of e^x. Sixteen lanes in f32 for each block, blocks added in order in f64: exact
 * enough, and the bits depend on nothing but the values. */
double logits_log_sum(const struct logit_passes *p, const float *x, size_t n, float top);

/* The best there is, or those of the set that PARLEY_CPU names if it is there. */
const struct logit_passes *logit_passes_choose(void);
/* All that this processor has, the best first; NULL after the last. */
const struct logit_passes *logit_passes_at(size_t i);

#endif
