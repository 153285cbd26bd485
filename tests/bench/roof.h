/* What the machine does at most, in bare loops: what bounds products of weights. */
#ifndef TESTS_BENCH_ROOF_H
#define TESTS_BENCH_ROOF_H

#include <stdbool.h>
#include <stddef.h>

struct roof {
    const char *set;  /* of kernels */
    size_t n_threads; /* all rates are theirs together, of multiplying n_threads times one's */
    size_t n_lanes;   /* 32 bits wide, of the set's registers */
    bool has_dots;    /* one instruction multiplies and adds up four bytes; else there are pairs */
    double read_rate; /* bytes a second, of memory in large pages */
    double dot_rate, fma_rate; /* instructions a second */
};

/* set: of kernels (cpu/kernels.h), which the processor has; borrowed. size_bytes: of memory that is
 * read. For "generic" nothing is multiplied. */
void roof_measure(struct roof *out, const char *set, size_t size_bytes, size_t n_threads);

/* Bytes a second that n_threads read together from size_bytes of memory; 0 without that much
 * memory. */
double roof_read_rate(size_t size_bytes, size_t n_threads);

/* The clock for what is compared with it: of one thread the time of its processor. */
double roof_clock_s(const struct roof *r);

enum { ROOF_MAX_THREADS = 64 };

#endif
