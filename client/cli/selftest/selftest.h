/* A backend against the reference, against known answers, against itself, and against the clock. */
#ifndef CLIENT_CLI_SELFTEST_SELFTEST_H
#define CLIENT_CLI_SELFTEST_SELFTEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/gguf.h"

struct selftest {
    const char *backend, *model, *golden;
    uint32_t n_threads, context;
    double seconds; /* that a figure is measured for; 0: none are */
    bool is_json;
    uint64_t seed;
    bool all_hold;
};

/* What was found, a line each; what does not hold is remembered. */
void selftest_operator(struct selftest *s, const char *name, const char *type, double error,
                       double bound);
void selftest_verdict(struct selftest *s, const char *part, const char *what, const char *of,
                      bool holds);
/* What the backend says of how it multiplies. */
void selftest_products(const struct selftest *s, const char *how);
/* batch 0: of no batch; share < 0: of nothing. */
void selftest_figure(const struct selftest *s, const char *what, uint32_t batch, double value,
                     const char *unit, double share, const char *of);
/* What is left out, and why. */
void selftest_left_out(const struct selftest *s, const char *part, const char *why);

/* Operators on weights and sequences; and that a row does not depend on the rows beside it. */
enum status selftest_operators(struct selftest *s, struct backend *ref, struct backend *b,
                               struct error *err) MUST_CHECK;
/* Those of small networks, and drawing, where b has them. */
enum status selftest_networks(struct selftest *s, struct backend *ref, struct backend *b,
                              struct error *err) MUST_CHECK;
/* Products under fast math, where b's type has it. */
enum status selftest_fast(struct selftest *s, struct backend *ref, struct backend *b,
                          struct error *err) MUST_CHECK;
/* Known answers in s->golden. */
enum status selftest_golden(struct selftest *s, struct backend *b, const struct gguf *model,
                            struct error *err) MUST_CHECK;
/* A model's logits: the same bits alone, in a batch and in chunks. */
enum status selftest_invariance(struct selftest *s, struct backend *b, const struct gguf *model,
                                struct error *err) MUST_CHECK;
/* How fast the model is. */
enum status selftest_figures(struct selftest *s, struct backend *b, const struct gguf *model,
                             struct error *err) MUST_CHECK;

#endif
