/* Runs an engine on the prompts and passages of a file, and compares ids and log-probabilities with
 * those of the file. The report counts what differs, and says how far apart the two are. */
#include "compute/model/golden.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/real.h"
#include "compute/kv/pages.h"
#include "compute/model/transformer.h"
#include "compute/numerics/scalar.h"

enum {
    N_REPLIES = 16,    /* generated at once */
    STEP_TOKENS = 128, /* of a prompt or passage in one call; also rows of logits */
    N_PAGES = 256,     /* 4,096 tokens: a passage, or what is generated at once */
};

struct golden {
    struct transformer *model;
    struct kv_pages *pages;
    float *logits; /* [STEP_TOKENS][n_vocab] */
    size_t n_vocab;
};

enum status golden_open(struct golden **out, struct backend *b, const struct gguf *g,
                        enum kv_type kv_type, struct error *err)
{
    struct transformer_config config = {.max_tokens = STEP_TOKENS,
                                        .max_logits = STEP_TOKENS,
                                        .n_kv_pages = N_PAGES,
                                        .kv_type = kv_type};
    struct golden *own = xalloc(sizeof(*own));
    enum status rc;

    if ((rc = transformer_open(&own->model, b, g, &config, err)) != STATUS_OK ||
        (rc = kv_pages_open(&own->pages, N_PAGES, err)) != STATUS_OK)
        goto out;
    own->n_vocab = transformer_shape(own->model)->n_vocab;
    own->logits = try_alloc(STEP_TOKENS, own->n_vocab * sizeof(*own->logits));
    if (own->logits == NULL) {
        rc = error_no_memory(err, STEP_TOKENS * own->n_vocab * sizeof(*own->logits), "logits");
        goto out;
    }
    *out = own;
    own = NULL; /* the caller's now */
out:
    golden_close(own);
    return rc;
}

void golden_close(struct golden *golden)
{
    if (golden == NULL)
        return;
    transformer_close(golden->model);
    kv_pages_close(golden->pages);
    free(golden->logits);
    free(golden);
}

/* A file of JSON objects, one a line. */
struct golden_lines {
    FILE *in;
    const char *path;
    size_t number; /* of the line read last, from 1 */
    char *text;
    size_t cap;
};

static enum status lines_open(struct golden_lines *l, const char *path, struct error *err)
{
    *l = (struct golden_lines){.in = fopen(path, "re"), .path = path};
    if (l->in == NULL)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNKNOWN, "%s: %s", path,
                         strerror(errno));
    return STATUS_OK;
}

static void lines_close(struct golden_lines *l)
{
    if (l->in != NULL)
        (void)fclose(l->in); /* only read from */
    free(l->text);
}

static enum status lines_wrong(const struct golden_lines *l, const char *what, struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS, "%s, line %zu: %s", l->path, l->number, what);
}

/* *out is NULL after the last line, else the caller's. */
static enum status lines_next(struct golden_lines *l, json_t **out, struct error *err)
{
    json_error_t why;
    json_t *line;
    ssize_t len = getline(&l->text, &l->cap, l->in);

    if (len < 0) {
        *out = NULL;
        return feof(l->in) ? STATUS_OK : lines_wrong(l, "cannot be read", err);
    }
    l->number++;
    line = json_loadb(l->text, (size_t)len, 0, &why);
    if (line == NULL)
        return lines_wrong(l, why.text, err);
    *out = line;
    return STATUS_OK;
}

struct golden_ids {
    int32_t *ids; /* [n] */
    size_t n;
};

static enum status read_ids(struct golden_ids *out, const struct golden_lines *l,
                            const json_t *line, const char *key, size_t n_vocab, struct error *err)
{
    const json_t *array = json_object_get(line, key);
    size_t n = json_array_size(array);
    int32_t *ids;

    if (n == 0)
        return lines_wrong(l, "a list of token ids is missing", err);
    ids = try_alloc(n, sizeof(*ids));
    if (ids == NULL)
        return error_no_memory(err, n * sizeof(*ids), "token ids");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(array, i);
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;

        if (value < 0 || (uint64_t)value >= n_vocab) {
            free(ids);
            return lines_wrong(l, "a token id is not in the model's vocabulary", err);
        }
        ids[i] = (int32_t)value;
    }
    *out = (struct golden_ids){ids, n};
    return STATUS_OK;
}

static size_t most_likely(const float *logits, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Runs a part of one sequence; the logits of its last n_logits tokens are in golden->logits. */
static enum status golden_run(struct golden *golden, struct kv_seq *seq, const int32_t *ids,
                              size_t n_tokens, size_t n_logits, struct error *err)
{
    struct transformer_row row = {.ids = ids,
                                  .n_tokens = n_tokens,
                                  .pos = seq->n_tokens,
                                  .n_logits = n_logits,
                                  .logits = golden->logits};
    struct kv_copy copy;
    enum status rc = kv_seq_reserve(golden->pages, seq, n_tokens, &copy, err);

    if (rc != STATUS_OK)
        return rc;
    assert(copy.from < 0); /* nothing is shared here */
    row.pages = seq->pages;
    rc = transformer_forward(golden->model, &row, 1, NULL, 0, err);
    if (rc == STATUS_OK)
        seq->n_tokens += (uint32_t)n_tokens;
    return rc;
}

static size_t step_of(size_t n_left)
{
    return n_left < STEP_TOKENS ? n_left : STEP_TOKENS;
}

static enum status golden_check_length(const struct golden *golden, const struct golden_lines *l,
                                       size_t n_tokens, struct error *err)
{
    return n_tokens <= transformer_shape(golden->model)->context
               ? STATUS_OK
               : lines_wrong(l, "it has more tokens than the model's context", err);
}

struct golden_reply {
    struct golden_ids prompt, known;
    size_t n_compared; /* ids of known before the first small margin */
    size_t n_equal;
    int32_t next; /* the id generated last */
    bool is_open;
    struct kv_seq seq;
};

static void reply_deinit(struct golden_reply *r, struct golden *golden)
{
    free(r->prompt.ids);
    free(r->known.ids);
    kv_seq_free(golden->pages, &r->seq);
}

/* top5[i] is five pairs [id, log-probability] of step i, the likeliest first. */
static enum status read_margins(struct golden_reply *r, const struct golden_lines *l,
                                const json_t *line, double margin, struct error *err)
{
    const json_t *steps = json_object_get(line, "top5");

    if (json_array_size(steps) != r->known.n)
        return lines_wrong(l, "top5 must have one entry for each token of the reply", err);
    for (r->n_compared = 0; r->n_compared < r->known.n; r->n_compared++) {
        const json_t *step = json_array_get(steps, r->n_compared);
        const json_t *first = json_array_get(json_array_get(step, 0), 1);
        const json_t *second = json_array_get(json_array_get(step, 1), 1);

        if (!json_is_number(first) || !json_is_number(second))
            return lines_wrong(l, "top5 must have two log-probabilities in each step", err);
        if (json_number_value(first) - json_number_value(second) < margin)
            break;
    }
    return STATUS_OK;
}

static enum status reply_read(struct golden_reply *r, const struct golden *golden,
                              const struct golden_lines *l, const json_t *line, double margin,
                              struct error *err)
{
    enum status rc;

    if ((rc = read_ids(&r->prompt, l, line, "prompt_ids", golden->n_vocab, err)) != STATUS_OK ||
        (rc = read_ids(&r->known, l, line, "reply_ids", golden->n_vocab, err)) != STATUS_OK ||
        (rc = golden_check_length(golden, l, r->prompt.n + r->known.n, err)) != STATUS_OK)
        return rc;
    return read_margins(r, l, line, margin, err);
}

/* Takes the id that the logits make most likely, and closes the reply when it differs from the
 * known one or nothing is left to compare. */
static void reply_take(struct golden_reply *r, const float *logits, size_t n_vocab)
{
    r->next = (int32_t)most_likely(logits, n_vocab);
    if (r->next == r->known.ids[r->n_equal])
        r->n_equal++;
    else
        r->is_open = false;
    if (r->n_equal == r->n_compared)
        r->is_open = false;
}

static enum status reply_prefill(struct golden_reply *r, struct golden *golden, struct error *err)
{
    enum status rc;

    r->is_open = r->n_compared > 0;
    if (!r->is_open)
        return STATUS_OK;
    for (size_t done = 0, step; done < r->prompt.n; done += step) {
        step = step_of(r->prompt.n - done);
        if ((rc = golden_run(golden, &r->seq, r->prompt.ids + done, step, 1, err)) != STATUS_OK)
            return rc;
    }
    reply_take(r, golden->logits, golden->n_vocab);
    return STATUS_OK;
}

/* One token of every open reply; *ret_open is their number. */
static enum status step_replies(struct golden *golden, struct golden_reply *replies, size_t n,
                                size_t *ret_open, struct error *err)
{
    struct transformer_row rows[N_REPLIES];
    struct golden_reply *open[N_REPLIES];
    struct kv_copy copy;
    size_t n_open = 0;
    enum status rc;

    for (size_t i = 0; i < n; i++) {
        struct golden_reply *r = &replies[i];

        if (!r->is_open)
            continue;
        if ((rc = kv_seq_reserve(golden->pages, &r->seq, 1, &copy, err)) != STATUS_OK)
            return rc;
        assert(copy.from < 0); /* nothing is shared here */
        rows[n_open] =
            (struct transformer_row){.ids = &r->next,
                                     .n_tokens = 1,
                                     .pos = r->seq.n_tokens,
                                     .pages = r->seq.pages,
                                     .n_logits = 1,
                                     .logits = golden->logits + n_open * golden->n_vocab};
        open[n_open++] = r;
    }
    *ret_open = n_open;
    if (n_open == 0)
        return STATUS_OK;
    rc = transformer_forward(golden->model, rows, n_open, NULL, 0, err);
    for (size_t i = 0; rc == STATUS_OK && i < n_open; i++) {
        open[i]->seq.n_tokens++;
        reply_take(open[i], rows[i].logits, golden->n_vocab);
    }
    return rc;
}

/* The next lines, as many as run at once; at the end of the file out->n does not change. */
static enum status compare_replies(struct golden_greedy *out, struct golden *golden,
                                   struct golden_lines *l, double margin, struct error *err)
{
    struct golden_reply replies[N_REPLIES] = {0};
    json_t *line = NULL;
    size_t n = 0, n_open = 1;
    enum status rc = STATUS_OK;

    while (n < N_REPLIES) {
        if ((rc = lines_next(l, &line, err)) != STATUS_OK || line == NULL)
            break;
        rc = reply_read(&replies[n++], golden, l, line, margin, err);
        json_decref(line);
        if (rc != STATUS_OK)
            break;
    }
    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        rc = reply_prefill(&replies[i], golden, err);
    while (rc == STATUS_OK && n_open > 0)
        rc = step_replies(golden, replies, n, &n_open, err);
    for (size_t i = 0; i < n; i++) {
        out->n++;
        out->equal += replies[i].n_equal == replies[i].n_compared;
        reply_deinit(&replies[i], golden);
    }
    return rc;
}

enum status golden_greedy(struct golden_greedy *out, struct golden *golden, const char *path,
                          double margin, struct error *err)
{
    struct golden_greedy sum = {0};
    struct golden_lines l;
    size_t n_before;
    enum status rc = lines_open(&l, path, err);

    if (rc != STATUS_OK)
        return rc;
    do {
        n_before = sum.n;
        rc = compare_replies(&sum, golden, &l, margin, err);
    } while (rc == STATUS_OK && sum.n > n_before);
    if (rc == STATUS_OK)
        *out = sum;
    lines_close(&l);
    return rc;
}

/* Sums over tokens, from which the means are computed at the end. */
struct golden_tally {
    size_t n_lines, n_tokens, n_top1;
    double sum_logprob, sum_known, sum_abs_diff, max_abs_diff;
};

/* ln(sum of e^logits) */
static double log_total(const float *logits, size_t n)
{
    const float max = logits[most_likely(logits, n)];
    double sum = 0.0;

    for (size_t i = 0; i < n; i++)
        sum += (double)scalar_exp(logits[i] - max);
    return (double)max + real_log(sum);
}

static void tally_token(struct golden_tally *t, const float *logits, size_t n_vocab, int32_t id,
                        double known_logprob, json_int_t known_top1)
{
    double logprob = (double)logits[id] - log_total(logits, n_vocab);
    double diff = fabs(logprob - known_logprob);

    t->n_tokens++;
    t->n_top1 += (json_int_t)most_likely(logits, n_vocab) == known_top1;
    t->sum_logprob += logprob;
    t->sum_known += known_logprob;
    t->sum_abs_diff += diff;
    /* in this form, so that a NaN becomes the maximum, too */
    t->max_abs_diff = diff <= t->max_abs_diff ? t->max_abs_diff : diff;
}

static enum status run_passage(struct golden_tally *t, struct golden *golden,
                               const struct golden_lines *l, const struct golden_ids *ids,
                               const json_t *line, struct error *err)
{
    const json_t *logprob = json_object_get(line, "logprob"), *top1 = json_object_get(line, "top1");
    struct kv_seq seq = {0};
    size_t n_predicted = ids->n - 1;
    enum status rc = STATUS_OK;

    if (json_array_size(logprob) != n_predicted || json_array_size(top1) != n_predicted)
        return lines_wrong(l, "logprob and top1 must have one entry for each predicted token", err);
    for (size_t done = 0, step; rc == STATUS_OK && done < n_predicted; done += step) {
        step = step_of(n_predicted - done);
        rc = golden_run(golden, &seq, ids->ids + done, step, step, err);
        for (size_t i = done; rc == STATUS_OK && i < done + step; i++) {
            const json_t *known = json_array_get(logprob, i), *id = json_array_get(top1, i);

            if (json_is_number(known) && json_is_integer(id))
                tally_token(t, golden->logits + (i - done) * golden->n_vocab, golden->n_vocab,
                            ids->ids[i + 1], json_number_value(known), json_integer_value(id));
            else
                rc = lines_wrong(l, "logprob and top1 must have only numbers", err);
        }
    }
    kv_seq_free(golden->pages, &seq);
    return rc;
}

static enum status compare_passage(struct golden_tally *t, struct golden *golden,
                                   const struct golden_lines *l, const json_t *line,
                                   struct error *err)
{
    struct golden_ids ids = {0};
    enum status rc = read_ids(&ids, l, line, "ids", golden->n_vocab, err);

    if (rc == STATUS_OK)
        rc = golden_check_length(golden, l, ids.n, err);
    if (rc == STATUS_OK)
        rc = run_passage(t, golden, l, &ids, line, err);
    free(ids.ids);
    t->n_lines++;
    return rc;
}

enum status golden_passages(struct golden_passages *out, struct golden *golden, const char *path,
                            struct error *err)
{
    struct golden_tally t = {0};
    struct golden_lines l;
    json_t *line = NULL;
    enum status rc = lines_open(&l, path, err);

    if (rc != STATUS_OK)
        return rc;
    while ((rc = lines_next(&l, &line, err)) == STATUS_OK && line != NULL) {
        rc = compare_passage(&t, golden, &l, line, err);
        json_decref(line);
        if (rc != STATUS_OK)
            break;
    }
    if (rc == STATUS_OK && t.n_tokens == 0)
        rc = lines_wrong(&l, "no passage has two tokens or more", err);
    if (rc == STATUS_OK) {
        double n = (double)t.n_tokens;

        *out = (struct golden_passages){.n = t.n_lines,
                                        .n_tokens = t.n_tokens,
                                        .top1 = (double)t.n_top1 / n,
                                        .ppl_ratio = real_exp((t.sum_known - t.sum_logprob) / n),
                                        .max_abs_logprob_diff = t.max_abs_diff,
                                        .mean_abs_logprob_diff = t.sum_abs_diff / n};
    }
    lines_close(&l);
    return rc;
}
