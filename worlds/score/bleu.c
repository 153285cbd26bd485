/* Sentence BLEU as NLTK computes it: Papineni et al. (2002), uniform weights, the closest label's
 * length, and Chen and Cherry's first smoothing (2014) with 1e-12 for n-grams without a match. */
#include <string.h>

#include "base/real.h"
#include "worlds/score/scratch.h"

static const double unmatched = 1e-12;

/* log_p[n - 1]: the log of the precision of n-grams. */
static void combine(const double log_p[SCORE_MAX_NGRAM], double brevity,
                    double out[SCORE_MAX_NGRAM])
{
    double sum = 0;

    for (int n = 0; n < SCORE_MAX_NGRAM; n++) {
        sum += log_p[n];
        out[n] = brevity * real_exp(sum / (n + 1));
    }
}

void scorer_bleu_of_equal(size_t n_words, double out[SCORE_MAX_NGRAM])
{
    double log_p[SCORE_MAX_NGRAM];

    if (n_words >= SCORE_MAX_NGRAM) {
        for (size_t n = 0; n < SCORE_MAX_NGRAM; n++)
            out[n] = 1;
        return;
    }
    for (size_t n = 0; n < SCORE_MAX_NGRAM; n++)
        log_p[n] = n < n_words ? 0 : real_log(unmatched);
    combine(log_p, 1, out);
}

/* 1 for a reply of n words that is longer than the label closest to it in length (of two equally
 * close, the shorter), else less. */
static double brevity(const struct scorer *s, size_t n)
{
    size_t best = 0, best_off = SIZE_MAX, from = 0;

    for (size_t i = 0; i < s->starts.n; i++) {
        size_t len = s->starts.at[i] - from, off = len > n ? len - n : n - len;

        from = s->starts.at[i];
        if (off < best_off || (off == best_off && len < best)) {
            best = len;
            best_off = off;
        }
    }
    return n > best ? 1 : real_exp(1 - (double)best / (double)n);
}

/* Into s->best: how often each gram occurs in the label that has it most often. A label's grams are
 * stored where its words are, n - 1 fewer. */
static enum status count_labels(struct scorer *s, size_t n, size_t n_ids)
{
    size_t from = 0;

    if (ids_zero(&s->best, n_ids) != STATUS_OK)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < s->starts.n; i++) {
        size_t to = s->starts.at[i];

        if (ids_zero(&s->counts, n_ids) != STATUS_OK)
            return STATUS_EXHAUSTED;
        for (size_t k = from; k + n <= to; k++) {
            uint32_t id = s->label_grams.at[k];

            if (++s->counts.at[id] > s->best.at[id])
                s->best.at[id] = s->counts.at[id];
        }
        from = to;
    }
    return STATUS_OK;
}

/* From grams of n words to those of n + 1, in place; new numbers begin at n_words. */
static enum status longer(struct scorer *s, uint32_t *grams, const uint32_t *words, size_t len,
                          size_t n)
{
    for (size_t i = 0; i + n < len; i++) {
        if (words_of_pair(&s->pairs, grams[i], words[i + n], &grams[i]) != STATUS_OK)
            return STATUS_EXHAUSTED;
        grams[i] += s->words.n;
    }
    return STATUS_OK;
}

static enum status all_longer(struct scorer *s, size_t n)
{
    size_t from = 0;

    for (size_t i = 0; i < s->starts.n; i++) {
        if (longer(s, s->label_grams.at + from, s->label_ids.at + from, s->starts.at[i] - from,
                   n) != STATUS_OK)
            return STATUS_EXHAUSTED;
        from = s->starts.at[i];
    }
    return longer(s, s->reply_grams.at, s->reply_ids.at, s->reply_ids.n, n);
}

/* The reply's grams of n words that occur in a label, each counted at most as often as there. */
static enum status count_matches(struct scorer *s, size_t n, size_t *out)
{
    size_t n_ids = (size_t)s->words.n + s->pairs.n, n_matches = 0;

    if (count_labels(s, n, n_ids) != STATUS_OK)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i + n <= s->reply_ids.n; i++) {
        uint32_t *left = &s->best.at[s->reply_grams.at[i]];

        if (*left > 0) {
            --*left;
            n_matches++;
        }
    }
    *out = n_matches;
    return STATUS_OK;
}

enum status scorer_bleu(struct scorer *s, double out[SCORE_MAX_NGRAM])
{
    double log_p[SCORE_MAX_NGRAM];

    memset(out, 0, SCORE_MAX_NGRAM * sizeof(*out));
    words_clear(&s->pairs);
    if (ids_copy(&s->reply_grams, &s->reply_ids) != STATUS_OK ||
        ids_copy(&s->label_grams, &s->label_ids) != STATUS_OK)
        return STATUS_EXHAUSTED;
    for (size_t n = 1; n <= SCORE_MAX_NGRAM; n++) {
        size_t n_grams = s->reply_ids.n >= n ? s->reply_ids.n - n + 1 : 1; /* 1: as if */
        size_t n_matches;

        if (count_matches(s, n, &n_matches) != STATUS_OK || all_longer(s, n) != STATUS_OK)
            return STATUS_EXHAUSTED;
        if (n == 1 && n_matches == 0)
            return STATUS_OK;
        log_p[n - 1] = real_log((n_matches > 0 ? (double)n_matches : unmatched) / (double)n_grams);
    }
    combine(log_p, brevity(s, s->reply_ids.n), out);
    return STATUS_OK;
}
