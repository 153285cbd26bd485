/* A seq2seq's file: GGUF of architecture "seq2seq", its sizes and words in seq2seq.*, and its
 * parameters as f32 tensors. */
#include <stdlib.h>

#include "agents/seq2seq/parts.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/write.h"

enum status seq2seq_save(struct seq2seq *s, const char *path, struct error *err)
{
    float *numbers = try_alloc(seq2seq_n_numbers(s), sizeof(float));
    struct gguf_writer *w = NULL;
    enum status rc;

    if (numbers == NULL)
        return error_no_memory(err, seq2seq_n_numbers(s) * sizeof(float), "a seq2seq");
    rc = seq2seq_numbers(s, numbers, err);
    if (rc == STATUS_OK)
        rc = gguf_writer_open(&w, path, err);
    if (rc != STATUS_OK)
        goto out;
    gguf_write_text(w, "general.architecture", "seq2seq");
    gguf_write_u64(w, "seq2seq.embedding_length", s->spec.n_dims);
    gguf_write_u64(w, "seq2seq.hidden_length", s->spec.n_hidden);
    gguf_write_u64(w, "seq2seq.seed", s->spec.seed);
    word_table_write(s->words, w, "seq2seq.words");
    for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++)
        gguf_write_tensor(w, seq2seq_param_names[i], s->params[i].n_rows, s->params[i].n_cols);
    gguf_write_data(w, numbers, seq2seq_n_numbers(s));
    rc = gguf_writer_commit(w, err);
out:
    gguf_writer_close(w);
    free(numbers);
    return rc;
}

static enum status seq2seq_read_spec(const struct gguf *g, struct seq2seq_spec *out,
                                     struct error *err)
{
    uint64_t n_dims = 0, n_hidden = 0;
    enum status rc = gguf_get_u64(g, "seq2seq.embedding_length", &n_dims, err);

    if (rc == STATUS_OK)
        rc = gguf_get_u64(g, "seq2seq.hidden_length", &n_hidden, err);
    if (rc == STATUS_OK)
        rc = gguf_get_u64(g, "seq2seq.seed", &out->seed, err);
    out->n_dims = (size_t)n_dims;
    out->n_hidden = (size_t)n_hidden;
    return rc;
}

static enum status seq2seq_read_numbers(struct seq2seq *s, const struct gguf *g, struct error *err)
{
    float *numbers = try_alloc(seq2seq_n_numbers(s), sizeof(float)), *at = numbers;
    enum status rc = STATUS_OK;

    if (numbers == NULL)
        return error_no_memory(err, seq2seq_n_numbers(s) * sizeof(float), "a seq2seq");
    for (size_t i = 0; rc == STATUS_OK && i < N_SEQ2SEQ_PARAMS; i++) {
        const struct seq2seq_param *p = &s->params[i];
        const struct tensor *t;

        rc = gguf_tensor(g, seq2seq_param_names[i], &t, err);
        if (rc == STATUS_OK &&
            (t->type != DTYPE_F32 || t->n_rows != p->n_rows || t->n_cols != p->n_cols))
            rc = error_set(err, STATUS_DATA_LOSS,
                           "%s: tensor '%s' is %s [%zu][%zu], it must be f32 [%zu][%zu]",
                           gguf_path(g), seq2seq_param_names[i], dtype_name(t->type), t->n_rows,
                           t->n_cols, p->n_rows, p->n_cols);
        if (rc == STATUS_OK)
            rc = tensor_read(t, 0, t->n_rows, at, err);
        at += p->n_rows * p->n_cols;
    }
    if (rc == STATUS_OK)
        rc = seq2seq_set_numbers(s, numbers, err);
    free(numbers);
    return rc;
}

enum status seq2seq_read(struct seq2seq **out, const char *path,
                         const struct seq2seq_config *config, struct error *err)
{
    struct seq2seq_spec spec = {0};
    struct seq2seq *s = NULL;
    struct word_table *words;
    struct gguf *g;
    enum status rc = gguf_open(&g, path, err);

    if (rc != STATUS_OK)
        return rc;
    rc = seq2seq_read_spec(g, &spec, err);
    if (rc == STATUS_OK)
        rc = word_table_read(&words, g, "seq2seq.words", err);
    if (rc == STATUS_OK)
        rc = seq2seq_make(&s, &spec, words, config, err);
    if (rc == STATUS_OK)
        rc = seq2seq_read_numbers(s, g, err);
    gguf_close(g);
    if (rc == STATUS_NOT_FOUND || rc == STATUS_INVALID) /* a key is missing or out of bounds */
        rc = err->status = STATUS_DATA_LOSS;
    if (rc == STATUS_OK)
        *out = s;
    else
        seq2seq_close(s);
    return rc;
}
