#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/starspace/parts.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "base/buf.h"

struct starspace_index {
    struct starspace *of;
    float *rows; /* [n_candidates][n_dims] */
    uint64_t n_steps;
    bool is_made;
};

void starspace_embed(const struct starspace *s, const int32_t *ids, size_t n, float *out)
{
    const size_t n_dims = s->spec.n_dims;

    memset(out, 0, n_dims * sizeof(out[0]));
    for (size_t k = 0; k < n; k++) {
        const float *v = starspace_vector(s, ids[k]);

        for (size_t i = 0; i < n_dims; i++)
            out[i] += shared_get(&v[i]);
    }
    for (size_t i = 0; n > 1 && i < n_dims; i++)
        out[i] /= (float)n;
}

float starspace_similarity(const float *a, const float *b, size_t n_dims)
{
    float dot = 0, aa = 0, bb = 0;

    for (size_t i = 0; i < n_dims; i++) {
        dot += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? dot / (sqrtf(aa) * sqrtf(bb)) : 0;
}

enum status starspace_index_open(struct starspace_index **out, struct starspace *s,
                                 struct error *err)
{
    struct starspace_index *x = xalloc(sizeof(*x));

    x->of = s;
    x->rows = try_alloc(s->n_candidates != 0 ? s->n_candidates : 1, s->spec.n_dims * sizeof(float));
    if (x->rows == NULL) {
        free(x);
        return error_no_memory(err, s->n_candidates * s->spec.n_dims * sizeof(float),
                               "the vectors of candidates");
    }
    *out = x;
    return STATUS_OK;
}

void starspace_index_close(struct starspace_index *x)
{
    if (x != NULL)
        free(x->rows);
    free(x);
}

enum status starspace_index_ready(struct starspace_index *x, struct error *err)
{
    const struct starspace *s = x->of;
    const uint64_t n_steps = atomic_load_explicit(&s->n_steps, memory_order_relaxed);
    enum status rc = STATUS_OK;
    struct buf ids;

    if (x->is_made && x->n_steps == n_steps)
        return STATUS_OK;
    x->is_made = false;
    buf_init(&ids, SIZE_MAX);
    for (size_t i = 0; rc == STATUS_OK && i < s->n_candidates; i++) {
        const struct text text = s->candidates[i]->text;

        buf_clear(&ids);
        rc = word_table_encode(s->words, text.text, text.len, &ids, err);
        if (rc == STATUS_OK)
            starspace_embed(s, (const int32_t *)(const void *)ids.data, ids.len / sizeof(int32_t),
                            x->rows + i * s->spec.n_dims);
    }
    buf_deinit(&ids);
    x->is_made = rc == STATUS_OK;
    x->n_steps = n_steps;
    return rc;
}

float starspace_index_similarity(const struct starspace_index *x, const float *query, size_t i)
{
    const size_t n_dims = x->of->spec.n_dims;

    return starspace_similarity(query, x->rows + i * n_dims, n_dims);
}

size_t starspace_index_nearest(const struct starspace_index *x, const float *query)
{
    float best = starspace_index_similarity(x, query, 0);
    size_t nearest = 0;

    for (size_t i = 1; i < x->of->n_candidates; i++) {
        const float next = starspace_index_similarity(x, query, i);

        if (next > best) {
            best = next;
            nearest = i;
        }
    }
    return nearest;
}
