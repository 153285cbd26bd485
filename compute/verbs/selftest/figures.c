/* The speed of a model on a backend: tokens a second by number of conversations, relative to the
 * bound of reading the weights; and of a prompt, relative to the vendor's own matrix products. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "compute/model/read_shape.h"
#include "compute/model/tensors.h"
#include "compute/model/transformer.h"
#include "compute/verbs/selftest/selftest.h"

enum { PROMPT = 512, MOST_ROWS = 256, LEAST_ROUNDS = 3 };

/* A model with pages for so many rows of one context. */
struct race {
    const struct selftest *test;
    struct backend *b;
    struct transformer *model;
    size_t n_rows, context, n_pages; /* n_pages: of a row */
    size_t n_vocab;
    int32_t *pages; /* [n_rows][n_pages] */
    int32_t ids[PROMPT];
    struct transformer_row *rows; /* [n_rows] */
    struct kv_copy *copies;       /* [n_rows * n_pages] */
    struct draw *draws;           /* [n_rows] */
    struct drawn *drawn;          /* [n_rows] */
    float *logits;                /* [n_rows][n_vocab] */
};

static void race_close(struct race *r)
{
    transformer_close(r->model);
    free(r->pages);
    free(r->rows);
    free(r->copies);
    free(r->draws);
    free(r->drawn);
    free(r->logits);
    *r = (struct race){0};
}

static enum status race_open(struct race *r, const struct selftest *s, struct backend *b,
                             const struct gguf *model, size_t n_rows, size_t context,
                             struct error *err)
{
    const size_t n_pages = context / KV_PAGE_TOKENS + 1;
    const struct transformer_config config = {.max_tokens = PROMPT > n_rows ? PROMPT : n_rows,
                                              .max_logits = n_rows,
                                              .n_kv_pages =
                                                  n_rows * n_pages + PROMPT / KV_PAGE_TOKENS,
                                              .kv_type = KV_F16};
    enum status rc;

    *r = (struct race){.test = s, .b = b, .n_rows = n_rows, .context = context, .n_pages = n_pages};
    rc = transformer_open(&r->model, b, model, &config, err);
    if (rc != STATUS_OK)
        return rc;
    r->n_vocab = transformer_shape(r->model)->n_vocab;
    r->pages = try_alloc(n_rows * n_pages, sizeof(*r->pages));
    r->rows = try_alloc(n_rows, sizeof(*r->rows));
    r->copies = try_alloc(n_rows * n_pages, sizeof(*r->copies));
    r->draws = try_alloc(n_rows, sizeof(*r->draws));
    r->drawn = try_alloc(n_rows, sizeof(*r->drawn));
    r->logits = try_alloc(n_rows, r->n_vocab * sizeof(*r->logits));
    if (r->pages == NULL || r->rows == NULL || r->copies == NULL || r->draws == NULL ||
        r->drawn == NULL || r->logits == NULL)
        rc = error_no_memory(err, n_rows * r->n_vocab * sizeof(*r->logits), "logits");
    for (size_t i = 0; rc == STATUS_OK && i < n_rows * n_pages; i++)
        r->pages[i] = (int32_t)i;
    for (size_t i = 0; i < PROMPT; i++)
        r->ids[i] = (int32_t)(i * 37 % r->n_vocab);
    if (rc != STATUS_OK)
        race_close(r);
    return rc;
}

/* The first row's context, and a copy of its pages for all others. */
static enum status fill_contexts(struct race *r, struct error *err)
{
    size_t n_copies = 0;
    enum status rc = STATUS_OK;

    for (size_t pos = 0; rc == STATUS_OK && pos < r->context; pos += PROMPT) {
        const size_t left = r->context - pos;
        const struct transformer_row row = {.ids = r->ids,
                                            .n_tokens = left < PROMPT ? left : PROMPT,
                                            .pos = pos,
                                            .pages = r->pages};

        rc = transformer_forward(r->model, &row, 1, NULL, 0, err);
    }
    for (size_t i = 1; i < r->n_rows; i++)
        for (size_t k = 0; k < r->n_pages; k++)
            r->copies[n_copies++] =
                (struct kv_copy){.from = r->pages[k], .to = r->pages[i * r->n_pages + k]};
    for (size_t i = 0; i < r->n_rows; i++) {
        r->draws[i] = (struct draw){.top_p = 1.0f}; /* greedy */
        r->rows[i] =
            (struct transformer_row){.ids = r->ids,
                                     .n_tokens = 1,
                                     .pos = r->context,
                                     .pages = r->pages + i * r->n_pages,
                                     .n_logits = 1,
                                     .logits = r->logits + i * r->n_vocab,
                                     .draws = transformer_can_draw(r->model) ? &r->draws[i] : NULL,
                                     .drawn = &r->drawn[i]};
    }
    if (rc == STATUS_OK)
        rc = transformer_forward(r->model, r->rows, 1, r->copies, n_copies, err);
    return rc;
}

/* Seconds of a call of n rows. */
static enum status time_rows(struct race *r, const struct transformer_row *rows, size_t n,
                             double *ret_seconds, struct error *err)
{
    double begin = 0.0, spent = 0.0;
    size_t n_rounds = 0;
    enum status rc = transformer_forward(r->model, rows, n, NULL, 0, err); /* warm-up */

    begin = clock_s();
    while (rc == STATUS_OK && (n_rounds < LEAST_ROUNDS || spent < r->test->seconds)) {
        rc = transformer_forward(r->model, rows, n, NULL, 0, err);
        spent = clock_s() - begin;
        n_rounds++;
    }
    *ret_seconds = spent / (double)(n_rounds > 0 ? n_rounds : 1);
    return rc;
}

/* Bytes a second that a copy from one buffer to another reads and writes. */
static enum status time_copy(struct race *r, double *ret_bytes_s, struct error *err)
{
    enum { N = 64, WIDTH = 1 << 18 };
    const size_t n_bytes = (size_t)N * WIDTH * sizeof(float);
    const struct backend_type *op = r->b->type;
    struct buffer *from = op->buffer_open(r->b, n_bytes), *to = op->buffer_open(r->b, n_bytes);
    double begin, spent = 0.0;
    uint32_t rows[N];
    size_t n_rounds = 0;
    enum status rc =
        from != NULL && to != NULL ? STATUS_OK : error_no_memory(err, 2 * n_bytes, "a copy");

    for (uint32_t i = 0; i < N; i++)
        rows[i] = i;
    if (rc == STATUS_OK) {
        op->gather(r->b, from, rows, N, WIDTH, to);
        rc = op->sync(r->b, err);
    }
    begin = clock_s();
    while (rc == STATUS_OK && (n_rounds < LEAST_ROUNDS || spent < r->test->seconds)) {
        for (int i = 0; i < 4; i++)
            op->gather(r->b, from, rows, N, WIDTH, to);
        rc = op->sync(r->b, err);
        spent = clock_s() - begin;
        n_rounds++;
    }
    *ret_bytes_s = 2.0 * 4.0 * (double)n_rounds * (double)n_bytes / spent;
    op->buffer_close(r->b, from);
    op->buffer_close(r->b, to);
    return rc;
}

/* Seconds of the vendor's products of a prompt on the shapes of all layers; 0: there are none. */
static enum status time_vendor(struct race *r, const struct gguf *model, double *ret_seconds,
                               struct error *err)
{
    const struct transformer_shape *shape = transformer_shape(r->model);
    const struct backend_type *op = r->b->type;
    double begin, spent = 0.0;
    size_t n_rounds = 0;
    enum status rc = STATUS_OK;

    *ret_seconds = 0.0;
    if (op->vendor_matmul == NULL)
        return STATUS_OK;
    begin = clock_s();
    while (rc == STATUS_OK && (n_rounds < 1 + LEAST_ROUNDS || spent < r->test->seconds)) {
        for (size_t layer = 0; layer < shape->n_layers; layer++)
            for (int part = 0; part < N_PARTS && rc == STATUS_OK; part++) {
                struct tensor t;

                rc = transformer_layer_tensor(&t, model, shape, layer, (enum transformer_part)part,
                                              err);
                if (rc == STATUS_OK && t.n_rows > 1 &&
                    !op->vendor_matmul(r->b, PROMPT, t.n_rows, t.n_cols))
                    return op->sync(r->b, err);
            }
        if (rc == STATUS_OK)
            rc = op->sync(r->b, err);
        if (n_rounds++ == 0)
            begin = clock_s(); /* the first call allocates memory */
        spent = clock_s() - begin;
    }
    *ret_seconds = n_rounds > 1 ? spent / (double)(n_rounds - 1) : 0.0;
    return rc;
}

static enum status time_prompt(struct race *r, double *ret_seconds, struct error *err)
{
    int32_t pages[PROMPT / KV_PAGE_TOKENS];
    const struct transformer_row row = {.ids = r->ids, .n_tokens = PROMPT, .pages = pages};

    for (size_t i = 0; i < PROMPT / KV_PAGE_TOKENS; i++)
        pages[i] = (int32_t)(r->n_rows * r->n_pages + i);
    return time_rows(r, &row, 1, ret_seconds, err);
}

/* The same under fast math, where supported: shows the cost of batch invariance. */
static enum status race_fast_prompt(const struct race *r, const struct gguf *model, double seconds,
                                    struct error *err)
{
    const struct backend_config config = {.fast_math = true};
    struct backend *b = NULL;
    double fast_seconds;
    struct race fast;
    enum status rc = backend_open_type(&b, r->b->type, &config, err);

    if (rc != STATUS_OK)
        return rc;
    rc = race_open(&fast, r->test, b, model, 1, r->context, err);
    if (rc == STATUS_EXHAUSTED) {
        selftest_left_out(r->test, "fast math", "a second model finds no memory");
        rc = STATUS_OK;
    } else if (rc == STATUS_OK) {
        rc = time_prompt(&fast, &fast_seconds, err);
        race_close(&fast);
        if (rc == STATUS_OK)
            selftest_figure(r->test, "prompt, fast math", 0, PROMPT / fast_seconds, "tokens/s",
                            fast_seconds / seconds, "without_it");
    }
    backend_close(b);
    return rc;
}

static enum status race_prompt(struct race *r, const struct gguf *model, struct error *err)
{
    double seconds, vendor;
    enum status rc;

    if ((rc = time_prompt(r, &seconds, err)) != STATUS_OK ||
        (rc = time_vendor(r, model, &vendor, err)) != STATUS_OK)
        return rc;
    selftest_figure(r->test, "prompt", 0, PROMPT / seconds, "tokens/s",
                    vendor > 0.0 ? vendor / seconds : -1.0, "of_the_vendors_rate");
    return vendor > 0.0 && r->b->type->has_fast_math ? race_fast_prompt(r, model, seconds, err)
                                                     : STATUS_OK;
}

static enum status race_replies(struct race *r, double copy_bytes_s, struct error *err)
{
    static const uint32_t batches[] = {1, 8, 64, MOST_ROWS};
    const double page_bytes = (double)transformer_page_bytes(r->model);
    const double least_bytes = (double)transformer_weight_bytes(r->model) +
                               page_bytes * (double)r->context / KV_PAGE_TOKENS;
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < sizeof(batches) / sizeof(batches[0]); i++) {
        double seconds;

        if (batches[i] > r->n_rows) {
            selftest_left_out(r->test, "figures", "a larger batch finds no memory");
            break;
        }
        rc = time_rows(r, r->rows, batches[i], &seconds, err);
        if (rc == STATUS_OK)
            selftest_figure(r->test, "reply", batches[i], batches[i] / seconds, "tokens/s",
                            batches[i] == 1 ? least_bytes / seconds / copy_bytes_s : -1.0,
                            "of_the_roof");
    }
    return rc;
}

enum status selftest_figures(struct selftest *s, struct backend *b, const struct gguf *model,
                             struct error *err)
{
    const bool is_device = backend_is_device(b);
    size_t context = s->context != 0 ? s->context : is_device ? 512 : 64, n_rows = MOST_ROWS;
    struct transformer_shape shape;
    struct race r;
    double copy_bytes_s;
    enum status rc = transformer_read_shape(&shape, model, err);

    if (rc != STATUS_OK)
        return rc;
    if (context + 1 > shape.context)
        context = shape.context - 1;
    /* as many conversations as memory permits */
    while ((rc = race_open(&r, s, b, model, n_rows, context, err)) == STATUS_EXHAUSTED &&
           n_rows > 1)
        n_rows = n_rows > 8 ? n_rows / 4 : 1;
    if (rc != STATUS_OK)
        return rc;
    if ((rc = fill_contexts(&r, err)) == STATUS_OK &&
        (rc = time_copy(&r, &copy_bytes_s, err)) == STATUS_OK) {
        selftest_figure(s, "copy", 0, copy_bytes_s / 1e9, "GB/s", -1.0, "");
        rc = race_replies(&r, copy_bytes_s, err);
    }
    if (rc == STATUS_OK && shape.context >= PROMPT)
        rc = race_prompt(&r, model, err);
    race_close(&r);
    return rc;
}
