/* Scores of one reply against its labels: accuracy, word overlap (precision, recall, F1), BLEU,
 * ROUGE and hits@k, as ParlAI computes them. */
#ifndef WORLDS_SCORE_SCORER_H
#define WORLDS_SCORE_SCORER_H

#include <stdbool.h>
#include <stddef.h>

#include "agents/message.h"
#include "base/buf.h"
#include "base/status.h"
#include "worlds/score/words.h"

enum { SCORE_MAX_NGRAM = 4, SCORE_N_ROUGE = 3, SCORE_N_HITS = 4 };

extern const unsigned score_hits_at[SCORE_N_HITS]; /* 1, 5, 10, 100 */

struct scores {
    double accuracy, precision, recall, f1; /* each score is the best over all labels */
    double bleu[SCORE_MAX_NGRAM];           /* bleu-1 … bleu-4; set if wants_bleu */
    double rouge[SCORE_N_ROUGE];            /* recall of ROUGE-1, -2, -L; set if wants_rouge */
};

struct sb_stemmer;

/* Scratch memory of a scorer, used again from reply to reply. A zeroed struct is ready for use;
 * scorer_deinit frees it. One thread at a time. */
struct scorer {
    struct buf reply, labels;     /* the normalised texts; labels stand one behind the other */
    struct ids ends;              /* where each label in labels ends */
    struct words words, pairs;    /* numbers of the words; numbers of the n-grams */
    struct ids reply_ids;         /* numbers of the reply's words */
    struct ids label_ids, starts; /* numbers of all labels' words; where those of each label end */
    struct ids reply_grams, label_grams, counts, best;
    struct sb_stemmer *stemmer; /* made for the first ROUGE; NULL before */
    struct buf stems;
};

void scorer_deinit(struct scorer *s);

/* Scores a reply against n_labels labels. n_labels may be 0: all scores are then 0. EXHAUSTED
 * without memory. */
enum status scorer_score(struct scorer *s, struct text reply, const struct text *labels,
                         size_t n_labels, bool wants_bleu, bool wants_rouge, struct scores *out,
                         struct error *err) MUST_CHECK;
/* Sets out[i] to 1 if one of the first score_hits_at[i] candidates equals a label when normalised,
 * else to 0. EXHAUSTED without memory. */
enum status scorer_hits(struct scorer *s, const struct text *candidates, size_t n_candidates,
                        const struct text *labels, size_t n_labels, double out[SCORE_N_HITS],
                        struct error *err) MUST_CHECK;

/* --- for this folder --- */

/* Computes BLEU of reply_ids against label_ids. EXHAUSTED. */
enum status scorer_bleu(struct scorer *s, double out[SCORE_MAX_NGRAM]) MUST_CHECK;
/* Computes BLEU of a reply of n words that equals one of its labels. */
void scorer_bleu_of_equal(size_t n_words, double out[SCORE_MAX_NGRAM]);
/* Computes ROUGE of reply against labels. Overwrites the word tables. EXHAUSTED. */
enum status scorer_rouge(struct scorer *s, double out[SCORE_N_ROUGE]) MUST_CHECK;

/* Returns label i, normalised; borrowed from the scratch. */
static inline struct text scorer_label(const struct scorer *s, size_t i)
{
    size_t from = i == 0 ? 0 : s->ends.at[i - 1];

    return (struct text){s->labels.data + from, s->ends.at[i] - from};
}

#endif
