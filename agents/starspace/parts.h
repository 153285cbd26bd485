/* The structs and functions that the files of this folder have in common. No other file includes
 * this. */
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
    struct text text; /* in the original's arena */
};

struct starspace {
    struct starspace_spec spec;
    struct word_table *words; /* owned */
    float *vectors;           /* [n_words][n_dims]; while several threads learn, each number is read
                                 and written by shared_get and shared_set */
    struct starspace_candidate **candidates; /* [n_candidates] */
    size_t n_candidates, cap_candidates;
    struct hash candidates_by_text;
    struct arena arena;            /* memory of the candidates */
    char version[MODEL_HASH_SIZE]; /* hash of the file; "1" if it was not read from one */
    /* How many steps all learners have taken. Relaxed: an index reads it between steps, or while
     * threads learn, when its vectors are of different times in any case. */
    atomic_uint_least64_t n_steps;
};

/* Read and write a number that several threads read and write, as a relaxed atomic. */
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

/* Returns the vector of a word, [n_dims]. */
static inline float *starspace_vector(const struct starspace *s, int32_t id)
{
    return s->vectors + (size_t)id * s->spec.n_dims;
}

/* Scales a word's vector down if it is longer than max_norm. */
void starspace_bound(struct starspace *s, int32_t id);

/* Makes an original whose vectors are zeros. Takes words, also on failure. INVALID names the number
 * of the spec that is out of bounds; EXHAUSTED. */
enum status starspace_make(struct starspace **out, const struct starspace_spec *spec,
                           struct word_table *words, struct error *err) MUST_CHECK;

/* Writes further keys of a file. */
typedef void (*starspace_tell_fn)(const void *arg, struct gguf_writer *w);
/* Writes the file of starspace_save, with the keys that `more` (may be NULL) writes. file.c */
enum status starspace_save_with(const struct starspace *s, const char *path, starspace_tell_fn more,
                                const void *arg, struct error *err) MUST_CHECK;
/* Turns NOT_FOUND (a key of the file is missing) into DATA_LOSS; returns any other rc. file.c */
enum status starspace_damaged(enum status rc, struct error *err);

#endif
