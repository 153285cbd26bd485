/* Tests a backend against the reference, known answers and itself, and measures its speed. */
#ifndef COMPUTE_VERBS_SELFTEST_SELFTEST_H
#define COMPUTE_VERBS_SELFTEST_SELFTEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/backend/backend.h"
#include "compute/gguf/gguf.h"

struct selftest {
    const char *backend, *model, *golden;
    uint32_t n_threads, context;
    double seconds; /* how long each figure is measured; 0: there are no figures */
    bool is_json;
    uint64_t seed;
    bool all_hold;
};

/* Both print a result as one line; a result that fails clears all_hold. */
void selftest_operator(struct selftest *s, const char *name, const char *type, double error,
                       double bound);
void selftest_verdict(struct selftest *s, const char *part, const char *what, const char *of,
                      bool holds);
/* Prints the backend's description of its matrix products. */
void selftest_products(const struct selftest *s, const char *how);
/* Prints a figure. batch 0: the figure has no batch; share < 0: the figure has no share. */
void selftest_figure(const struct selftest *s, const char *what, uint32_t batch, double value,
                     const char *unit, double share, const char *of);
/* Prints which part is left out, and why. */
void selftest_left_out(const struct selftest *s, const char *part, const char *why);

/* Tests operators on weights and sequences, and that no row depends on the rows beside it. */
enum status selftest_operators(struct selftest *s, struct backend *ref, struct backend *b,
                               struct error *err) MUST_CHECK;
/* Tests the operators of small networks, and drawing, if b has them. */
enum status selftest_networks(struct selftest *s, struct backend *ref, struct backend *b,
                              struct error *err) MUST_CHECK;
/* Tests products under fast math, if b's type has fast math. */
enum status selftest_fast(struct selftest *s, struct backend *ref, struct backend *b,
                          struct error *err) MUST_CHECK;
/* Tests the known answers in the folder s->golden. */
enum status selftest_golden(struct selftest *s, struct backend *b, const struct gguf *model,
                            struct error *err) MUST_CHECK;
/* Tests that a model's logits have the same bits alone, in a batch and in chunks. */
enum status selftest_invariance(struct selftest *s, struct backend *b, const struct gguf *model,
                                struct error *err) MUST_CHECK;
/* Measures how fast the model is. */
enum status selftest_figures(struct selftest *s, struct backend *b, const struct gguf *model,
                             struct error *err) MUST_CHECK;

#endif
