/* A generative agent: an LSTM reads the text, a second one begins with its state and writes the
 * reply, word by word, the likeliest each time. Both look words up in one table. One thread at a
 * time; a pass uses the backend's own threads.
 *
 * Rows of a pass are packed: they go by falling length, and each step computes those that still
 * have a word, so no padding is computed. A row is computed from that row alone, so replies and
 * scores have the same bits in every batch. */
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
    size_t n_dims;   /* of a word's vector */
    size_t n_hidden; /* of the state */
    uint64_t seed;   /* of the first parameters */
};

struct seq2seq_config {
    const char *backend; /* "cpu", "ref" */
    size_t n_threads;    /* 0: the physical cores */
};

/* A text, and the reply that it should get, with its end, or that it gets. */
struct seq2seq_row {
    const int32_t *text;  /* [n_text] at most SEQ2SEQ_MAX_WORDS; 0 words are one, __null__ */
    const int32_t *label; /* [n_label] from 1 on, at most SEQ2SEQ_MAX_WORDS */
    size_t n_text, n_label;
    /* Results. */
    double loss;      /* of the label, nats over its tokens */
    uint32_t n_right; /* of the label's tokens: no other was likelier */
    struct buf reply; /* int32_t, without the end; the caller's, init before */
};

/* Fresh: uniform within 1/sqrt(n_hidden), words within 1. Takes words, also on failure.
 * STATUS_INVALID names the number that is out of bounds. */
enum status seq2seq_create(struct seq2seq **out, const struct seq2seq_spec *spec,
                           struct word_table *words, const struct seq2seq_config *config,
                           struct error *err) MUST_CHECK;
/* DATA_LOSS: the file is no seq2seq, or is inconsistent. */
enum status seq2seq_read(struct seq2seq **out, const char *path,
                         const struct seq2seq_config *config, struct error *err) MUST_CHECK;
void seq2seq_close(struct seq2seq *s); /* NULL is fine */
/* By rename. The optimiser's moments are not written. */
enum status seq2seq_save(struct seq2seq *s, const char *path, struct error *err) MUST_CHECK;
/* The same with the moments, the count of steps, and `state`, the caller's text, as the key
 * "training.state": what learning goes on from with the same bits. seq2seq_read reads the file,
 * too. */
enum status seq2seq_save_training(struct seq2seq *s, const char *state, const char *path,
                                  struct error *err) MUST_CHECK;
/* The moments and the count, over what seq2seq_read made of that file. DATA_LOSS: it is no such
 * one. */
enum status seq2seq_restore_training(struct seq2seq *s, const char *path,
                                     struct error *err) MUST_CHECK;
const struct word_table *seq2seq_words(const struct seq2seq *s);

/* loss and n_right of each row. */
enum status seq2seq_score(struct seq2seq *s, struct seq2seq_row *rows, size_t n,
                          struct error *err) MUST_CHECK;
/* The same before a step of Adam (0.9, 0.999, 1e-8) with that rate, on the mean over the batch's
 * tokens. */
enum status seq2seq_learn(struct seq2seq *s, struct seq2seq_row *rows, size_t n, float rate,
                          struct error *err) MUST_CHECK;
/* reply of each row, of at most max_words; labels are not read. */
enum status seq2seq_generate(struct seq2seq *s, struct seq2seq_row *rows, size_t n,
                             size_t max_words, struct error *err) MUST_CHECK;

/* All parameters in the order of the file, and the gradient of the mean that seq2seq_learn lowers;
 * for tests. [seq2seq_n_numbers]. */
size_t seq2seq_n_numbers(const struct seq2seq *s);
enum status seq2seq_numbers(struct seq2seq *s, float *out, struct error *err) MUST_CHECK;
enum status seq2seq_set_numbers(struct seq2seq *s, const float *numbers,
                                struct error *err) MUST_CHECK;
enum status seq2seq_gradient(struct seq2seq *s, struct seq2seq_row *rows, size_t n, float *out,
                             struct error *err) MUST_CHECK;

#endif
