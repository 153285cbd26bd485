/* A starspace's file: GGUF of architecture "starspace", its numbers, words and candidates in
 * starspace.*, and one tensor with the words' vectors. */
#include <stdlib.h>

#include "agents/starspace/parts.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "base/utf8.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/write.h"

static const char vectors_name[] = "words.weight";

static void starspace_tell(const struct starspace *s, struct gguf_writer *w)
{
    gguf_write_text(w, "general.architecture", "starspace");
    gguf_write_u64(w, "starspace.embedding_length", s->spec.n_dims);
    gguf_write_f32(w, "starspace.max_norm", s->spec.max_norm);
    gguf_write_u64(w, "starspace.seed", s->spec.seed);
    word_table_write(s->words, w, "starspace.words");
    gguf_write_texts(w, "starspace.candidates", s->n_candidates);
    for (size_t i = 0; i < s->n_candidates; i++)
        gguf_write_item(w, s->candidates[i]->text.text, s->candidates[i]->text.len);
    gguf_write_tensor(w, vectors_name, word_table_n(s->words), s->spec.n_dims);
}

enum status starspace_save_with(const struct starspace *s, const char *path, starspace_tell_fn more,
                                const void *arg, struct error *err)
{
    float row[STARSPACE_MAX_DIMS];
    struct gguf_writer *w;
    enum status rc = gguf_writer_open(&w, path, err);

    if (rc != STATUS_OK)
        return rc;
    starspace_tell(s, w);
    if (more != NULL)
        more(arg, w);
    for (size_t k = 0; k < word_table_n(s->words); k++) {
        const float *v = starspace_vector(s, (int32_t)k);

        for (size_t i = 0; i < s->spec.n_dims; i++)
            row[i] = shared_get(&v[i]);
        gguf_write_data(w, row, s->spec.n_dims);
    }
    rc = gguf_writer_commit(w, err);
    gguf_writer_close(w);
    return rc;
}

enum status starspace_save(const struct starspace *s, const char *path, struct error *err)
{
    return starspace_save_with(s, path, NULL, NULL, err);
}

enum status starspace_damaged(enum status rc, struct error *err)
{
    if (rc == STATUS_NOT_FOUND)
        rc = err->status = STATUS_DATA_LOSS;
    return rc;
}

static enum status starspace_read_spec(const struct gguf *g, struct starspace_spec *out,
                                       struct error *err)
{
    uint64_t n_dims = 0;
    double max_norm = 0;
    enum status rc = gguf_get_u64(g, "starspace.embedding_length", &n_dims, err);

    if (rc == STATUS_OK)
        rc = gguf_get_f64(g, "starspace.max_norm", &max_norm, err);
    if (rc == STATUS_OK)
        rc = gguf_get_u64(g, "starspace.seed", &out->seed, err);
    out->n_dims = (size_t)n_dims;
    out->max_norm = (float)max_norm;
    return starspace_damaged(rc, err);
}

static enum status starspace_read_candidates(struct starspace *s, struct gguf *g, struct error *err)
{
    size_t n = 0;
    enum status rc = gguf_array_len(g, "starspace.candidates", &n, err);

    if (rc == STATUS_OK && n > STARSPACE_MAX_CANDIDATES)
        rc = error_set(err, STATUS_DATA_LOSS, "%s: has %zu candidates, it may have at most %d",
                       gguf_path(g), n, STARSPACE_MAX_CANDIDATES);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        const char *text = "";
        size_t len = 0;

        rc = gguf_array_text(g, "starspace.candidates", i, &text, &len, err);
        if (rc == STATUS_OK && (len == 0 || !utf8_is_valid(text, len)))
            rc = error_set(err, STATUS_DATA_LOSS, "%s: candidate %zu is not a text", gguf_path(g),
                           i);
        if (rc == STATUS_OK)
            rc = starspace_add_candidate(s, (struct text){text, len}, err);
        if (rc == STATUS_OK && s->n_candidates != i + 1)
            rc = error_set(err, STATUS_DATA_LOSS, "%s: candidate %zu is there twice", gguf_path(g),
                           i);
    }
    return rc;
}

static enum status starspace_read_vectors(struct starspace *s, const struct gguf *g,
                                          struct error *err)
{
    const struct tensor *t;
    enum status rc = gguf_tensor(g, vectors_name, &t, err);

    if (rc != STATUS_OK)
        return rc;
    if (t->type != DTYPE_F32 || t->n_rows != word_table_n(s->words) || t->n_cols != s->spec.n_dims)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: tensor '%s' is %s [%zu][%zu], it must be f32 [%zu][%zu]",
                         gguf_path(g), vectors_name, dtype_name(t->type), t->n_rows, t->n_cols,
                         word_table_n(s->words), s->spec.n_dims);
    return tensor_read(t, 0, t->n_rows, s->vectors, err);
}

/* The spec's own bounds are checked where the vectors are made: out of them the file is damaged. */
static enum status starspace_read_opened(struct starspace **out, struct gguf *g, struct error *err)
{
    struct starspace_spec spec = {0};
    struct word_table *words;
    struct starspace *s = NULL;
    enum status rc = starspace_read_spec(g, &spec, err);

    if (rc == STATUS_OK)
        rc = word_table_read(&words, g, "starspace.words", err);
    if (rc == STATUS_OK) {
        rc = starspace_make(&s, &spec, words, err);
        if (rc == STATUS_INVALID)
            rc = err->status = STATUS_DATA_LOSS;
    }
    if (rc == STATUS_OK)
        rc = starspace_read_candidates(s, g, err);
    if (rc == STATUS_OK)
        rc = starspace_read_vectors(s, g, err);
    if (rc == STATUS_OK)
        rc = model_hash_gguf(s->version, g, err);
    if (rc == STATUS_OK)
        *out = s;
    else
        starspace_close(s);
    return starspace_damaged(rc, err);
}

enum status starspace_read(struct starspace **out, const char *path, struct error *err)
{
    struct gguf *g;
    enum status rc = gguf_open(&g, path, err);

    if (rc != STATUS_OK)
        return rc;
    rc = starspace_read_opened(out, g, err);
    gguf_close(g);
    return rc;
}
