/* Starspace (Wu et al., 2017), as ParlAI's agent without its linear layer: a text is the mean of
 * its words' vectors, and the reply is the candidate whose vector has the largest cosine with it.
 * Learning is hogwild: threads change the shared vectors without locks, word by word. A number is
 * read and written as a relaxed atomic, so that two threads which meet at one word lose at most an
 * update of it; nothing else orders them, and nothing else needs to. */
#ifndef AGENTS_STARSPACE_STARSPACE_H
#define AGENTS_STARSPACE_STARSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/status.h"

struct starspace;
struct starspace_index;
struct starspace_learner;
struct word_table;

enum { STARSPACE_MAX_DIMS = 4096, STARSPACE_MAX_CANDIDATES = 10000 };

struct starspace_spec {
    size_t n_dims;  /* of a word's vector, 1 … STARSPACE_MAX_DIMS */
    float max_norm; /* of a word's vector, above 0 */
    uint64_t seed;  /* of the first vectors */
};

/* --- the original ---------------------------------------------------------------------------- */

/* Fresh vectors, drawn by seed. Takes words, also on failure. STATUS_INVALID names the number that
 * is out of bounds. */
enum status starspace_create(struct starspace **out, const struct starspace_spec *spec,
                             struct word_table *words, struct error *err) MUST_CHECK;
/* DATA_LOSS: the file is no starspace, or is inconsistent. */
enum status starspace_read(struct starspace **out, const char *path, struct error *err) MUST_CHECK;
void starspace_close(struct starspace *s); /* NULL is fine */

/* Replies to choose from where a question brings none, e.g. the labels of the training data. One
 * that is there already, and one beyond STARSPACE_MAX_CANDIDATES, is left out. Before the first
 * thread learns. */
enum status starspace_add_candidate(struct starspace *s, struct text text,
                                    struct error *err) MUST_CHECK;
/* To a file that starspace_read reads, by rename. While threads learn it has words of different
 * times. */
enum status starspace_save(const struct starspace *s, const char *path,
                           struct error *err) MUST_CHECK;

const struct starspace_spec *starspace_spec(const struct starspace *s);
const struct word_table *starspace_words(const struct starspace *s);
size_t starspace_n_candidates(const struct starspace *s);
struct text starspace_candidate(const struct starspace *s, size_t i);
const char *starspace_version(const struct starspace *s); /* the file's hash; "1": from no file */

/* --- ranking; any thread ---------------------------------------------------------------------- */

/* out [n_dims]: the mean of the words' vectors; zeros for no words. */
void starspace_embed(const struct starspace *s, const int32_t *ids, size_t n, float *out);
/* The cosine; 0 where a vector is 0. */
float starspace_similarity(const float *a, const float *b, size_t n_dims);

/* The candidates' vectors, made when they are first asked for, and again when the original has
 * learned meanwhile. One thread. */
enum status starspace_index_open(struct starspace_index **out, struct starspace *s,
                                 struct error *err) MUST_CHECK;
void starspace_index_close(struct starspace_index *x); /* NULL is fine */
enum status starspace_index_ready(struct starspace_index *x, struct error *err) MUST_CHECK;
/* Once it is ready: the nearest candidate, the first of equal ones; and a candidate's similarity.
 * query [n_dims]. There is at least one candidate. */
size_t starspace_index_nearest(const struct starspace_index *x, const float *query);
float starspace_index_similarity(const struct starspace_index *x, const float *query, size_t i);

/* --- learning --------------------------------------------------------------------------------- */

struct starspace_learn_config {
    float rate;         /* of the gradient step, above 0 */
    float margin;       /* a wrong label's cosine up to this costs nothing */
    size_t n_negatives; /* wrong labels of a step, at most; from 1 on */
    size_t cache_size;  /* labels that they are drawn from, the thread's own; from 2 on */
    uint64_t seed;
    uint32_t thread; /* draws follow from seed, thread and count */
};

struct starspace_lesson {
    bool has_learned; /* false: a text without words, or not two labels seen yet */
    double loss;      /* before the step: 1 - cosine, and what the wrong labels have above margin */
    uint32_t rank;    /* wrong labels that are as near as the right one, or nearer */
};

/* One for each thread that learns. Borrows s. */
enum status starspace_learner_open(struct starspace_learner **out, struct starspace *s,
                                   const struct starspace_learn_config *config,
                                   struct error *err) MUST_CHECK;
void starspace_learner_close(struct starspace_learner *l); /* NULL is fine */
/* By rename, what learning goes on from with the same bits: what starspace_save writes, the labels
 * that wrong ones are drawn from, the count of draws, and `state`, the caller's text, as the key
 * "training.state". starspace_read reads the file, too. */
enum status starspace_learner_save(const struct starspace_learner *l, const char *state,
                                   const char *path, struct error *err) MUST_CHECK;
/* Of a learner that has not learned yet, over what starspace_read made of that file. DATA_LOSS: the
 * file is no such one, or is of another cache_size. */
enum status starspace_learner_restore(struct starspace_learner *l, const char *path,
                                      struct error *err) MUST_CHECK;
/* A step of gradient descent on one example. */
enum status starspace_learn(struct starspace_learner *l, const int32_t *text, size_t n_text,
                            const int32_t *label, size_t n_label, struct starspace_lesson *out,
                            struct error *err) MUST_CHECK;

#endif
