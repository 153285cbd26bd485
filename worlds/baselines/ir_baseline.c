/* Ranks candidates by the words they share with the last utterances. A score is the sum of the
 * shared words' weights, 1 / (1 + ln(1 + count)), so rare words weigh more, divided by a norm
 * that grows with both lengths. The best hundred are kept; equal scores are ordered by bytes,
 * the greatest first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unicase.h>

#include "agents/words/tokens.h"
#include "base/alloc.h"
#include "base/real.h"
#include "worlds/baselines/dictionary.h"
#include "worlds/baselines/reply.h"
#include "worlds/score/words.h"

enum { MOST_RANKED = 100 };

static const double default_length_penalty = 0.5;

struct ranked_line {
    struct text text;
    double score;
};

/* --- the history, when history_size is above 1
 * ------------------------------------------------- */

/* A clone's context: the newest utterances of its episode. */
struct said {
    size_t n;
    bool is_over;  /* the episode ended: the next utterance begins another */
    char *texts[]; /* [n] the oldest first; room for history_size */
};

static void ir_baseline_forget(struct said *s)
{
    while (s->n > 0)
        free(s->texts[--s->n]);
    s->is_over = false;
}

static enum status ir_baseline_keep(struct simple_clone *c, size_t history_size,
                                    const struct act *heard, struct error *err)
{
    struct said *s = c->context;
    struct text text = act_text(heard);
    char *copy;

    if (s == NULL) {
        s = c->context = try_alloc(1, sizeof(*s) + history_size * sizeof(s->texts[0]));
        if (s == NULL)
            return error_no_memory(err, sizeof(*s), "a history");
    }
    if (s->is_over)
        ir_baseline_forget(s);
    s->is_over = act_is(heard, ACT_EPISODE_DONE);
    if (!act_has(heard, ACT_TEXT))
        return STATUS_OK;
    copy = try_strndup(text.text, text.len);
    if (copy == NULL)
        return error_no_memory(err, text.len, "a history");
    if (s->n == history_size) {
        free(s->texts[0]);
        memmove(s->texts, s->texts + 1, --s->n * sizeof(s->texts[0]));
    }
    s->texts[s->n++] = copy;
    return STATUS_OK;
}

static size_t history_size(const struct simple_clone *c)
{
    size_t n = simple_of(&c->base)->config.history_size;

    return n != 0 ? n : 1;
}

static enum status ir_baseline_observe(struct participant_clone *base, const struct act *heard,
                                       const struct act **ret_observation, struct error *err)
{
    struct simple_clone *c = simple_clone_of(base);

    if (history_size(c) > 1 && !act_is_padding(heard) &&
        ir_baseline_keep(c, history_size(c), heard, err) != STATUS_OK)
        return err->status;
    return simple_observe(base, heard, ret_observation, err);
}

static void ir_baseline_reset(struct participant_clone *base)
{
    struct simple_clone *c = simple_clone_of(base);

    if (c->context != NULL)
        ir_baseline_forget(c->context);
    simple_reset(base);
}

static void ir_baseline_clone_deinit(struct participant_clone *base)
{
    struct simple_clone *c = simple_clone_of(base);

    if (c->context != NULL)
        ir_baseline_forget(c->context);
    free(c->context);
    c->context = NULL;
}

/* The newest utterances, spaces between. */
static enum status query_text(const struct simple_clone *c, struct buf *out)
{
    const struct said *s = c->context;
    enum status rc = STATUS_OK;

    if (s == NULL)
        return buf_append(out, act_text(c->heard).text, act_text(c->heard).len);
    for (size_t i = 0; i < s->n && rc == STATUS_OK; i++) {
        if (i > 0)
            rc = buf_append_text(out, " ");
        if (rc == STATUS_OK)
            rc = buf_append_text(out, s->texts[i]);
    }
    return rc;
}

/* --- ranking -----------------------------------------------------------------------------------
 */

struct ir_query {
    const struct dictionary *dictionary;
    double penalty, norm; /* norm: square root of the number of words, repeated ones counted */
    char *low;            /* the query in lower case; words borrows from it */
    struct words words;   /* words of the query */
    struct words used;    /* words of the candidate that is scored */
};

static void query_deinit(struct ir_query *q)
{
    free(q->low);
    words_deinit(&q->words);
    words_deinit(&q->used);
}

/* Returns the text in lower case, which the caller frees; NULL without memory. */
static char *lower(struct text text, size_t *ret_len)
{
    *ret_len = 0;
    if (text.len == 0)
        return calloc(1, 1);
    return (char *)u8_tolower((const uint8_t *)text.text, text.len, NULL, NULL, NULL, ret_len);
}

static enum status read_query(struct ir_query *q, const struct simple_clone *c)
{
    struct buf text;
    enum status rc;
    size_t len = 0, at = 0, n = 0;
    struct text word;

    buf_init(&text, SIZE_MAX);
    rc = query_text(c, &text);
    if (rc == STATUS_OK) {
        q->low = lower((struct text){text.data, text.len}, &len);
        rc = q->low != NULL ? STATUS_OK : STATUS_EXHAUSTED;
    }
    buf_deinit(&text);
    words_clear(&q->words);
    while (rc == STATUS_OK && (word = token_next((struct text){q->low, len}, &at)).text != NULL) {
        uint32_t number;

        rc = words_of(&q->words, word, &number);
        n++;
    }
    q->norm = sqrt((double)n);
    return rc;
}

static double weight(const struct ir_query *q, struct text word)
{
    return 1 / (1 + real_log(1 + (double)dictionary_count(q->dictionary, word)));
}

static enum status ir_query_score(struct ir_query *q, struct text candidate, double *out)
{
    size_t len, at = 0;
    double sum = 0, norm;
    enum status rc = STATUS_OK;
    struct text word;
    char *low = lower(candidate, &len);

    if (low == NULL)
        return STATUS_EXHAUSTED;
    words_clear(&q->used);
    while (rc == STATUS_OK && (word = token_next((struct text){low, len}, &at)).text != NULL) {
        uint32_t n = q->used.n, number;

        rc = words_of(&q->used, word, &number);
        if (number == n && words_find(&q->words, word) != NULL) /* its first occurrence */
            sum += weight(q, word);
    }
    norm = real_pow(sqrt((double)q->used.n) * q->norm, q->penalty);
    *out = norm > 1 ? sum / norm : sum;
    free(low);
    return rc;
}

static int compare_texts(const struct text *a, const struct text *b)
{
    int order = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);

    if (order != 0)
        return order;
    return a->len < b->len ? -1 : a->len > b->len;
}

/* By falling score. */
static int ranked_line_compare(const void *a, const void *b)
{
    const struct ranked_line *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return -compare_texts(&x->text, &y->text);
}

/* Keeps the best hundred: a candidate replaces the worst one only if it is better. */
static size_t rank(struct ranked_line *ranked, size_t n, struct ranked_line next)
{
    size_t least = 0;

    if (n < MOST_RANKED) {
        ranked[n] = next;
        return n + 1;
    }
    for (size_t i = 1; i < n; i++)
        if (ranked_line_compare(&ranked[i], &ranked[least]) > 0)
            least = i;
    if (next.score > ranked[least].score)
        ranked[least] = next;
    return n;
}

static enum status rank_all(const struct simple_clone *c, const struct value *candidates,
                            struct text *out, size_t *ret_n)
{
    const struct simple_config *config = &simple_of(&c->base)->config;
    struct ir_query q = {.dictionary = config->dictionary,
                         .penalty = config->length_penalty < 0 ? default_length_penalty
                                                               : config->length_penalty};
    struct ranked_line ranked[MOST_RANKED];
    enum status rc = read_query(&q, c);
    size_t n = 0;

    for (size_t i = 0; i < candidates->list.n && rc == STATUS_OK; i++) {
        struct ranked_line next = {.text = candidates->list.items[i]};

        if (next.text.text == NULL)
            next.text.text = "";
        rc = ir_query_score(&q, next.text, &next.score);
        if (rc == STATUS_OK)
            n = rank(ranked, n, next);
    }
    qsort(ranked, n, sizeof(ranked[0]), ranked_line_compare);
    for (size_t i = 0; i < n; i++)
        out[i] = ranked[i].text;
    *ret_n = n;
    query_deinit(&q);
    return rc;
}

static enum status ir_act(struct participant_clone *base, struct act *out, struct error *err)
{
    struct simple_clone *c = simple_clone_of(base);
    const struct simple_config *config = &simple_of(base)->config;
    const struct value *given = c->heard != NULL ? act_list(c->heard, ACT_LABEL_CANDIDATES) : NULL;
    struct text *best;
    size_t n;

    if (config->learns && c->heard != NULL &&
        dictionary_add_act(config->dictionary, c->heard, err) != STATUS_OK)
        return err->status;
    if (reply_start(out, "IRBaselineAgent", err) != STATUS_OK)
        return err->status;
    if (given == NULL || given->list.n == 0)
        return STATUS_OK; /* nothing to say */
    best = arena_alloc(out->arena, MOST_RANKED, sizeof(*best));
    if (best == NULL || rank_all(c, given, best, &n) != STATUS_OK)
        return error_no_memory(err, MOST_RANKED * sizeof(*best), "a ranking");
    if (act_set(out, ACT_TEXT_CANDIDATES, value_list(best, n), err) != STATUS_OK)
        return err->status;
    return act_set(out, ACT_TEXT, value_text(best[0]), err);
}

const struct simple_type ir_baseline_agent = {
    .base = {.name = "ir_baseline",
             .close = simple_close,
             .clone_size = sizeof(struct simple_clone),
             .clone_init = simple_clone_init,
             .clone_deinit = ir_baseline_clone_deinit,
             .reset = ir_baseline_reset,
             .observe = ir_baseline_observe,
             .act = ir_act},
    .needs_dictionary = true,
};
