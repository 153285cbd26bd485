/* Compares an engine with known answers: files of JSON lines with the greedy replies and the
 * teacher-forced log-probabilities of the model's weights in f32. tests/golden/README.md says what
 * is in a line and where it comes from. */
#ifndef COMPUTE_MODEL_GOLDEN_H
#define COMPUTE_MODEL_GOLDEN_H

#include <stddef.h>

#include "base/status.h"
#include "compute/backend/backend.h"

struct gguf;
struct golden;

struct golden_greedy {
    size_t n;     /* lines */
    size_t equal; /* lines whose reply is equal up to the first step of a small margin */
};

struct golden_passages {
    size_t n, n_tokens; /* lines, and predicted tokens in all of them */
    double top1;        /* fraction of the tokens whose likeliest id is the expected one */
    double ppl_ratio;   /* perplexity over that of the known answers, all tokens pooled */
    double max_abs_logprob_diff, mean_abs_logprob_diff; /* natural logarithms */
};

/* Borrows b and g until golden_close. */
enum status golden_open(struct golden **out, struct backend *b, const struct gguf *g,
                        enum kv_type kv_type, struct error *err) MUST_CHECK;
void golden_close(struct golden *golden);

/* Sixteen lines at once. A step counts as one of small margin when the known log-probabilities of
 * its two likeliest ids differ by less than margin; what comes after it is not compared. A file
 * that is not there is NOT_FOUND, one that cannot be read as such lines DATA_LOSS. */
enum status golden_greedy(struct golden_greedy *out, struct golden *golden, const char *path,
                          double margin, struct error *err) MUST_CHECK;

enum status golden_passages(struct golden_passages *out, struct golden *golden, const char *path,
                            struct error *err) MUST_CHECK;

#endif
