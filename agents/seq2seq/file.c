/* A seq2seq's file: GGUF of architecture "seq2seq", its sizes and words in seq2seq.*, and its
 * parameters as f32 tensors. */
#include <stdio.h>
#include <stdlib.h>

#include "agents/seq2seq/parts.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/write.h"

/* What a tensor of the file is of its parameter. */
enum tensor_use { TENSOR_VALUE, TENSOR_FIRST, TENSOR_SECOND };

enum { N_TENSOR_USES = TENSOR_SECOND + 1, NAME_BYTES = 48 };

static const char steps_key[] = "training.steps";

static void seq2seq_tensor_name(char out[NAME_BYTES], size_t param, enum tensor_use use)
{
    static const char *const prefixes[N_TENSOR_USES] = {"", "adam.first.", "adam.second."};

    (void)snprintf(out, NAME_BYTES, "%s%s", prefixes[use], seq2seq_param_names[param]);
}

static struct buffer *seq2seq_buffer(const struct seq2seq *s, size_t param, enum tensor_use use)
{
    const struct seq2seq_param *p = &s->params[param];

    return use == TENSOR_VALUE ? p->value : use == TENSOR_FIRST ? p->first : p->second;
}

static enum status seq2seq_write_tensors(struct seq2seq *s, struct gguf_writer *w, size_t n_uses,
                                         struct error *err)
{
    /* An upper bound for all tensors. */
    float *numbers = try_alloc(seq2seq_n_numbers(s), sizeof(float));
    enum status rc = STATUS_OK;

    if (numbers == NULL)
        return error_no_memory(err, seq2seq_n_numbers(s) * sizeof(float), "a seq2seq");
    for (size_t use = 0; use < n_uses; use++)
        for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++) {
            char name[NAME_BYTES];

            seq2seq_tensor_name(name, i, (enum tensor_use)use);
            gguf_write_tensor(w, name, s->params[i].n_rows, s->params[i].n_cols);
        }
    for (size_t use = 0; rc == STATUS_OK && use < n_uses; use++)
        for (size_t i = 0; rc == STATUS_OK && i < N_SEQ2SEQ_PARAMS; i++) {
            const size_t n = s->params[i].n_rows * s->params[i].n_cols;

            s->backend->type->download(
                s->backend, numbers, seq2seq_buffer(s, i, (enum tensor_use)use), n * sizeof(float));
            rc = s->backend->type->sync(s->backend, err);
            if (rc == STATUS_OK)
                gguf_write_data(w, numbers, n);
        }
    free(numbers);
    return rc;
}

/* state NULL: without what only learning needs. */
static enum status seq2seq_write(struct seq2seq *s, const char *state, const char *path,
                                 struct error *err)
{
    struct gguf_writer *w;
    enum status rc = gguf_writer_open(&w, path, err);

    if (rc != STATUS_OK)
        return rc;
    gguf_write_text(w, "general.architecture", "seq2seq");
    gguf_write_u64(w, "seq2seq.embedding_length", s->spec.n_dims);
    gguf_write_u64(w, "seq2seq.hidden_length", s->spec.n_hidden);
    gguf_write_u64(w, "seq2seq.seed", s->spec.seed);
    word_table_write(s->words, w, "seq2seq.words");
    if (state != NULL) {
        gguf_write_text(w, "training.state", state);
        gguf_write_u64(w, steps_key, s->n_learned);
    }
    rc = seq2seq_write_tensors(s, w, state != NULL && s->n_learned > 0 ? N_TENSOR_USES : 1, err);
    if (rc == STATUS_OK)
        rc = gguf_writer_commit(w, err);
    gguf_writer_close(w);
    return rc;
}

enum status seq2seq_save(struct seq2seq *s, const char *path, struct error *err)
{
    return seq2seq_write(s, NULL, path, err);
}

enum status seq2seq_save_training(struct seq2seq *s, const char *state, const char *path,
                                  struct error *err)
{
    return seq2seq_write(s, state, path, err);
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

static enum status seq2seq_read_tensors(struct seq2seq *s, const struct gguf *g,
                                        enum tensor_use use, struct error *err)
{
    /* An upper bound for all tensors. */
    float *numbers = try_alloc(seq2seq_n_numbers(s), sizeof(float));
    enum status rc = STATUS_OK;

    if (numbers == NULL)
        return error_no_memory(err, seq2seq_n_numbers(s) * sizeof(float), "a seq2seq");
    for (size_t i = 0; rc == STATUS_OK && i < N_SEQ2SEQ_PARAMS; i++) {
        const struct seq2seq_param *p = &s->params[i];
        const struct tensor *t;
        char name[NAME_BYTES];

        seq2seq_tensor_name(name, i, use);
        rc = gguf_tensor(g, name, &t, err);
        if (rc == STATUS_OK &&
            (t->type != DTYPE_F32 || t->n_rows != p->n_rows || t->n_cols != p->n_cols))
            rc = error_set(err, STATUS_DATA_LOSS,
                           "%s: tensor '%s' is %s [%zu][%zu], it must be f32 [%zu][%zu]",
                           gguf_path(g), name, dtype_name(t->type), t->n_rows, t->n_cols, p->n_rows,
                           p->n_cols);
        if (rc == STATUS_OK)
            rc = tensor_read(t, 0, t->n_rows, numbers, err);
        if (rc == STATUS_OK) {
            s->backend->type->upload(s->backend, seq2seq_buffer(s, i, use), numbers,
                                     p->n_rows * p->n_cols * sizeof(float));
            rc = s->backend->type->sync(s->backend, err);
        }
    }
    free(numbers);
    return rc;
}

enum status seq2seq_restore_training(struct seq2seq *s, const char *path, struct error *err)
{
    uint64_t n_learned = 0;
    struct gguf *g;
    enum status rc = gguf_open(&g, path, err);

    if (rc != STATUS_OK)
        return rc;
    rc = gguf_get_u64(g, steps_key, &n_learned, err);
    if (rc == STATUS_OK && n_learned > 0) {
        rc = seq2seq_prepare(s, err);
        if (rc == STATUS_OK)
            rc = seq2seq_read_tensors(s, g, TENSOR_FIRST, err);
        if (rc == STATUS_OK)
            rc = seq2seq_read_tensors(s, g, TENSOR_SECOND, err);
    }
    gguf_close(g);
    if (rc == STATUS_NOT_FOUND) /* a key is missing */
        rc = err->status = STATUS_DATA_LOSS;
    if (rc == STATUS_OK)
        s->n_learned = n_learned;
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
        rc = seq2seq_read_tensors(s, g, TENSOR_VALUE, err);
    if (rc == STATUS_OK)
        rc = model_hash_gguf(s->version, g, err);
    gguf_close(g);
    if (rc == STATUS_NOT_FOUND || rc == STATUS_INVALID) /* a key is missing or out of bounds */
        rc = err->status = STATUS_DATA_LOSS;
    if (rc == STATUS_OK)
        *out = s;
    else
        seq2seq_close(s);
    return rc;
}
