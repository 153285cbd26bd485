/* The structs and functions that the files of this folder have in common. No other file includes
 * this. */
#ifndef AGENTS_SEQ2SEQ_PARTS_H
#define AGENTS_SEQ2SEQ_PARTS_H

#include <stdbool.h>

#include "agents/seq2seq/seq2seq.h"
#include "compute/backend/net.h"
#include "compute/gguf/hash.h"

/* The parameters, in the order of the file. A layer's bias follows its weight; the comment gives
 * the weight's shape, whose rows are those of the bias. */
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

/* A matrix or a bias of parameters, [n_rows][n_cols]. */
struct seq2seq_param {
    size_t n_rows, n_cols;
    float bound; /* fresh numbers lie within ±bound */
    struct buffer *value;
    struct buffer *gradient, *first, *second; /* for learning; first and second are Adam's moments;
                                                 NULL until seq2seq_prepare */
};

/* What a step of one of the two cells keeps for the backward pass. Buffers grow to the rows of the
 * largest pass and are used again. */
struct seq2seq_step {
    size_t cap;                       /* rows of the buffers; 0: none is open */
    struct buffer *x, *gates, *c, *h; /* [cap][n_dims], [4 * n_hidden], [n_hidden], [n_hidden] */
    struct buffer *dtop;              /* [cap][n_hidden], of the writer: the gradient by h through
                                         the output layer */
};

/* One of the two LSTM cells, and what it keeps of each step through time. */
struct seq2seq_cell {
    enum seq2seq_param_name in, back; /* its layers: from a word, and from the state before */
    struct seq2seq_step *steps;       /* [n_steps] */
    size_t n_steps;
};

/* Parameters, and the buffers of a pass. seq2seq_make opens the parameters; a pass opens further
 * buffers as it needs them; seq2seq_close closes all, also after a failure. */
struct seq2seq {
    struct seq2seq_spec spec;
    struct word_table *words;      /* owned */
    int32_t newline;               /* id of the newline, which separates utterances */
    char version[MODEL_HASH_SIZE]; /* hash of the file; "1" if it was not read from one */
    struct backend *backend;       /* owned */
    struct seq2seq_param params[N_SEQ2SEQ_PARAMS];
    uint64_t n_learned;                 /* steps of the optimiser so far */
    struct seq2seq_cell reader, writer; /* of texts; of labels and replies */
    /* Buffers of a pass, [cap_rows][…]. */
    size_t cap_rows;
    struct buffer *zeros; /* [n_hidden] */
    struct buffer *h, *c; /* [n_hidden] the reader's states after each row's last word */
    struct buffer *h_start, *c_start; /* [n_hidden] the same states in the writer's order of rows */
    struct buffer *from_h, *dgates;   /* [4 * n_hidden] */
    struct buffer *dh, *dc, *dh_start, *dc_start; /* [n_hidden] gradients by the states */
    struct buffer *dx;                            /* [n_dims] gradient by the words' vectors */
    struct buffer *logits, *logp;                 /* [n_words] */
    float *host_logp;                             /* [cap_rows][n_words] */
    uint32_t *identity;                           /* [cap_rows] 0, 1, 2, …: the rows of a copy */
};

extern const char *const seq2seq_param_names[N_SEQ2SEQ_PARAMS]; /* names of the file's tensors */

/* Makes a model whose parameters are undefined. Takes words, also on failure. INVALID names the
 * number of the spec that is out of bounds; UNIMPLEMENTED if the backend cannot compute it; else
 * the errors of backend_open; EXHAUSTED. */
enum status seq2seq_make(struct seq2seq **out, const struct seq2seq_spec *spec,
                         struct word_table *words, const struct seq2seq_config *config,
                         struct error *err) MUST_CHECK;
/* Opens a buffer [n][width] in *b unless *b is open. Without memory it sets *err, returns false. */
bool seq2seq_take(struct seq2seq *s, struct buffer **b, size_t n, size_t width,
                  struct error *err) MUST_CHECK;
/* Closes a buffer, which may be NULL, and sets *b to NULL. */
void seq2seq_give(struct seq2seq *s, struct buffer **b);
/* Opens the buffers of gradients and moments, which are 0 at first, unless they are open.
 * EXHAUSTED. */
enum status seq2seq_prepare(struct seq2seq *s, struct error *err) MUST_CHECK;

#endif
