#include "worlds/score/scorer.h"

#include <libstemmer.h>
#include <stdint.h>
#include <string.h>

#include "worlds/score/normal.h"

const unsigned score_hits_at[SCORE_N_HITS] = {1, 5, 10, 100};

void scorer_deinit(struct scorer *s)
{
    buf_deinit(&s->reply);
    buf_deinit(&s->labels);
    buf_deinit(&s->stems);
    ids_deinit(&s->ends);
    words_deinit(&s->words);
    words_deinit(&s->pairs);
    ids_deinit(&s->reply_ids);
    ids_deinit(&s->label_ids);
    ids_deinit(&s->starts);
    ids_deinit(&s->reply_grams);
    ids_deinit(&s->label_grams);
    ids_deinit(&s->counts);
    ids_deinit(&s->best);
    if (s->stemmer != NULL)
        sb_stemmer_delete(s->stemmer);
    *s = (struct scorer){0};
}

static void clear(struct buf *b)
{
    b->limit_bytes = SIZE_MAX / 2;
    buf_clear(b);
}

static enum status set_labels(struct scorer *s, const struct text *labels, size_t n)
{
    clear(&s->labels);
    s->ends.n = 0;
    for (size_t i = 0; i < n; i++)
        if (normalise(&s->labels, labels[i].text, labels[i].len) != STATUS_OK ||
            ids_push(&s->ends, (uint32_t)s->labels.len) != STATUS_OK)
            return STATUS_EXHAUSTED;
    return STATUS_OK;
}

/* Words in common, as multisets, between the reply and one label, whose words are n at ids. */
static enum status overlap(struct scorer *s, const uint32_t *ids, size_t n, struct scores *best)
{
    size_t n_same = 0;
    double p, r, f1;

    if (ids_zero(&s->counts, s->words.n) != STATUS_OK)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < n; i++)
        s->counts.at[ids[i]]++;
    for (size_t i = 0; i < s->reply_ids.n; i++) {
        uint32_t *left = &s->counts.at[s->reply_ids.at[i]];

        if (*left > 0) {
            --*left;
            n_same++;
        }
    }
    if (n_same == 0)
        return STATUS_OK;
    p = (double)n_same / (double)s->reply_ids.n;
    r = (double)n_same / (double)n;
    f1 = 2 * p * r / (p + r);
    best->precision = p > best->precision ? p : best->precision;
    best->recall = r > best->recall ? r : best->recall;
    best->f1 = f1 > best->f1 ? f1 : best->f1;
    return STATUS_OK;
}

static enum status overlaps(struct scorer *s, struct scores *best)
{
    size_t from = 0;

    for (size_t i = 0; i < s->starts.n; i++) {
        /* a text without words counts as one empty word, which matches nothing */
        if (scorer_label(s, i).len > 0 && s->reply.len > 0 &&
            overlap(s, s->label_ids.at + from, s->starts.at[i] - from, best) != STATUS_OK)
            return STATUS_EXHAUSTED;
        from = s->starts.at[i];
    }
    return STATUS_OK;
}

/* The words of the reply and of all labels as numbers. */
static enum status number_words(struct scorer *s)
{
    words_clear(&s->words);
    s->reply_ids.n = s->label_ids.n = s->starts.n = 0;
    if (words_split(&s->words, s->reply.data, s->reply.len, &s->reply_ids) != STATUS_OK)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < s->ends.n; i++) {
        struct text label = scorer_label(s, i);

        if (words_split(&s->words, label.text, label.len, &s->label_ids) != STATUS_OK ||
            ids_push(&s->starts, (uint32_t)s->label_ids.n) != STATUS_OK)
            return STATUS_EXHAUSTED;
    }
    return STATUS_OK;
}

static size_t scorer_count_words(const struct buf *text)
{
    size_t n = 1;

    for (size_t i = 0; i < text->len; i++)
        n += text->data[i] == ' ';
    return n;
}

static enum status scorer_score_text(struct scorer *s, bool wants_bleu, bool wants_rouge,
                                     struct scores *out)
{
    struct scores best = {0};
    size_t n = s->ends.n;
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < n; i++) {
        struct text label = scorer_label(s, i);

        if (label.len == s->reply.len && memcmp(label.text, s->reply.data, label.len) == 0)
            best.accuracy = 1;
    }
    if (best.accuracy == 1) { /* no label can score higher */
        best.precision = best.recall = best.f1 = s->reply.len > 0 ? 1 : 0;
        if (wants_bleu)
            scorer_bleu_of_equal(scorer_count_words(&s->reply), best.bleu);
    } else {
        rc = number_words(s);
        if (rc == STATUS_OK)
            rc = overlaps(s, &best);
        if (rc == STATUS_OK && wants_bleu)
            rc = scorer_bleu(s, best.bleu);
    }
    if (wants_rouge && rc == STATUS_OK)
        rc = scorer_rouge(s, best.rouge);
    if (rc == STATUS_OK)
        *out = best;
    return rc;
}

enum status scorer_score(struct scorer *s, struct text reply, const struct text *labels,
                         size_t n_labels, bool wants_bleu, bool wants_rouge, struct scores *out,
                         struct error *err)
{
    clear(&s->reply);
    if (normalise(&s->reply, reply.text, reply.len) != STATUS_OK ||
        set_labels(s, labels, n_labels) != STATUS_OK ||
        scorer_score_text(s, wants_bleu, wants_rouge, out) != STATUS_OK)
        return error_no_memory(err, reply.len, "scoring a reply");
    return STATUS_OK;
}

enum status scorer_hits(struct scorer *s, const struct text *candidates, size_t n_candidates,
                        const struct text *labels, size_t n_labels, double out[SCORE_N_HITS],
                        struct error *err)
{
    unsigned most = score_hits_at[SCORE_N_HITS - 1];
    size_t first = SIZE_MAX; /* candidate that is a label */

    if (set_labels(s, labels, n_labels) != STATUS_OK)
        return error_no_memory(err, s->labels.len, "scoring candidates");
    for (size_t i = 0; i < n_candidates && i < most && first == SIZE_MAX; i++) {
        clear(&s->reply);
        if (normalise(&s->reply, candidates[i].text, candidates[i].len) != STATUS_OK)
            return error_no_memory(err, candidates[i].len, "scoring candidates");
        for (size_t l = 0; l < n_labels; l++) {
            struct text label = scorer_label(s, l);

            if (label.len == s->reply.len && memcmp(label.text, s->reply.data, label.len) == 0)
                first = i;
        }
    }
    for (size_t k = 0; k < SCORE_N_HITS; k++)
        out[k] = first < score_hits_at[k] ? 1 : 0;
    return STATUS_OK;
}
