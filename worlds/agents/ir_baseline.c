/* Ranks the candidates by the words they share with what was said last, the rare ones counting
 * more. A score is the sum of the shared words' weights, 1 / (1 + ln(1 + count)), over a norm that
 * grows with both lengths. Only the best hundred are kept; equals in the order of their bytes, the
 * greatest first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unicase.h>

#include "base/alloc.h"
#include "worlds/agents/dictionary.h"
#include "worlds/agents/reply.h"
#include "worlds/score/words.h"

enum { MOST_RANKED = 100 };

static const double default_length_penalty = 0.5;

struct ranked {
    struct text text;
    double score;
};

/* --- what was said, when more than the last utterance counts -----------------------------------
 */

/* A clone's context. */
struct said {
    size_t n;     /* of [history_size], the oldest first */
    bool is_over; /* the episode ended: the next utterance begins another */
    char *texts[];
};

static void forget(struct said *s)
{
    while (s->n > 0)
        free(s->texts[--s->n]);
    s->is_over = false;
}

static enum status keep(struct simple_clone *c, size_t history_size, const struct act *heard,
                        struct error *err)
{
    struct said *s = c->context;
    struct text text = act_text(heard);
    char *copy;

    if (s == NULL) {
        s = c->context = try_alloc(1, sizeof *s + history_size * sizeof s->texts[0]);
        if (s == NULL)
            return error_no_memory(err, sizeof *s, "a history");
    }
    if (s->is_over)
        forget(s);
    s->is_over = act_is(heard, ACT_EPISODE_DONE);
    if (!act_has(heard, ACT_TEXT))
        return STATUS_OK;
    copy = try_strndup(text.text, text.len);
    if (copy == NULL)
        return error_no_memory(err, text.len, "a history");
    if (s->n == history_size) {
        free(s->texts[0]);
        memmove(s->texts, s->texts + 1, --s->n * sizeof s->texts[0]);
    }
    s->texts[s->n++] = copy;
    return STATUS_OK;
}

static size_t history_size(const struct simple_clone *c)
{
    size_t n = simple_of(&c->base)->config.history_size;

    return n != 0 ? n : 1;
}

static enum status observe(struct participant_clone *base, const struct act *heard,
                           const struct act **ret_observation, struct error *err)
{
    struct simple_clone *c = simple_clone_of(base);

    if (history_size(c) > 1 && !act_is_padding(heard) &&
        keep(c, history_size(c), heard, err) != STATUS_OK)
        return err->status;
    return simple_observe(base, heard, ret_observation, err);
}

static void reset(struct participant_clone *base)
{
    struct simple_clone *c = simple_clone_of(base);

    if (c->context != NULL)
        forget(c->context);
    simple_reset(base);
}

static void clone_deinit(struct participant_clone *base)
{
    struct simple_clone *c = simple_clone_of(base);

    if (c->context != NULL)
        forget(c->context);
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

struct query {
    const struct dictionary *dictionary;
    double penalty, norm; /* root of the number of words, each as often as it stands */
    char *low;            /* what its words lie in */
    struct words words;   /* of the query */
    struct words used;    /* of the candidate that is scored */
};

static void query_deinit(struct query *q)
{
    free(q->low);
    words_deinit(&q->words);
    words_deinit(&q->used);
}

/* In lower case; the caller's to free. NULL without memory. */
static char *lower(struct text text, size_t *ret_len)
{
    *ret_len = 0;
    if (text.len == 0)
        return calloc(1, 1);
    return (char *)u8_tolower((const uint8_t *)text.text, text.len, NULL, NULL, NULL, ret_len);
}

static enum status read_query(struct query *q, const struct simple_clone *c)
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
    while (rc == STATUS_OK &&
           (word = dictionary_next((struct text){q->low, len}, &at)).text != NULL) {
        uint32_t number;

        rc = words_of(&q->words, word, &number);
        n++;
    }
    q->norm = sqrt((double)n);
    return rc;
}

static double weight(const struct query *q, struct text word)
{
    return 1 / (1 + log(1 + (double)dictionary_count(q->dictionary, word)));
}

static enum status score(struct query *q, struct text candidate, double *out)
{
    size_t len, at = 0;
    double sum = 0, norm;
    enum status rc = STATUS_OK;
    struct text word;
    char *low = lower(candidate, &len);

    if (low == NULL)
        return STATUS_EXHAUSTED;
    words_clear(&q->used);
    while (rc == STATUS_OK && (word = dictionary_next((struct text){low, len}, &at)).text != NULL) {
        uint32_t n = q->used.n, number;

        rc = words_of(&q->used, word, &number);
        if (number == n && words_find(&q->words, word) != NULL) /* its first time */
            sum += weight(q, word);
    }
    norm = pow(sqrt((double)q->used.n) * q->norm, q->penalty);
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

/* The best first. */
static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return -compare_texts(&x->text, &y->text);
}

/* The best hundred: one that is no better than the least of them does not get in. */
static size_t rank(struct ranked *ranked, size_t n, struct ranked next)
{
    size_t least = 0;

    if (n < MOST_RANKED) {
        ranked[n] = next;
        return n + 1;
    }
    for (size_t i = 1; i < n; i++)
        if (compare_ranked(&ranked[i], &ranked[least]) > 0)
            least = i;
    if (next.score > ranked[least].score)
        ranked[least] = next;
    return n;
}

static enum status rank_all(const struct simple_clone *c, const struct value *candidates,
                            struct text *out, size_t *ret_n)
{
    const struct simple_config *config = &simple_of(&c->base)->config;
    struct query q = {.dictionary = config->dictionary,
                      .penalty = config->length_penalty < 0 ? default_length_penalty
                                                            : config->length_penalty};
    struct ranked ranked[MOST_RANKED];
    enum status rc = read_query(&q, c);
    size_t n = 0;

    for (size_t i = 0; i < candidates->list.n && rc == STATUS_OK; i++) {
        struct ranked next = {.text = candidates->list.items[i]};

        if (next.text.text == NULL)
            next.text.text = "";
        rc = score(&q, next.text, &next.score);
        if (rc == STATUS_OK)
            n = rank(ranked, n, next);
    }
    qsort(ranked, n, sizeof ranked[0], compare_ranked);
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
    best = arena_alloc(out->arena, MOST_RANKED, sizeof *best);
    if (best == NULL || rank_all(c, given, best, &n) != STATUS_OK)
        return error_no_memory(err, MOST_RANKED * sizeof *best, "a ranking");
    if (act_set(out, ACT_TEXT_CANDIDATES, value_list(best, n), err) != STATUS_OK)
        return err->status;
    return act_set(out, ACT_TEXT, value_text(best[0]), err);
}

const struct simple_type ir_baseline_agent = {
    .base = {.name = "ir_baseline",
             .close = simple_close,
             .clone_size = sizeof(struct simple_clone),
             .clone_init = simple_clone_init,
             .clone_deinit = clone_deinit,
             .reset = reset,
             .observe = observe,
             .act = ir_act},
    .needs_dictionary = true,
};
