/* A generative model: one LSTM reads the text; a second one begins with the state of the first and
 * writes the reply word by word, the likeliest word each time (Sutskever et al., "Sequence to
 * Sequence Learning with Neural Networks", 2014). Both use one table of words' vectors. One thread
 * at a time; a pass uses the backend's own threads.
 *
 * Rows of a pass are packed: they are sorted by falling length, and each step through time computes
 * those that still have a word, so no padding is computed. A row is computed from that row alone,
 * so replies and scores have the same bits in every batch. */
#ifndef AGENTS_SEQ2SEQ_SEQ2SEQ_H
#define AGENTS_SEQ2SEQ_SEQ2SEQ_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct seq2seq;
struct word_table;

enum { SEQ2SEQ_MAX_WIDTH = 8192, SEQ2SEQ_MAX_WORDS = 4096, SEQ2SEQ_MAX_ROWS = 1 << 16 };

struct seq2seq_spec {
    size_t n_dims;   /* numbers of a word's vector, 1 … SEQ2SEQ_MAX_WIDTH */
    size_t n_hidden; /* numbers of a cell's state, 1 … SEQ2SEQ_MAX_WIDTH */
    uint64_t seed;   /* by which fresh parameters are drawn */
};

struct seq2seq_config {
    const char *backend; /* "cpu", "ref" */
    size_t n_threads;    /* threads of the backend; 0: the physical cores */
};

/* A row of a pass: a text, the reply that it should get (label), and the results. Texts and labels
 * are borrowed. */
struct seq2seq_row {
    const int32_t *text;    /* [n_text] ids of words; without words it counts as __null__ */
    const int32_t *label;   /* [n_label] ids of words, __end__ among them; read only by
                               seq2seq_score and seq2seq_learn */
    size_t n_text, n_label; /* at most SEQ2SEQ_MAX_WORDS each; n_label at least 1 */
    double loss;            /* out: the label's negative log-likelihood, in nats, over its words */
    uint32_t n_right;       /* out: the label's words than which no other word was likelier */
    struct buf reply; /* out: int32_t, the reply's words without __end__. The caller initialises it
                         before seq2seq_generate and frees it */
};

/* Makes a model with fresh parameters: uniform within 1/sqrt(n_hidden), the words' vectors within
 * 1. Takes words, a settled table, also on failure. STATUS_INVALID names the number that is out of
 * bounds; UNIMPLEMENTED if the backend cannot compute the model; EXHAUSTED. */
enum status seq2seq_create(struct seq2seq **out, const struct seq2seq_spec *spec,
                           struct word_table *words, const struct seq2seq_config *config,
                           struct error *err) MUST_CHECK;
/* Reads a model from a file. DATA_LOSS if the file is no seq2seq or is inconsistent; else the
 * errors of gguf_open and of the backend. */
enum status seq2seq_read(struct seq2seq **out, const char *path,
                         const struct seq2seq_config *config, struct error *err) MUST_CHECK;
void seq2seq_close(struct seq2seq *s); /* s may be NULL */
/* Writes the model to a file, by rename, without the optimiser's moments. */
enum status seq2seq_save(struct seq2seq *s, const char *path, struct error *err) MUST_CHECK;
/* Writes, by rename, all that learning needs to continue with the same bits: what seq2seq_save
 * writes, the moments, the count of steps, and `state`, the caller's text, as the key
 * "training.state". seq2seq_read reads this file, too. */
enum status seq2seq_save_training(struct seq2seq *s, const char *state, const char *path,
                                  struct error *err) MUST_CHECK;
/* Reads the moments and the count of steps from such a file into the model that seq2seq_read made
 * of the same file. DATA_LOSS if the file was not written by seq2seq_save_training. */
enum status seq2seq_restore_training(struct seq2seq *s, const char *path,
                                     struct error *err) MUST_CHECK;
const struct word_table *seq2seq_words(const struct seq2seq *s); /* borrowed */

/* Computes loss and n_right of n rows, 1 … SEQ2SEQ_MAX_ROWS. INVALID for a number of rows or words
 * or an id that is out of bounds; EXHAUSTED. */
enum status seq2seq_score(struct seq2seq *s, struct seq2seq_row *rows, size_t n,
                          struct error *err) MUST_CHECK;
/* Computes loss and n_right as seq2seq_score does, then takes a step of Adam (0.9, 0.999, 1e-8)
 * with that rate on the mean loss over the words of all labels. On an error of the pass no
 * parameter has changed. */
enum status seq2seq_learn(struct seq2seq *s, struct seq2seq_row *rows, size_t n, float rate,
                          struct error *err) MUST_CHECK;
/* Appends to the reply of each row at most max_words words, up to __end__; no other special word is
 * in it. Errors as for seq2seq_score; replies may then be incomplete. */
enum status seq2seq_generate(struct seq2seq *s, struct seq2seq_row *rows, size_t n,
                             size_t max_words, struct error *err) MUST_CHECK;

/* For tests: read and write all parameters, and compute the gradient of the mean that seq2seq_learn
 * lowers; arrays of seq2seq_n_numbers, in the order of the file. */
size_t seq2seq_n_numbers(const struct seq2seq *s);
enum status seq2seq_numbers(struct seq2seq *s, float *out, struct error *err) MUST_CHECK;
enum status seq2seq_set_numbers(struct seq2seq *s, const float *numbers,
                                struct error *err) MUST_CHECK;
enum status seq2seq_gradient(struct seq2seq *s, struct seq2seq_row *rows, size_t n, float *out,
                             struct error *err) MUST_CHECK;

#endif
