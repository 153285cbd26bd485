#include "agents/starspace/starspace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/starspace/parts.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "base/counter_rng.h"
#include "base/env.h"
#include "base/list.h"

static enum status starspace_spec_check(const struct starspace_spec *spec, struct error *err)
{
    if (spec->n_dims == 0 || spec->n_dims > STARSPACE_MAX_DIMS)
        return error_field(err, "embedding_size", "is %zu, it must be from 1 to %d", spec->n_dims,
                           STARSPACE_MAX_DIMS);
    if (!(spec->max_norm > 0) || !isfinite(spec->max_norm))
        return error_field(err, "max_norm", "is %g, it must be above 0", (double)spec->max_norm);
    return STATUS_OK;
}

enum status starspace_make(struct starspace **out, const struct starspace_spec *spec,
                           struct word_table *words, struct error *err)
{
    struct starspace *s = xalloc(sizeof(*s));
    enum status rc = starspace_spec_check(spec, err);

    s->spec = *spec;
    s->words = words;
    memcpy(s->version, "1", 2);
    arena_init(&s->arena, SIZE_MAX);
    hash_init(&s->candidates_by_text, &env_real);
    if (rc == STATUS_OK) {
        s->vectors = try_alloc(word_table_n(words), spec->n_dims * sizeof(float));
        if (s->vectors == NULL)
            rc = error_no_memory(err, word_table_n(words) * spec->n_dims * sizeof(float),
                                 "the vectors of words");
    }
    if (rc == STATUS_OK)
        *out = s;
    else
        starspace_close(s);
    return rc;
}

void starspace_bound(struct starspace *s, int32_t id)
{
    float *v = starspace_vector(s, id);
    float square = 0, scale;

    for (size_t i = 0; i < s->spec.n_dims; i++) {
        const float x = shared_get(&v[i]);

        square += x * x;
    }
    if (square <= s->spec.max_norm * s->spec.max_norm)
        return;
    scale = s->spec.max_norm / sqrtf(square);
    for (size_t i = 0; i < s->spec.n_dims; i++)
        shared_set(&v[i], shared_get(&v[i]) * scale);
}

/* Uniform, of deviation 1. The vector of __null__ is 0 and stays so. */
static void starspace_draw(struct starspace *s)
{
    const float bound = sqrtf(3.0F);

    for (size_t w = WORD_NULL + 1; w < word_table_n(s->words); w++) {
        float *v = starspace_vector(s, (int32_t)w);

        for (size_t i = 0; i < s->spec.n_dims; i++)
            v[i] = bound *
                   (2.0F * counter_rng_uniform(s->spec.seed, (uint32_t)w, (uint32_t)i, 1) - 1.0F);
        starspace_bound(s, (int32_t)w);
    }
}

enum status starspace_create(struct starspace **out, const struct starspace_spec *spec,
                             struct word_table *words, struct error *err)
{
    struct starspace *s;

    if (starspace_make(&s, spec, words, err) != STATUS_OK)
        return err->status;
    starspace_draw(s);
    *out = s;
    return STATUS_OK;
}

void starspace_close(struct starspace *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n_candidates; i++)
        hash_remove(&s->candidates_by_text, &s->candidates[i]->node);
    hash_deinit(&s->candidates_by_text);
    free(s->candidates);
    arena_deinit(&s->arena);
    free(s->vectors);
    word_table_close(s->words);
    free(s);
}

static bool starspace_has_candidate(const struct starspace *s, struct text text, uint64_t hash)
{
    for (struct hash_node *n = hash_first(&s->candidates_by_text, hash); n != NULL;
         n = hash_next(n)) {
        const struct starspace_candidate *c = container_of(n, struct starspace_candidate, node);

        if (c->text.len == text.len && memcmp(c->text.text, text.text, text.len) == 0)
            return true;
    }
    return false;
}

enum status starspace_add_candidate(struct starspace *s, struct text text, struct error *err)
{
    const uint64_t hash = hash_bytes(&s->candidates_by_text, 0, text.text, text.len);
    struct starspace_candidate *c;
    char *copy;

    if (text.len == 0 || s->n_candidates == STARSPACE_MAX_CANDIDATES ||
        starspace_has_candidate(s, text, hash))
        return STATUS_OK;
    if (s->n_candidates == s->cap_candidates) {
        const size_t cap = s->cap_candidates == 0 ? 64 : 2 * s->cap_candidates;
        struct starspace_candidate **more = try_realloc(s->candidates, cap, sizeof(*more));

        if (more == NULL)
            return error_no_memory(err, cap * sizeof(*more), "candidates");
        s->candidates = more;
        s->cap_candidates = cap;
    }
    c = arena_alloc(&s->arena, 1, sizeof(*c));
    copy = arena_strndup(&s->arena, text.text, text.len);
    if (c == NULL || copy == NULL)
        return error_no_memory(err, text.len, "candidates");
    c->text = (struct text){copy, text.len};
    hash_add(&s->candidates_by_text, &c->node, hash);
    s->candidates[s->n_candidates++] = c;
    return STATUS_OK;
}

const struct starspace_spec *starspace_spec(const struct starspace *s)
{
    return &s->spec;
}

const struct word_table *starspace_words(const struct starspace *s)
{
    return s->words;
}

size_t starspace_n_candidates(const struct starspace *s)
{
    return s->n_candidates;
}

struct text starspace_candidate(const struct starspace *s, size_t i)
{
    return s->candidates[i]->text;
}

const char *starspace_version(const struct starspace *s)
{
    return s->version;
}
