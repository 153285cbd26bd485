/* The store of metrics. Each thread counts into its own shard; sums are exact, so merging shards in
 * any order gives the same bits. */
#include "worlds/metrics/metrics.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/exact_sum.h"
#include "worlds/score/grams.h"
#include "worlds/score/scorer.h"

enum standard {
    EXS,
    ACCURACY,
    PRECISION,
    RECALL,
    F1,
    BLEU_1,
    BLEU_4 = BLEU_1 + SCORE_MAX_NGRAM - 1,
    ROUGE_1,
    ROUGE_L = ROUGE_1 + SCORE_N_ROUGE - 1,
    INTER_1,
    INTRA_1,
    INTER_2,
    INTRA_2,
    HITS_1,
    N_STANDARD = HITS_1 + SCORE_N_HITS,
};

enum { N_DISTINCT = 2 };

static const char *const standard_names[N_STANDARD] = {
    "exs",
    "accuracy",
    "precision",
    "recall",
    "f1",
    "bleu-1",
    "bleu-2",
    "bleu-3",
    "bleu-4",
    "rouge_1",
    "rouge_2",
    "rouge_L",
    "interdistinct-1",
    "intradistinct-1",
    "interdistinct-2",
    "intradistinct-2",
    "hits@1",
    "hits@5",
    "hits@10",
    "hits@100",
};

/* The summed parts of a metric. */
struct meter {
    struct metric like;    /* kind and flags; also b and c of a timer, and a of a fixed metric */
    bool is_used;          /* something was counted */
    struct exact_sum a, b; /* the sums of the metrics' a and b */
};

struct named_meter {
    char *name;
    struct meter meter;
};

struct shard {
    pthread_mutex_t lock; /* guards all members below */
    struct meter standard[N_STANDARD];
    struct named_meter **named; /* [n_named] */
    size_t n_named, cap_named;
    struct grams grams[N_DISTINCT];
    struct scorer scorer;
};

struct metrics {
    unsigned families;
    size_t n_shards;
    struct shard shards[]; /* [n_shards] */
};

/* --- life ------------------------------------------------------------------------------------ */

enum status metrics_families(unsigned *out, const char *names, struct error *err)
{
    static const struct {
        const char *name;
        unsigned families;
    } known[] = {
        {"default", METRICS_DEFAULT}, {"f1", METRICS_F1},       {"none", METRICS_F1},
        {"bleu", METRICS_BLEU},       {"rouge", METRICS_ROUGE}, {"distinct", METRICS_DISTINCT},
        {"all", METRICS_ALL},
    };
    unsigned families = 0;

    for (const char *at = names;; at++) {
        size_t len = strcspn(at, ","), i = 0;

        while (i < sizeof(known) / sizeof(known[0]) &&
               (strlen(known[i].name) != len || memcmp(known[i].name, at, len) != 0))
            i++;
        if (i == sizeof(known) / sizeof(known[0]))
            return error_set(
                err, STATUS_INVALID,
                "metrics '%.*s' must be default, f1, bleu, rouge, distinct, all or none",
                (int)(len < 40 ? len : 40), at);
        families |= known[i].families;
        at += len;
        if (*at == '\0')
            break;
    }
    *out = families;
    return STATUS_OK;
}

static void shard_clear(struct shard *s)
{
    for (size_t i = 0; i < s->n_named; i++) {
        free(s->named[i]->name);
        free(s->named[i]);
    }
    s->n_named = 0;
    memset(s->standard, 0, sizeof(s->standard));
    for (size_t i = 0; i < N_DISTINCT; i++)
        grams_clear(&s->grams[i]);
}

enum status metrics_open(struct metrics **out, unsigned families, size_t n_shards,
                         struct error *err)
{
    struct metrics *m = try_alloc(1, sizeof(*m) + n_shards * sizeof(m->shards[0]));

    assert(n_shards > 0);
    if (m == NULL)
        return error_no_memory(err, n_shards * sizeof(m->shards[0]), "metrics");
    m->families = families;
    m->n_shards = n_shards;
    for (size_t i = 0; i < n_shards; i++)
        (void)pthread_mutex_init(&m->shards[i].lock, NULL); /* cannot fail on Linux */
    *out = m;
    return STATUS_OK;
}

void metrics_close(struct metrics *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->n_shards; i++) {
        struct shard *s = &m->shards[i];

        shard_clear(s);
        free(s->named);
        for (size_t k = 0; k < N_DISTINCT; k++)
            grams_deinit(&s->grams[k]);
        scorer_deinit(&s->scorer);
        (void)pthread_mutex_destroy(&s->lock);
    }
    free(m);
}

/* The lock is initialised and not destroyed while in use: neither call can fail. */
static void shard_lock(struct shard *s)
{
    (void)pthread_mutex_lock(&s->lock);
}

static void shard_unlock(struct shard *s)
{
    (void)pthread_mutex_unlock(&s->lock);
}

void metrics_reset(struct metrics *m)
{
    for (size_t i = 0; i < m->n_shards; i++) {
        shard_lock(&m->shards[i]);
        shard_clear(&m->shards[i]);
        shard_unlock(&m->shards[i]);
    }
}

/* --- counting -------------------------------------------------------------------------------- */

static enum status meter_add(struct meter *at, const struct metric *x, struct error *err)
{
    if (!at->is_used)
        at->like = *x;
    else if (at->like.kind != x->kind)
        return error_set(err, STATUS_INVALID, "metrics of different kinds under one name");
    else if (x->kind == METRIC_FIXED && x->a != at->like.a)
        return error_set(err, STATUS_INVALID,
                         "a metric with a fixed value has two values, %g and %g", at->like.a, x->a);
    at->is_used = true;
    at->like.is_integer &= x->is_integer;
    if (x->kind == METRIC_FIXED)
        return STATUS_OK;
    exact_sum_add(&at->a, x->a);
    if (x->kind == METRIC_TIMER) {
        at->like.b = x->b < at->like.b ? x->b : at->like.b;
        at->like.c = x->c > at->like.c ? x->c : at->like.c;
    } else {
        exact_sum_add(&at->b, x->b);
    }
    return STATUS_OK;
}

/* A standard average: cannot fail. */
static void shard_count(struct shard *s, enum standard which, double x)
{
    struct meter *at = &s->standard[which];

    at->is_used = true;
    at->like.kind = METRIC_AVERAGE;
    exact_sum_add(&at->a, x);
    at->b.whole++;
}

static enum status named_meter(struct shard *s, struct text prefix, struct text name,
                               struct meter **out, struct error *err)
{
    size_t len = prefix.len + name.len;
    struct named_meter *added;

    for (size_t i = 0; i < s->n_named; i++) {
        const char *known = s->named[i]->name;

        if (strlen(known) == len && memcmp(known, prefix.text, prefix.len) == 0 &&
            memcmp(known + prefix.len, name.text, name.len) == 0) {
            *out = &s->named[i]->meter;
            return STATUS_OK;
        }
    }
    if (s->n_named == s->cap_named) {
        size_t cap = s->cap_named == 0 ? 8 : 2 * s->cap_named;
        struct named_meter **named = try_realloc(s->named, cap, sizeof(*named));

        if (named == NULL)
            return error_no_memory(err, cap * sizeof(*named), "metrics");
        s->named = named;
        s->cap_named = cap;
    }
    added = try_alloc(1, sizeof(*added));
    if (added != NULL)
        added->name = try_alloc(len + 1, 1);
    if (added == NULL || added->name == NULL) {
        free(added);
        return error_no_memory(err, len, "a metric");
    }
    memcpy(added->name, prefix.text, prefix.len);
    memcpy(added->name + prefix.len, name.text, name.len);
    s->named[s->n_named++] = added;
    *out = &added->meter;
    return STATUS_OK;
}

static bool is_standard(struct text name)
{
    for (size_t i = 0; i < N_STANDARD; i++)
        if (strlen(standard_names[i]) == name.len &&
            memcmp(standard_names[i], name.text, name.len) == 0)
            return true;
    return false;
}

static enum status add_named(struct shard *s, struct text name, const struct metric *x,
                             struct error *err)
{
    struct text prefix = is_standard(name) ? (struct text){"USER_", 5} : (struct text){"", 0};
    struct meter *at = NULL;

    if (x->kind == METRIC_MACRO)
        return error_set(err, STATUS_INVALID, "a mean over tasks cannot be part of a reply");
    if (named_meter(s, prefix, name, &at, err) != STATUS_OK)
        return err->status;
    if (meter_add(at, x, err) != STATUS_OK)
        return error_prefix(err, "metric '%.*s'", (int)(name.len < 64 ? name.len : 64), name.text);
    return STATUS_OK;
}

/* The reply's n-grams, of n words between single spaces, into the corpus and by themselves. */
static enum status count_distinct(struct shard *s, size_t n, struct error *err)
{
    const char *reply = s->scorer.reply.data;
    size_t len = s->scorer.reply.len, n_total = 0;
    struct words *own = &s->scorer.words;

    words_clear(own);
    for (size_t from = 0; from < len; n_total++) {
        size_t to = from, next = len, n_words = 0;
        struct text gram;
        uint32_t id;

        for (; to <= len && n_words < n; to++)
            if (to == len || reply[to] == ' ') {
                next = n_words == 0 ? to + 1 : next;
                n_words++;
            }
        if (n_words < n)
            break;
        gram = (struct text){reply + from, to - 1 - from};
        if (words_of(own, gram, &id) != STATUS_OK || grams_add(&s->grams[n - 1], gram) != STATUS_OK)
            return error_no_memory(err, gram.len, "distinct n-grams");
        from = next;
    }
    s->standard[n == 1 ? INTER_1 : INTER_2].is_used = true;
    shard_count(s, n == 1 ? INTRA_1 : INTRA_2, grams_num(own->n) / grams_den(n_total));
    return STATUS_OK;
}

static enum status count_text(const struct metrics *m, struct shard *s, struct text reply,
                              const struct value *labels, struct error *err)
{
    bool bleu = (m->families & (METRICS_BLEU4 | METRICS_BLEU)) != 0;
    bool rouge = (m->families & METRICS_ROUGE) != 0;
    struct scores scores;

    if (scorer_score(&s->scorer, reply, labels->list.items, labels->list.n, bleu, rouge, &scores,
                     err) != STATUS_OK)
        return err->status;
    for (size_t n = 1; n <= N_DISTINCT && (m->families & METRICS_DISTINCT) != 0; n++)
        if (count_distinct(s, n, err) != STATUS_OK)
            return err->status;
    shard_count(s, ACCURACY, scores.accuracy);
    shard_count(s, PRECISION, scores.precision);
    shard_count(s, RECALL, scores.recall);
    shard_count(s, F1, scores.f1);
    for (size_t i = 0; i < SCORE_MAX_NGRAM && bleu; i++)
        if ((m->families & METRICS_BLEU) != 0 || BLEU_1 + i == BLEU_4)
            shard_count(s, (enum standard)(BLEU_1 + i), scores.bleu[i]);
    for (size_t i = 0; i < SCORE_N_ROUGE && rouge; i++)
        shard_count(s, (enum standard)(ROUGE_1 + i), scores.rouge[i]);
    return STATUS_OK;
}

static enum status evaluate(const struct metrics *m, struct shard *s, const struct value *labels,
                            const struct act *reply, struct error *err)
{
    const struct value *text = act_get(reply, ACT_TEXT);
    const struct value *candidates = act_list(reply, ACT_TEXT_CANDIDATES);
    const struct value *own = act_get(reply, ACT_METRICS);
    double hits[SCORE_N_HITS];

    if (labels != NULL) {
        if (text != NULL && text->type == VALUE_TEXT &&
            count_text(m, s, text->text, labels, err) != STATUS_OK)
            return err->status;
        if (candidates != NULL) {
            if (scorer_hits(&s->scorer, candidates->list.items, candidates->list.n,
                            labels->list.items, labels->list.n, hits, err) != STATUS_OK)
                return err->status;
            for (size_t i = 0; i < SCORE_N_HITS; i++)
                shard_count(s, (enum standard)(HITS_1 + i), hits[i]);
        }
        s->standard[EXS].is_used = true;
        s->standard[EXS].like = (struct metric){.kind = METRIC_SUM, .is_integer = true};
        s->standard[EXS].a.whole++;
    }
    if (own == NULL || own->type != VALUE_METRICS)
        return STATUS_OK;
    for (size_t i = 0; i < own->metrics->n; i++)
        if (add_named(s, own->metrics->items[i].name, &own->metrics->items[i].metric, err) !=
            STATUS_OK)
            return err->status;
    return STATUS_OK;
}

enum status metrics_evaluate(struct metrics *m, size_t shard, const struct value *labels,
                             const struct act *reply, struct error *err)
{
    enum status rc;

    assert(shard < m->n_shards && (labels == NULL || labels->type == VALUE_LIST));
    shard_lock(&m->shards[shard]);
    rc = evaluate(m, &m->shards[shard], labels, reply, err);
    shard_unlock(&m->shards[shard]);
    return rc;
}

/* --- reading --------------------------------------------------------------------------------- */

static enum status meter_merge(struct meter *into, const struct meter *from, struct error *err)
{
    struct metric like = from->like;

    if (!from->is_used)
        return STATUS_OK;
    if (!into->is_used) {
        *into = *from;
        return STATUS_OK;
    }
    if (into->like.kind != like.kind || (like.kind == METRIC_FIXED && into->like.a != like.a))
        return error_set(err, STATUS_INVALID, "metrics with one name that cannot be merged");
    into->like.is_integer &= like.is_integer;
    into->like.b = like.b < into->like.b ? like.b : into->like.b; /* of timers */
    into->like.c = like.c > into->like.c ? like.c : into->like.c;
    exact_sum_merge(&into->a, &from->a);
    exact_sum_merge(&into->b, &from->b);
    return STATUS_OK;
}

/* Merges all shards into a local one, whose mutex is never used. */
static enum status merge_shard(struct shard *into, const struct shard *from, struct error *err)
{
    for (size_t i = 0; i < N_STANDARD; i++)
        if (meter_merge(&into->standard[i], &from->standard[i], err) != STATUS_OK)
            return err->status;
    for (size_t i = 0; i < from->n_named; i++) {
        const struct named_meter *named = from->named[i];
        struct meter *at = NULL;

        if (named_meter(into, (struct text){"", 0}, (struct text){named->name, strlen(named->name)},
                        &at, err) != STATUS_OK)
            return err->status;
        if (meter_merge(at, &named->meter, err) != STATUS_OK)
            return error_prefix(err, "metric '%s'", named->name);
    }
    for (size_t i = 0; i < N_DISTINCT; i++)
        if (grams_merge(&into->grams[i], &from->grams[i]) != STATUS_OK)
            return error_no_memory(err, from->grams[i].set.n, "distinct n-grams");
    return STATUS_OK;
}

static struct metric read_meter(const struct meter *m)
{
    struct metric out = m->like;

    if (out.kind == METRIC_FIXED)
        return out;
    out.a = exact_sum_read(&m->a);
    if (out.kind != METRIC_TIMER)
        out.b = exact_sum_read(&m->b);
    return out;
}

static int metrics_by_name(const void *a, const void *b)
{
    return strcmp((*(struct named_meter *const *)a)->name, (*(struct named_meter *const *)b)->name);
}

static enum status report_shard(struct report *out, struct shard *s, struct error *err)
{
    for (size_t i = 0; i < N_DISTINCT; i++) {
        struct meter *inter = &s->standard[i == 0 ? INTER_1 : INTER_2];

        if (!inter->is_used)
            continue;
        inter->like = (struct metric){.kind = METRIC_AVERAGE};
        exact_sum_add(&inter->a, grams_num(s->grams[i].set.n));
        exact_sum_add(&inter->b, grams_den(s->grams[i].n_total));
    }
    for (size_t i = 0; i < N_STANDARD; i++) {
        struct metric m = read_meter(&s->standard[i]);

        if (s->standard[i].is_used &&
            report_add(out, (struct text){standard_names[i], strlen(standard_names[i])}, &m, err) !=
                STATUS_OK)
            return err->status;
    }
    if (s->n_named > 0)
        qsort(s->named, s->n_named, sizeof(struct named_meter *), metrics_by_name);
    for (size_t i = 0; i < s->n_named; i++) {
        const char *name = s->named[i]->name;
        struct metric m = read_meter(&s->named[i]->meter);

        if (s->named[i]->meter.is_used &&
            report_add(out, (struct text){name, strlen(name)}, &m, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}

enum status metrics_report(struct report *out, struct metrics *m, struct error *err)
{
    struct shard *whole = try_alloc(1, sizeof(*whole));
    struct report built = {0};
    enum status rc = STATUS_OK;

    if (whole == NULL)
        return error_no_memory(err, sizeof(*whole), "a report");
    for (size_t i = 0; i < m->n_shards && rc == STATUS_OK; i++) {
        shard_lock(&m->shards[i]);
        rc = merge_shard(whole, &m->shards[i], err);
        shard_unlock(&m->shards[i]);
    }
    if (rc == STATUS_OK)
        rc = report_shard(&built, whole, err);
    if (rc == STATUS_OK) {
        *out = built;
        built = (struct report){0};
    }
    report_deinit(&built);
    shard_clear(whole);
    free(whole->named);
    for (size_t i = 0; i < N_DISTINCT; i++)
        grams_deinit(&whole->grams[i]);
    free(whole);
    return rc;
}
