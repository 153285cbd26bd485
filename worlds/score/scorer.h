/* Scores of one reply against its labels. */
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
    double accuracy, precision, recall, f1; /* each the best over labels, by itself */
    double bleu[SCORE_MAX_NGRAM];
    double rouge[SCORE_N_ROUGE]; /* recall: 1, 2, L */
};

struct sb_stemmer;

/* Scratch, reused from reply to reply. Zeroed is fine; one thread at a time. */
struct scorer {
    struct buf reply, labels; /* normalised; labels one behind the other */
    struct ids ends;          /* where each label in labels ends */
    struct words words, pairs;
    struct ids reply_ids;         /* the reply's words */
    struct ids label_ids, starts; /* all labels' words, and where each label's end */
    struct ids reply_grams, label_grams, counts, best;
    struct sb_stemmer *stemmer;
    struct buf stems;
};

void scorer_deinit(struct scorer *s);

/* EXHAUSTED without memory. n_labels may be 0: all scores are then 0. */
enum status scorer_score(struct scorer *s, struct text reply, const struct text *labels,
                         size_t n_labels, bool wants_bleu, bool wants_rouge, struct scores *out,
                         struct error *err) MUST_CHECK;
/* out[i]: whether one of the first score_hits_at[i] candidates is a label. */
enum status scorer_hits(struct scorer *s, const struct text *candidates, size_t n_candidates,
                        const struct text *labels, size_t n_labels, double out[SCORE_N_HITS],
                        struct error *err) MUST_CHECK;

/* BLEU of reply_ids against label_ids. */
enum status scorer_bleu(struct scorer *s, double out[SCORE_MAX_NGRAM]) MUST_CHECK;
/* BLEU of a reply of n words that is one of its labels. */
void scorer_bleu_of_equal(size_t n_words, double out[SCORE_MAX_NGRAM]);
/* ROUGE of reply against labels, both normalised; the word tables are overwritten. */
enum status scorer_rouge(struct scorer *s, double out[SCORE_N_ROUGE]) MUST_CHECK;

/* Label i, normalised. */
static inline struct text scorer_label(const struct scorer *s, size_t i)
{
    size_t from = i == 0 ? 0 : s->ends.at[i - 1];

    return (struct text){s->labels.data + from, s->ends.at[i] - from};
}

#endif
