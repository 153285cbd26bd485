/* Kernels over a vocabulary's logits, in the processor's widest registers. Every set gives the same
 * bits: the operations on each element are scalar.h's, and sums use its sixteen lanes. */
#ifndef AGENTS_LM_SAMPLING_LOGITS_H
#define AGENTS_LM_SAMPLING_LOGITS_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/numerics/draw.h"

enum {
    LOGITS_BLOCK = DRAW_BLOCK, /* values that a kernel takes at once; they stay in the cache */
    LOGITS_GROUP = 64,         /* values that are skipped or examined together */
};

/* All take x[n], n > 0. */
struct logit_kernels {
    const char *name; /* as in PARLEY_CPU: "generic", "avx2", "avx512" */
    bool (*are_finite)(const float *x, size_t n);
    float (*highest)(const float *x, size_t n); /* x without NaN */
    /* The start of the first group from i on that has a value of at least bound, or that is the
     * last and incomplete; n if there is none. Groups are counted from i. */
    size_t (*find_from)(const float *x, size_t n, size_t i, float bound);
    /* x = e^((x - top) * scale), 0 where that is at most least */
    void (*weigh)(float *x, size_t n, float top, float scale, float least);
    float (*sum)(const float *x, size_t n); /* n at most LOGITS_BLOCK */
};

/* The result of one pass over x[n], n > 0. */
struct logit_peak {
    bool are_finite;
    float top;
    size_t block; /* start of the block with the first of the highest values */
};

struct logit_peak logits_peak(const struct logit_kernels *p, const float *x, size_t n);
/* The index of the first of the highest values. */
size_t logits_first_top(const struct logit_peak *peak, const float *x);
/* ln of the sum of e^x. Each block is summed in sixteen f32 lanes, and blocks are added in order in
 * f64: exact enough, and the bits depend only on the values. */
double logits_log_sum(const struct logit_kernels *p, const float *x, size_t n, float top);

/* The set that PARLEY_CPU names, if the processor has it, else the best one. */
const struct logit_kernels *logit_kernels_choose(void);
/* The i-th set that this processor has, the best first; NULL after the last. */
const struct logit_kernels *logit_kernels_at(size_t i);

#endif
