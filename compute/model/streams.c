/* Rows are scored on the backend, and the scores fetched: the factors of streams are made of them
 * on the host, token by token, so that they do not depend on the batch. */
#include "compute/model/streams.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/model/layer_embeddings.h"
#include "compute/model/state.h"
#include "compute/numerics/scalar.h"

#define LEAST_SQUARE 1e-5 /* of a stream whose size is changed */

bool streams_have_part(enum transformer_part part)
{
    return part == PART_STREAM_PREDICT || part == PART_STREAM_CORRECT;
}

static enum status stream_open_weight(struct transformer *m, struct weight **out, size_t stream,
                                      bool is_back, struct error *err)
{
    struct tensor t;
    enum status rc = transformer_stream_tensor(&t, m->file, &m->shape, stream, is_back, err);

    if (rc == STATUS_OK)
        rc = m->backend->type->weight_open(m->backend, &t, out, err);
    m->weight_bytes += rc == STATUS_OK ? t.size_bytes : 0;
    return rc;
}

enum status streams_open_weights(struct transformer *m, struct error *err)
{
    for (size_t j = 1; j < m->shape.n_streams; j++)
        if (stream_open_weight(m, &m->streams.to[j], j, false, err) != STATUS_OK ||
            stream_open_weight(m, &m->streams.back[j], j, true, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

void streams_close_weights(struct transformer *m)
{
    for (size_t j = 0; j < SHAPE_MAX_STREAMS; j++) {
        m->backend->type->weight_close(m->backend, m->streams.to[j]);
        m->backend->type->weight_close(m->backend, m->streams.back[j]);
        m->streams.to[j] = m->streams.back[j] = NULL;
    }
}

enum status streams_open_layer(struct transformer *m, size_t layer, struct error *err)
{
    struct model_layer *l = &m->layers[layer];
    enum status rc =
        transformer_read_row(&l->predicts, m->file, &m->shape, layer, PART_STREAM_PREDICT, err);

    return rc == STATUS_OK ? transformer_read_row(&l->corrects, m->file, &m->shape, layer,
                                                  PART_STREAM_CORRECT, err)
                           : rc;
}

void streams_close_layer(struct transformer *m, size_t layer)
{
    free(m->layers[layer].predicts);
    free(m->layers[layer].corrects);
    m->layers[layer].predicts = m->layers[layer].corrects = NULL;
}

enum status streams_open_tables(struct transformer *m, struct error *err)
{
    const size_t n = m->config.max_tokens, width = m->shape.width, n_streams = m->shape.n_streams;
    struct stream_tables *t = &m->streams;

    if (n_streams == 0)
        return STATUS_OK;
    for (size_t j = 0; j < n_streams; j++)
        if (state_open_buffer(m, &t->x[j], n, width, err) != STATUS_OK ||
            state_open_buffer(m, &t->predicted[j], n, width, err) != STATUS_OK)
            return err->status;
    if (state_open_buffer(m, &t->made, n, width, err) != STATUS_OK ||
        state_open_buffer(m, &t->other, n, width, err) != STATUS_OK ||
        state_open_buffer(m, &t->low, n, m->shape.laurel_rank, err) != STATUS_OK ||
        state_open_buffer(m, &t->scores, n, n_streams, err) != STATUS_OK)
        return err->status;
    t->host_scores = try_alloc(n, n_streams * sizeof(*t->host_scores));
    t->host_x = try_alloc(n, width * sizeof(*t->host_x));
    t->sizes = try_alloc(n, sizeof(*t->sizes));
    t->factors = try_alloc(n, n_streams * n_streams * sizeof(*t->factors));
    t->zeros = try_alloc(n, sizeof(*t->zeros)); /* which it fills with 0 */
    return t->host_scores != NULL && t->host_x != NULL && t->sizes != NULL && t->factors != NULL &&
                   t->zeros != NULL
               ? STATUS_OK
               : error_no_memory(err, n * width * sizeof(*t->host_x), "the streams of a step");
}

void streams_close_tables(struct transformer *m)
{
    const struct backend_type *op = m->backend->type;
    struct stream_tables *t = &m->streams;

    for (size_t j = 0; j < SHAPE_MAX_STREAMS; j++) {
        op->buffer_close(m->backend, t->x[j]);
        op->buffer_close(m->backend, t->predicted[j]);
        t->x[j] = t->predicted[j] = NULL;
    }
    op->buffer_close(m->backend, t->made);
    op->buffer_close(m->backend, t->other);
    op->buffer_close(m->backend, t->low);
    op->buffer_close(m->backend, t->scores);
    free(t->host_scores);
    free(t->host_x);
    free(t->sizes);
    free(t->factors);
    free(t->zeros);
    t->made = t->other = t->low = t->scores = NULL;
    t->host_scores = t->host_x = t->sizes = t->factors = NULL;
    t->zeros = NULL;
}

static void stream_copy(struct transformer *m, const struct buffer *from, size_t n,
                        struct buffer *to)
{
    const size_t width = m->shape.width;

    m->backend->type->copy_columns(m->backend, from, width, 0, n, width, to, width, 0);
}

/* to += from * factors [n], row by row. */
static void add_scaled(struct transformer *m, const struct buffer *from, const float *factors,
                       size_t n, struct buffer *to)
{
    const struct backend_type *op = m->backend->type;

    stream_copy(m, from, n, m->streams.other);
    op->scale_rows(m->backend, factors, n, m->shape.width, m->streams.other);
    op->add(m->backend, m->streams.other, 1.0f, n, m->shape.width, to);
}

/* --- sizes --- */

/* The mean square of each row, at least `least`; waits for the rows. */
static enum status fetch_sizes(struct transformer *m, const struct buffer *x, size_t n,
                               double least, float *out, struct error *err)
{
    const size_t width = m->shape.width;
    const float *row = m->streams.host_x;
    enum status rc;

    m->backend->type->download(m->backend, m->streams.host_x, x, n * width * sizeof(*row));
    rc = m->backend->type->sync(m->backend, err);
    for (size_t i = 0; i < n && rc == STATUS_OK; i++, row += width) {
        double sum = 0;

        for (size_t c = 0; c < width; c++)
            sum += (double)row[c] * (double)row[c];
        out[i] = (float)sqrt(fmax(sum / (double)width, least));
    }
    return rc;
}

/* Gives x the sizes of the residual stream. */
static enum status match_sizes(struct transformer *m, size_t n, struct buffer *x, struct error *err)
{
    struct stream_tables *t = &m->streams;
    enum status rc = fetch_sizes(m, x, n, LEAST_SQUARE, t->factors, err);

    for (size_t i = 0; i < n && rc == STATUS_OK; i++)
        t->factors[i] = t->sizes[i] / t->factors[i];
    if (rc == STATUS_OK)
        m->backend->type->scale_rows(m->backend, t->factors, n, m->shape.width, x);
    return rc == STATUS_OK ? m->backend->type->sync(m->backend, err) : rc; /* factors are free */
}

enum status streams_begin(struct transformer *m, size_t n, struct error *err)
{
    struct stream_tables *t = &m->streams;
    const struct input in = {.x = m->x};
    enum status rc = fetch_sizes(m, m->x, n, 0, t->sizes, err);

    stream_copy(m, m->x, n, t->x[0]);
    for (size_t j = 1; j < m->shape.n_streams && rc == STATUS_OK; j++) {
        const struct product to = {t->to[j], t->x[j]};

        m->backend->type->matmul(m->backend, &in, n, &to, 1);
        rc = match_sizes(m, n, t->x[j], err);
    }
    return rc;
}

enum status streams_end(struct transformer *m, size_t n, struct error *err)
{
    const struct backend_type *op = m->backend->type;
    struct stream_tables *t = &m->streams;
    enum status rc = fetch_sizes(m, t->x[0], n, 0, t->sizes, err);

    stream_copy(m, t->x[0], n, m->x);
    for (size_t j = 1; j < m->shape.n_streams && rc == STATUS_OK; j++) {
        const struct input in = {.x = t->x[j]};
        const struct product back = {t->back[j], t->made};

        op->matmul(m->backend, &in, n, &back, 1);
        rc = match_sizes(m, n, t->made, err);
        op->add(m->backend, t->made, 1.0f, n, m->shape.width, m->x);
    }
    op->scale(m->backend, 1.0f / (float)m->shape.n_streams, 0.0f, n, m->shape.width, m->x);
    return rc;
}

/* --- scores --- */

/* Scores the rows of x, one for each stream, and waits for them. */
static enum status fetch_scores(struct transformer *m, size_t layer, const struct buffer *x,
                                size_t n, struct error *err)
{
    const struct backend_type *op = m->backend->type;
    struct stream_tables *t = &m->streams;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input in = {x, parts[PART_STREAM_ROUTER_NORM], m->shape.norm_eps};
    const struct input normed = {.x = t->made};
    const struct product scores = {parts[PART_STREAM_ROUTER], t->scores};
    const size_t n_scores = n * m->shape.n_streams;
    enum status rc;

    op->norm(m->backend, &in, n, m->shape.width, t->made);
    op->matmul(m->backend, &normed, n, &scores, 1);
    op->download(m->backend, t->host_scores, t->scores, n_scores * sizeof(*t->host_scores));
    rc = op->sync(m->backend, err);
    for (size_t i = 0; i < n_scores && rc == STATUS_OK; i++)
        t->host_scores[i] = scalar_cap_tanh(t->host_scores[i] / (float)m->shape.width);
    return rc;
}

/* factors [n_rows][n] = always + the rows' products with each token's scores. */
static void make_factors(struct transformer *m, const float *rows, size_t n_rows, float always,
                         size_t n)
{
    const size_t n_streams = m->shape.n_streams;

    for (size_t r = 0; r < n_rows; r++, rows += n_streams)
        for (size_t i = 0; i < n; i++) {
            const float *scores = m->streams.host_scores + i * n_streams;
            float sum = always;

            for (size_t k = 0; k < n_streams; k++)
                sum += rows[k] * scores[k];
            m->streams.factors[r * n + i] = sum;
        }
}

enum status streams_predict(struct transformer *m, size_t layer, size_t n, struct error *err)
{
    const size_t n_streams = m->shape.n_streams;
    struct stream_tables *t = &m->streams;
    enum status rc = fetch_scores(m, layer, t->x[0], n, err);

    if (rc != STATUS_OK)
        return rc;
    make_factors(m, m->layers[layer].predicts, n_streams * n_streams, 0.0f, n);
    for (size_t j = 0; j < n_streams; j++) {
        stream_copy(m, t->x[j], n, t->predicted[j]);
        for (size_t i = 0; i < n_streams; i++)
            add_scaled(m, t->x[i], t->factors + (j * n_streams + i) * n, n, t->predicted[j]);
    }
    stream_copy(m, t->predicted[0], n, m->x);
    return STATUS_OK;
}

void streams_add_laurel(struct transformer *m, size_t layer, size_t n)
{
    const struct backend_type *op = m->backend->type;
    struct stream_tables *t = &m->streams;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input in = {t->predicted[0], parts[PART_ATTN_NORM], m->shape.norm_eps};
    const struct input normed = {.x = t->made}, low = {.x = t->low};
    const struct product left = {parts[PART_LAUREL_LEFT], t->low};
    const struct product right = {parts[PART_LAUREL_RIGHT], t->other};
    const struct input made = {t->other, parts[PART_LAUREL_NORM], m->shape.norm_eps};
    const size_t width = m->shape.width;

    op->norm(m->backend, &in, n, width, t->made);
    op->matmul(m->backend, &normed, n, &left, 1);
    op->matmul(m->backend, &low, n, &right, 1);
    op->norm(m->backend, &made, n, width, t->other);
    op->add(m->backend, t->made, 1.0f, n, width, m->x);
    op->add(m->backend, t->other, 1.0f, n, width, m->x);
    op->scale(m->backend, sqrtf(0.5f), 0.0f, n, width, m->x);
}

enum status streams_correct(struct transformer *m, size_t layer, size_t n, struct error *err)
{
    const struct backend_type *op = m->backend->type;
    const size_t n_streams = m->shape.n_streams, width = m->shape.width;
    struct stream_tables *t = &m->streams;
    const struct buffer *own;
    enum status rc = fetch_scores(m, layer, m->x, n, err);

    if (rc != STATUS_OK)
        return rc;
    make_factors(m, m->layers[layer].corrects, n_streams, 1.0f, n);
    op->add(m->backend, t->predicted[0], -1.0f, n, width, m->x);
    for (size_t j = 0; j < n_streams; j++) {
        stream_copy(m, t->predicted[j], n, t->x[j]);
        add_scaled(m, m->x, t->factors + j * n, n, t->x[j]);
    }
    stream_copy(m, t->x[0], n, t->made);
    op->embed(m->backend, m->layers[layer].parts[PART_STREAM_SCALE], t->zeros, n, t->other);
    op->activate(m->backend, ACTIVATION_PRODUCT, t->other, n, width, t->made);
    own = layer_embeddings_make(m, layer, NULL, n, t->made);
    for (size_t j = 1; j < n_streams; j++)
        op->add(m->backend, own, 1.0f, n, width, t->x[j]);
    return STATUS_OK;
}
