/* Shared by the files of this folder. */
#ifndef AGENTS_SEQ2SEQ_PARTS_H
#define AGENTS_SEQ2SEQ_PARTS_H

#include <stdbool.h>

#include "agents/seq2seq/seq2seq.h"
#include "compute/backend/net.h"
#include "compute/gguf/hash.h"

/* The parameters, in the order of the file. A layer's bias follows its weight. */
enum seq2seq_param_name {
    PARAM_WORDS, /* [n_words][n_dims] */
    PARAM_READ_IN,
    PARAM_READ_IN_BIAS, /* [4 * n_hidden][n_dims] */
    PARAM_READ_BACK,
    PARAM_READ_BACK_BIAS, /* [4 * n_hidden][n_hidden] */
    PARAM_WRITE_IN,
    PARAM_WRITE_IN_BIAS,
    PARAM_WRITE_BACK,
    PARAM_WRITE_BACK_BIAS,
    PARAM_OUT,
    PARAM_OUT_BIAS, /* [n_words][n_hidden] */
    N_SEQ2SEQ_PARAMS,
};

struct seq2seq_param {
    size_t n_rows, n_cols;
    float bound; /* of fresh numbers */
    struct buffer *value;
    struct buffer *gradient, *first, *second; /* NULL until it learns */
};

/* What a step of one of the two cells keeps for the backward pass. */
struct seq2seq_step {
    size_t cap;                       /* rows; 0: no buffers */
    struct buffer *x, *gates, *c, *h; /* [cap][n_dims], [4 * n_hidden], [n_hidden], [n_hidden] */
    struct buffer *dtop;              /* [cap][n_hidden], of the writer: by h through the output */
};

struct seq2seq_cell {
    enum seq2seq_param_name in, back; /* its layers */
    struct seq2seq_step *steps;       /* [n_steps] */
    size_t n_steps;
};

struct seq2seq {
    struct seq2seq_spec spec;
    struct word_table *words;
    int32_t newline;               /* what separates utterances, as a word of the table */
    char version[MODEL_HASH_SIZE]; /* the file's hash; "1": from no file */
    struct backend *backend;
    struct seq2seq_param params[N_SEQ2SEQ_PARAMS];
    uint64_t n_learned; /* steps of the optimiser */
    struct seq2seq_cell reader, writer;
    /* Of a pass, [cap_rows][…]. */
    size_t cap_rows;
    struct buffer *zeros;             /* [n_hidden] */
    struct buffer *h, *c;             /* [n_hidden]: states after each row's last word */
    struct buffer *h_start, *c_start; /* [n_hidden]: the same in the writer's order */
    struct buffer *from_h, *dgates;   /* [4 * n_hidden] */
    struct buffer *dh, *dc, *dh_start, *dc_start; /* [n_hidden] */
    struct buffer *dx;                            /* [n_dims] */
    struct buffer *logits, *logp;                 /* [n_words] */
    float *host_logp;                             /* [cap_rows][n_words] */
    uint32_t *identity;                           /* [cap_rows] 0, 1, 2, …: the rows of a copy */
};

extern const char *const seq2seq_param_names[N_SEQ2SEQ_PARAMS];

/* seq2seq.c. With parameters unset; takes words, also on failure. */
enum status seq2seq_make(struct seq2seq **out, const struct seq2seq_spec *spec,
                         struct word_table *words, const struct seq2seq_config *config,
                         struct error *err) MUST_CHECK;
/* A buffer of n rows, opened if it is not; false without memory. */
bool seq2seq_take(struct seq2seq *s, struct buffer **b, size_t n, size_t width,
                  struct error *err) MUST_CHECK;
void seq2seq_give(struct seq2seq *s, struct buffer **b);
/* Gradients and moments, once. */
enum status seq2seq_prepare(struct seq2seq *s, struct error *err) MUST_CHECK;

#endif
