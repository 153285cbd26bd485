/* Shared by the files of this folder. */
#ifndef AGENTS_STARSPACE_PARTS_H
#define AGENTS_STARSPACE_PARTS_H

#include <stdatomic.h>

#include "agents/starspace/starspace.h"
#include "base/arena.h"
#include "base/hash.h"
#include "compute/gguf/hash.h"

struct gguf;
struct gguf_writer;

struct starspace_candidate {
    struct hash_node node;
    struct text text; /* the arena's */
};

struct starspace {
    struct starspace_spec spec;
    struct word_table *words;
    float *vectors; /* [n_words][n_dims], by relaxed atomics: several threads learn at once */
    struct starspace_candidate **candidates; /* [n_candidates] */
    size_t n_candidates, cap_candidates;
    struct hash candidates_by_text;
    struct arena arena; /* of candidates */
    char version[MODEL_HASH_SIZE];
    /* Steps of all learners. Relaxed: an index asks only while nobody learns, or for a state that
     * is about right. */
    atomic_uint_least64_t n_steps;
};

/* Of a number that several threads read and write. */
static inline float shared_get(const float *x)
{
    float value;

    __atomic_load(x, &value, __ATOMIC_RELAXED);
    return value;
}

static inline void shared_set(float *x, float value)
{
    __atomic_store(x, &value, __ATOMIC_RELAXED);
}

static inline float *starspace_vector(const struct starspace *s, int32_t id)
{
    return s->vectors + (size_t)id * s->spec.n_dims;
}

/* Scales a word's vector down to max_norm. */
void starspace_bound(struct starspace *s, int32_t id);

/* With room for the vectors; takes words, also on failure. */
enum status starspace_make(struct starspace **out, const struct starspace_spec *spec,
                           struct word_table *words, struct error *err) MUST_CHECK;

/* file.c. The file of starspace_save, with the keys that `more` writes. */
typedef void (*starspace_tell_fn)(const void *arg, struct gguf_writer *w);
enum status starspace_save_with(const struct starspace *s, const char *path, starspace_tell_fn more,
                                const void *arg, struct error *err) MUST_CHECK;
/* A missing key is a damaged file. */
enum status starspace_damaged(enum status rc, struct error *err);

#endif
