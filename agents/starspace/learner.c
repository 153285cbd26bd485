/* One step of learning. Let x be the text's vector, y0 the label's, and y1 … yk those of labels
 * that were seen before and are wrong here. The loss is
 *
 *     1 - cos(x, y0) + sum over j of max(0, cos(x, yj) - margin)
 *
 * All gradients are computed before the first word's vector changes. Each word of a text of n words
 * changes by 1/n of the text's gradient, as often as it occurs there. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/starspace/parts.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "base/counter_rng.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/write.h"

struct word_bag {
    int32_t *ids; /* [n] */
    size_t n;
};

struct starspace_learner {
    struct starspace *of;
    struct starspace_learn_config config;
    struct word_bag *cache; /* [cache_size], n_cached in use */
    size_t n_cached;
    const struct word_bag **labels; /* [1 + n_negatives]: the right one, then the wrong ones */
    float *vectors;                 /* [1 + n_negatives][n_dims], of the labels; then gradients */
    float *text, *gradient;         /* [n_dims] of the text */
    uint64_t n_drawn;
};

static enum status starspace_learn_check(const struct starspace_learn_config *c, struct error *err)
{
    enum { MOST = 1 << 20 };

    if (!(c->rate > 0) || !isfinite(c->rate))
        return error_field(err, "learning_rate", "is %g, it must be above 0", (double)c->rate);
    if (!(c->margin >= -1) || !(c->margin <= 1))
        return error_field(err, "margin", "is %g, it must be from -1 to 1", (double)c->margin);
    if (c->n_negatives == 0 || c->n_negatives > MOST)
        return error_field(err, "neg_samples", "is %zu, it must be from 1 to %d", c->n_negatives,
                           MOST);
    if (c->cache_size < 2 || c->cache_size > MOST)
        return error_field(err, "cache_size", "is %zu, it must be from 2 to %d", c->cache_size,
                           MOST);
    return STATUS_OK;
}

enum status starspace_learner_open(struct starspace_learner **out, struct starspace *s,
                                   const struct starspace_learn_config *config, struct error *err)
{
    const size_t n_labels = 1 + config->n_negatives, n_dims = s->spec.n_dims;
    struct starspace_learner *l;

    if (starspace_learn_check(config, err) != STATUS_OK)
        return err->status;
    l = xalloc(sizeof(*l));
    l->of = s;
    l->config = *config;
    l->cache = try_alloc(config->cache_size, sizeof(*l->cache));
    l->labels = try_alloc(n_labels, sizeof(struct word_bag *));
    l->vectors = try_alloc(n_labels, n_dims * sizeof(float));
    l->text = try_alloc(n_dims, sizeof(float));
    l->gradient = try_alloc(n_dims, sizeof(float));
    if (l->cache == NULL || l->labels == NULL || l->vectors == NULL || l->text == NULL ||
        l->gradient == NULL) {
        starspace_learner_close(l);
        return error_no_memory(err, n_labels * n_dims * sizeof(float), "a learner");
    }
    *out = l;
    return STATUS_OK;
}

void starspace_learner_close(struct starspace_learner *l)
{
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->n_cached; i++)
        free(l->cache[i].ids);
    free(l->cache);
    free(l->labels);
    free(l->vectors);
    free(l->text);
    free(l->gradient);
    free(l);
}

/* --- wrong labels ----------------------------------------------------------------------------- */

/* Uniform below n. */
static size_t starspace_learner_draw(struct starspace_learner *l, size_t n)
{
    const uint32_t key[2] = {(uint32_t)l->config.seed, (uint32_t)(l->config.seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)l->n_drawn, (uint32_t)(l->n_drawn >> 32),
                                 l->config.thread, UINT32_C(0x73746172)}; /* "star" */
    uint32_t bits[4];

    l->n_drawn++;
    philox4x32(counter, key, bits);
    return (size_t)((uint64_t)bits[0] * n >> 32);
}

static bool word_bag_is(const struct word_bag *a, const struct word_bag *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof(a->ids[0])) == 0;
}

/* The right label and up to n_negatives others from the cache, in 3 * n_negatives - 1 draws, as
 * ParlAI draws. Returns how many labels there are. */
static size_t starspace_learner_choose(struct starspace_learner *l, const struct word_bag *label)
{
    const size_t n_negatives = l->config.n_negatives;
    size_t n = 1;

    l->labels[0] = label;
    for (size_t i = 1; i < 3 * n_negatives && l->n_cached >= 2; i++) {
        const struct word_bag *one = &l->cache[starspace_learner_draw(l, l->n_cached)];

        if (word_bag_is(one, label))
            continue;
        l->labels[n++] = one;
        if (n > n_negatives)
            break;
    }
    return n;
}

static enum status starspace_learner_remember(struct starspace_learner *l,
                                              const struct word_bag *label, struct error *err)
{
    const bool is_full = l->n_cached == l->config.cache_size;
    int32_t *ids = try_alloc(label->n, sizeof(ids[0]));
    struct word_bag *to;

    if (ids == NULL)
        return error_no_memory(err, label->n * sizeof(ids[0]), "a label");
    memcpy(ids, label->ids, label->n * sizeof(ids[0]));
    to = &l->cache[is_full ? starspace_learner_draw(l, l->n_cached) : l->n_cached];
    free(to->ids);
    *to = (struct word_bag){.ids = ids, .n = label->n};
    l->n_cached += !is_full;
    return STATUS_OK;
}

/* --- the step --------------------------------------------------------------------------------- */

struct dot_products {
    float xy, xx, yy;
};

static struct dot_products dot_products_of(const float *x, const float *y, size_t n_dims)
{
    struct dot_products d = {0};

    for (size_t i = 0; i < n_dims; i++) {
        d.xy += x[i] * y[i];
        d.xx += x[i] * x[i];
        d.yy += y[i] * y[i];
    }
    return d;
}

/* Adds sign times the gradient of cos(x, y) by x to of_x, and writes that by y over y. */
static void cosine_gradient(const struct dot_products *d, const float *x, float *y, float *of_x,
                            size_t n_dims, float sign)
{
    const float norms = sqrtf(d->xx) * sqrtf(d->yy), cosine = d->xy / norms;

    for (size_t i = 0; i < n_dims; i++) {
        const float yi = y[i];

        of_x[i] += sign * (yi / norms - cosine * x[i] / d->xx);
        y[i] = sign * (x[i] / norms - cosine * yi / d->yy);
    }
}

static void starspace_learner_move(struct starspace_learner *l, const struct word_bag *bag,
                                   const float *gradient)
{
    const float rate = l->config.rate / (float)bag->n;
    const size_t n_dims = l->of->spec.n_dims;

    for (size_t k = 0; k < bag->n; k++) {
        float *v = starspace_vector(l->of, bag->ids[k]);

        if (bag->ids[k] == WORD_NULL)
            continue;
        for (size_t i = 0; i < n_dims; i++)
            shared_set(&v[i], shared_get(&v[i]) - rate * gradient[i]);
    }
}

static void starspace_learner_bound(struct starspace_learner *l, const struct word_bag *bag)
{
    for (size_t k = 0; k < bag->n; k++)
        starspace_bound(l->of, bag->ids[k]);
}

/* The gradients of the loss by the text and by each label that has one; labels without are set to
 * NULL. */
static void starspace_learner_differentiate(struct starspace_learner *l, size_t n_labels,
                                            struct starspace_lesson *out)
{
    const size_t n_dims = l->of->spec.n_dims;
    float right = 0;

    for (size_t j = 0; j < n_labels; j++) {
        float *y = l->vectors + j * n_dims;
        const struct dot_products d = dot_products_of(l->text, y, n_dims);
        const bool has_angle = d.xx > 0 && d.yy > 0;
        const float cosine = has_angle ? d.xy / (sqrtf(d.xx) * sqrtf(d.yy)) : 0;

        if (j == 0)
            right = cosine;
        else
            out->rank += cosine >= right;
        if (j == 0 || cosine > l->config.margin)
            out->loss += j == 0 ? 1 - (double)cosine : (double)cosine - (double)l->config.margin;
        if (has_angle && (j == 0 || cosine > l->config.margin))
            cosine_gradient(&d, l->text, y, l->gradient, n_dims, j == 0 ? -1.0F : 1.0F);
        else
            l->labels[j] = NULL;
    }
}

static void starspace_learner_step(struct starspace_learner *l, const struct word_bag *text,
                                   size_t n_labels, struct starspace_lesson *out)
{
    const size_t n_dims = l->of->spec.n_dims;

    memset(l->gradient, 0, n_dims * sizeof(float));
    starspace_embed(l->of, text->ids, text->n, l->text);
    for (size_t j = 0; j < n_labels; j++)
        starspace_embed(l->of, l->labels[j]->ids, l->labels[j]->n, l->vectors + j * n_dims);
    starspace_learner_differentiate(l, n_labels, out);
    starspace_learner_move(l, text, l->gradient);
    for (size_t j = 0; j < n_labels; j++)
        if (l->labels[j] != NULL)
            starspace_learner_move(l, l->labels[j], l->vectors + j * n_dims);
    starspace_learner_bound(l, text);
    for (size_t j = 0; j < n_labels; j++)
        if (l->labels[j] != NULL)
            starspace_learner_bound(l, l->labels[j]);
    atomic_fetch_add_explicit(&l->of->n_steps, 1, memory_order_relaxed);
}

enum status starspace_learn(struct starspace_learner *l, const int32_t *text, size_t n_text,
                            const int32_t *label, size_t n_label, struct starspace_lesson *out,
                            struct error *err)
{
    /* The bags borrow the caller's ids, which are only read. */
    const struct word_bag heard = {.ids = (int32_t *)(uintptr_t)text, .n = n_text},
                          said = {.ids = (int32_t *)(uintptr_t)label, .n = n_label};
    size_t n_labels;

    *out = (struct starspace_lesson){0};
    if (n_text == 0 || n_label == 0)
        return STATUS_OK;
    n_labels = starspace_learner_choose(l, &said);
    if (n_labels > 1) {
        starspace_learner_step(l, &heard, n_labels, out);
        out->has_learned = true;
    }
    return starspace_learner_remember(l, &said, err);
}

/* --- between two processes -------------------------------------------------------------------- */

static const char cache_key[] = "starspace.learner.cache", drawn_key[] = "starspace.learner.draws";

struct learner_state {
    const struct starspace_learner *learner;
    const char *text;
};

/* The cache is one array: of each label how many words it has, then their ids. */
static void learner_state_tell(const void *arg, struct gguf_writer *w)
{
    const struct learner_state *state = arg;
    const struct starspace_learner *l = state->learner;
    size_t n = l->n_cached;

    for (size_t i = 0; i < l->n_cached; i++)
        n += l->cache[i].n;
    gguf_write_text(w, "training.state", state->text);
    gguf_write_u64(w, drawn_key, l->n_drawn);
    gguf_write_ints(w, cache_key, n);
    for (size_t i = 0; i < l->n_cached; i++) {
        gguf_write_int(w, (int32_t)l->cache[i].n);
        for (size_t k = 0; k < l->cache[i].n; k++)
            gguf_write_int(w, l->cache[i].ids[k]);
    }
}

enum status starspace_learner_save(const struct starspace_learner *l, const char *state,
                                   const char *path, struct error *err)
{
    const struct learner_state all = {.learner = l, .text = state};

    return starspace_save_with(l->of, path, learner_state_tell, &all, err);
}

/* The label at *at, which moves behind it. */
static enum status starspace_learner_read_label(struct starspace_learner *l, const struct gguf *g,
                                                size_t n, size_t *at, struct error *err)
{
    const int64_t n_words = (int64_t)word_table_n(l->of->words);
    struct word_bag *to = &l->cache[l->n_cached];
    int64_t value = 0;

    if (gguf_array_i64(g, cache_key, *at, &value, err) != STATUS_OK)
        return err->status;
    if (value < 1 || (uint64_t)value > n - *at - 1 || l->n_cached == l->config.cache_size)
        return error_set(err, STATUS_DATA_LOSS, "%s: '%s' has no labels or too many", gguf_path(g),
                         cache_key);
    to->n = (size_t)value;
    to->ids = try_alloc(to->n, sizeof(to->ids[0]));
    if (to->ids == NULL)
        return error_no_memory(err, to->n * sizeof(to->ids[0]), "a label");
    l->n_cached++;
    for (size_t k = 0; k < to->n; k++) {
        if (gguf_array_i64(g, cache_key, *at + 1 + k, &value, err) != STATUS_OK)
            return err->status;
        if (value < 0 || value >= n_words)
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: '%s' has a word that is not in the vocabulary", gguf_path(g),
                             cache_key);
        to->ids[k] = (int32_t)value;
    }
    *at += 1 + to->n;
    return STATUS_OK;
}

enum status starspace_learner_restore(struct starspace_learner *l, const char *path,
                                      struct error *err)
{
    size_t n = 0, at = 0;
    struct gguf *g;
    enum status rc = gguf_open(&g, path, err);

    if (rc != STATUS_OK)
        return rc;
    assert(l->n_cached == 0);
    rc = gguf_get_u64(g, drawn_key, &l->n_drawn, err);
    if (rc == STATUS_OK)
        rc = gguf_array_len(g, cache_key, &n, err);
    while (rc == STATUS_OK && at < n)
        rc = starspace_learner_read_label(l, g, n, &at, err);
    gguf_close(g);
    return starspace_damaged(rc, err);
}
