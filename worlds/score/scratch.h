/* The scratch memory of a scorer, and what the files of this folder compute in it. Other folders
 * include scorer.h. */
#ifndef WORLDS_SCORE_SCRATCH_H
#define WORLDS_SCORE_SCRATCH_H

#include <stddef.h>

#include "agents/message.h"
#include "base/buf.h"
#include "base/status.h"
#include "worlds/score/words.h"

enum { SCORE_MAX_NGRAM = 4, SCORE_N_ROUGE = 3 };

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
