/* Scores of one reply against its labels: accuracy, word overlap (precision, recall, F1), BLEU,
 * ROUGE and hits@k, as ParlAI computes them. */
#ifndef WORLDS_SCORE_SCORER_H
#define WORLDS_SCORE_SCORER_H

#include <stdbool.h>
#include <stddef.h>

#include "agents/message.h"
#include "base/status.h"
#include "worlds/score/scratch.h"

enum { SCORE_N_HITS = 4 };

extern const unsigned score_hits_at[SCORE_N_HITS]; /* 1, 5, 10, 100 */

struct scores {
    double accuracy, precision, recall, f1; /* each score is the best over all labels */
    double bleu[SCORE_MAX_NGRAM];           /* bleu-1 … bleu-4; set if wants_bleu */
    double rouge[SCORE_N_ROUGE];            /* recall of ROUGE-1, -2, -L; set if wants_rouge */
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

#endif
