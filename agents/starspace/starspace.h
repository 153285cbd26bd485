/* Starspace (Wu et al., "StarSpace: Embed All The Things!", 2017), as ParlAI's agent without its
 * linear layer. A text is the mean of its words' vectors, and the reply to it is the candidate
 * whose vector has the largest cosine with it.
 *
 * Learning is hogwild: threads change the shared vectors without locks, word by word. Each number
 * is read and written as a relaxed atomic, so two threads that change one word at the same time
 * lose at most one update of it. No further order between threads is needed. */
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
    size_t n_dims;  /* numbers of a word's vector, 1 … STARSPACE_MAX_DIMS */
    float max_norm; /* the longest that a word's vector may be, above 0 */
    uint64_t seed;  /* by which fresh vectors are drawn */
};

/* --- the original ---------------------------------------------------------------------------- */

/* Makes an original with fresh vectors, drawn by the spec's seed. Takes words, a settled table,
 * also on failure. STATUS_INVALID names the number that is out of bounds; EXHAUSTED. */
enum status starspace_create(struct starspace **out, const struct starspace_spec *spec,
                             struct word_table *words, struct error *err) MUST_CHECK;
/* Reads an original from a file. DATA_LOSS if the file is no starspace or is inconsistent; else the
 * errors of gguf_open; EXHAUSTED. */
enum status starspace_read(struct starspace **out, const char *path, struct error *err) MUST_CHECK;
void starspace_close(struct starspace *s); /* s may be NULL; no learner and no index is left */

/* Adds a candidate: a reply to choose from if a question brings no candidates, e.g. a label of the
 * training data. An empty text, one that is there already, and one beyond STARSPACE_MAX_CANDIDATES
 * are left out. Call it before an index is opened or a thread learns. EXHAUSTED. */
enum status starspace_add_candidate(struct starspace *s, struct text text,
                                    struct error *err) MUST_CHECK;
/* Writes a file that starspace_read reads, by rename. If threads learn meanwhile, the vectors in it
 * are of different times. */
enum status starspace_save(const struct starspace *s, const char *path,
                           struct error *err) MUST_CHECK;

/* What these return is borrowed from s. */
const struct starspace_spec *starspace_spec(const struct starspace *s);
const struct word_table *starspace_words(const struct starspace *s);
size_t starspace_n_candidates(const struct starspace *s);
struct text starspace_candidate(const struct starspace *s, size_t i); /* i: below their number */
const char *starspace_version(const struct starspace *s); /* the file's hash; "1" without a file */

/* --- ranking; any thread ---------------------------------------------------------------------- */

/* Writes the mean of the words' vectors to out, [n_dims]; zeros for no words. */
void starspace_embed(const struct starspace *s, const int32_t *ids, size_t n, float *out);
/* Returns the cosine of two vectors, 0 if one of them is 0. */
float starspace_similarity(const float *a, const float *b, size_t n_dims);

/* An index holds the candidates' vectors. It has none when opened; starspace_index_ready computes
 * them, and computes them again if the original has learned since. Borrows s. One thread.
 * EXHAUSTED. */
enum status starspace_index_open(struct starspace_index **out, struct starspace *s,
                                 struct error *err) MUST_CHECK;
void starspace_index_close(struct starspace_index *x); /* x may be NULL */
enum status starspace_index_ready(struct starspace_index *x, struct error *err) MUST_CHECK;
/* Return the candidate that is nearest to query, [n_dims], the first of equally near ones, and the
 * similarity of candidate i to query. The index must be ready and have a candidate. */
size_t starspace_index_nearest(const struct starspace_index *x, const float *query);
float starspace_index_similarity(const struct starspace_index *x, const float *query, size_t i);

/* --- learning --------------------------------------------------------------------------------- */

struct starspace_learn_config {
    float rate;         /* learning rate, above 0 */
    float margin;       /* -1 … 1: a wrong label whose cosine is not above it costs nothing */
    size_t n_negatives; /* the most wrong labels of a step, 1 … 2^20 */
    size_t cache_size; /* labels seen before that a learner keeps, to draw wrong ones from; 2 … 2^20
                        */
    uint64_t seed;
    uint32_t thread; /* number of the learner; its draws follow from seed, thread and count */
};

/* What a step reports, as it was before the step. */
struct starspace_lesson {
    bool has_learned; /* false: the text or the label has no words, or no wrong label was found */
    double loss;   /* 1 - cosine of the label, plus what wrong labels' cosines are above margin */
    uint32_t rank; /* how many wrong labels are as near as the right one, or nearer */
};

/* Opens a learner; each thread that learns has one of its own. Borrows s. INVALID names the number
 * of config that is out of bounds; EXHAUSTED. */
enum status starspace_learner_open(struct starspace_learner **out, struct starspace *s,
                                   const struct starspace_learn_config *config,
                                   struct error *err) MUST_CHECK;
void starspace_learner_close(struct starspace_learner *l); /* l may be NULL */
/* Writes, by rename, all that learning needs to continue with the same bits: what starspace_save
 * writes, the kept labels, the count of draws, and `state`, the caller's text, as the key
 * "training.state". starspace_read reads this file, too. */
enum status starspace_learner_save(const struct starspace_learner *l, const char *state,
                                   const char *path, struct error *err) MUST_CHECK;
/* Reads kept labels and the count of draws from such a file into a learner that has not learned
 * yet, of the original that starspace_read made of the same file. DATA_LOSS if the file was not
 * written by starspace_learner_save, or has more labels than cache_size. */
enum status starspace_learner_restore(struct starspace_learner *l, const char *path,
                                      struct error *err) MUST_CHECK;
/* Takes a step of gradient descent on one example, a text and its label as ids of words, and keeps
 * the label for later steps. EXHAUSTED if the label cannot be kept; the step was then taken. */
enum status starspace_learn(struct starspace_learner *l, const int32_t *text, size_t n_text,
                            const int32_t *label, size_t n_label, struct starspace_lesson *out,
                            struct error *err) MUST_CHECK;

#endif
