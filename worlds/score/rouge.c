/* ROUGE-1, -2 and -L (Lin, 2004), recall, with Porter's stemmer for words of more than three
 * letters, as the script of 2004 has it. Any character but a-z and 0-9 counts as a space; a text is
 * cut after 665 bytes. */
#include <libstemmer.h>
#include <string.h>

#include "worlds/score/scratch.h"

enum { MAX_TEXT = 665, MIN_STEMMED = 4 };

/* Appends the numbers of a text's stems. Stems are stored in s->stems, which has room for all. */
static enum status stem(struct scorer *s, const char *text, size_t len, struct ids *out)
{
    size_t at = 0;

    len = len < MAX_TEXT ? len : MAX_TEXT;
    while (at < len) {
        size_t from = at, n;
        const char *word = text + from;
        uint32_t id;

        while (at < len &&
               ((text[at] >= 'a' && text[at] <= 'z') || (text[at] >= '0' && text[at] <= '9')))
            at++;
        n = at - from;
        at += n == 0;
        if (n == 0)
            continue;
        if (n >= MIN_STEMMED) {
            const sb_symbol *stemmed = sb_stemmer_stem(s->stemmer, (const sb_symbol *)word, (int)n);

            if (stemmed == NULL)
                return STATUS_EXHAUSTED;
            n = (size_t)sb_stemmer_length(s->stemmer);
            word = s->stems.data + s->stems.len;
            if (buf_append(&s->stems, stemmed, n) != STATUS_OK)
                return STATUS_EXHAUSTED;
        }
        if (words_of(&s->words, (struct text){word, n}, &id) != STATUS_OK ||
            ids_push(out, id) != STATUS_OK)
            return STATUS_EXHAUSTED;
    }
    return STATUS_OK;
}

/* How many of n numbers the reply's, taken once each, match. */
static enum status matches(struct scorer *s, const uint32_t *label, size_t n, const uint32_t *reply,
                           size_t n_reply, size_t n_ids, size_t *out)
{
    size_t n_same = 0;

    if (ids_zero(&s->counts, n_ids) != STATUS_OK)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < n; i++)
        s->counts.at[label[i]]++;
    for (size_t i = 0; i < n_reply; i++)
        if (s->counts.at[reply[i]] > 0) {
            s->counts.at[reply[i]]--;
            n_same++;
        }
    *out = n_same;
    return STATUS_OK;
}

/* Length of the longest common subsequence. */
static enum status common(struct scorer *s, size_t *out)
{
    struct ids *row = &s->best;

    if (ids_zero(row, s->reply_ids.n + 1) != STATUS_OK)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < s->label_ids.n; i++) {
        uint32_t diagonal = 0;

        for (size_t k = 0; k < s->reply_ids.n; k++) {
            uint32_t above = row->at[k + 1];

            if (s->label_ids.at[i] == s->reply_ids.at[k])
                row->at[k + 1] = diagonal + 1;
            else if (row->at[k] > above)
                row->at[k + 1] = row->at[k];
            diagonal = above;
        }
    }
    *out = row->at[s->reply_ids.n];
    return STATUS_OK;
}

static enum status pairs_of(struct scorer *s, const struct ids *words, struct ids *out)
{
    out->n = 0;
    for (size_t i = 0; i + 1 < words->n; i++) {
        uint32_t id;

        if (words_of_pair(&s->pairs, words->at[i], words->at[i + 1], &id) != STATUS_OK ||
            ids_push(out, id) != STATUS_OK)
            return STATUS_EXHAUSTED;
    }
    return STATUS_OK;
}

static void keep_best(double *best, size_t n_same, size_t n)
{
    double recall = n == 0 ? 0 : (double)n_same / (double)n;

    *best = recall > *best ? recall : *best;
}

static enum status against(struct scorer *s, struct text label, double out[SCORE_N_ROUGE])
{
    size_t n_same;

    s->label_ids.n = 0;
    if (stem(s, label.text, label.len, &s->label_ids) != STATUS_OK ||
        matches(s, s->label_ids.at, s->label_ids.n, s->reply_ids.at, s->reply_ids.n, s->words.n,
                &n_same) != STATUS_OK)
        return STATUS_EXHAUSTED;
    keep_best(&out[0], n_same, s->label_ids.n);
    if (pairs_of(s, &s->label_ids, &s->label_grams) != STATUS_OK ||
        matches(s, s->label_grams.at, s->label_grams.n, s->reply_grams.at, s->reply_grams.n,
                s->pairs.n, &n_same) != STATUS_OK)
        return STATUS_EXHAUSTED;
    keep_best(&out[1], n_same, s->label_grams.n);
    if (common(s, &n_same) != STATUS_OK)
        return STATUS_EXHAUSTED;
    keep_best(&out[2], n_same, s->label_ids.n);
    return STATUS_OK;
}

enum status scorer_rouge(struct scorer *s, double out[SCORE_N_ROUGE])
{
    if (s->stemmer == NULL)
        s->stemmer = sb_stemmer_new("porter", NULL);
    if (s->stemmer == NULL)
        return STATUS_EXHAUSTED;
    memset(out, 0, SCORE_N_ROUGE * sizeof(*out));
    words_clear(&s->words);
    words_clear(&s->pairs);
    s->stems.limit_bytes = SIZE_MAX / 2;
    buf_clear(&s->stems);
    /* A stem is at most an e longer than its word, so this is room for all stems; words_of borrows
     * them. */
    while (s->stems.cap < 2 * (s->reply.len + s->labels.len) + 64) {
        if (buf_append_text(&s->stems, "what is written here is only to make room") != STATUS_OK ||
            buf_append(&s->stems, s->reply.data, s->reply.len) != STATUS_OK)
            return STATUS_EXHAUSTED;
    }
    buf_clear(&s->stems);
    s->reply_ids.n = 0;
    if (stem(s, s->reply.data, s->reply.len, &s->reply_ids) != STATUS_OK ||
        pairs_of(s, &s->reply_ids, &s->reply_grams) != STATUS_OK)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < s->ends.n; i++)
        if (against(s, scorer_label(s, i), out) != STATUS_OK)
            return STATUS_EXHAUSTED;
    return STATUS_OK;
}
