/* Latent attention, absorbed: W_k is applied to queries instead of keys, and W_v to outputs instead
 * of values. Both are a product for each head, between columns of wider rows. */
#include "compute/model/latent.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "compute/model/state.h"

bool latent_has_part(enum transformer_part part)
{
    return part == PART_LATENT_KEYS || part == PART_LATENT_VALUES;
}

/* Opens the rows that each head has of a part. */
static enum status open_heads(struct transformer *m, struct weight ***out, size_t layer,
                              enum transformer_part part, struct error *err)
{
    size_t n_heads = m->shape.n_heads;
    struct tensor all;
    enum status rc = transformer_layer_tensor(&all, m->file, &m->shape, layer, part, err);

    if (rc != STATUS_OK)
        return rc;
    *out = try_alloc(n_heads, sizeof(**out));
    if (*out == NULL)
        return error_no_memory(err, n_heads * sizeof(**out), "heads");
    for (size_t h = 0; h < n_heads && rc == STATUS_OK; h++) {
        size_t n = all.n_rows / n_heads;
        struct tensor t = tensor_rows(&all, h * n, n);

        rc = m->backend->type->weight_open(m->backend, &t, &(*out)[h], err);
        m->weight_bytes += rc == STATUS_OK ? t.size_bytes : 0;
    }
    return rc;
}

enum status latent_open_weights(struct transformer *m, struct model_latent *l, size_t layer,
                                struct error *err)
{
    enum status rc = open_heads(m, &l->keys, layer, PART_LATENT_KEYS, err);

    return rc == STATUS_OK ? open_heads(m, &l->values, layer, PART_LATENT_VALUES, err) : rc;
}

void latent_close_weights(struct transformer *m, struct model_latent *l)
{
    struct weight **all[] = {l->keys, l->values};

    for (size_t i = 0; i < 2; i++) {
        for (size_t h = 0; all[i] != NULL && h < m->shape.n_heads; h++)
            m->backend->type->weight_close(m->backend, all[i][h]);
        free(all[i]);
    }
    *l = (struct model_latent){0};
}

static size_t latent_larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

enum status latent_open_tables(struct transformer *m, struct error *err)
{
    const struct transformer_shape *s = &m->shape;
    struct latent_tables *t = &m->latent;
    size_t n = m->config.max_tokens;
    const struct {
        struct buffer **out;
        size_t width;
    } rooms[] = {
        {&t->down, latent_larger(s->query_rank, s->head_dim)},
        {&t->queries, s->n_heads * (s->plain_dim + s->n_rotated)},
        {&t->rotated, s->n_heads * s->n_rotated},
        {&t->latent, s->latent_rank},
        {&t->part, latent_larger(s->plain_dim, s->value_dim)},
        {&t->values, s->n_heads * s->value_dim},
    };

    for (size_t i = 0; s->latent_rank > 0 && i < sizeof(rooms) / sizeof(rooms[0]); i++)
        if (state_open_buffer(m, rooms[i].out, n, rooms[i].width, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

void latent_close_tables(struct transformer *m)
{
    struct latent_tables *t = &m->latent;
    struct buffer *all[] = {t->down, t->queries, t->rotated, t->latent, t->part, t->values};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        m->backend->type->buffer_close(m->backend, all[i]);
    *t = (struct latent_tables){0};
}

/* Rotates m->latent.rotated [n][n_heads][n_rotated]. */
static void latent_rotate(struct transformer *m, size_t n_heads, const uint32_t *positions,
                          size_t n)
{
    struct rope rope = m->ropes.all;

    rope.n_heads = n_heads;
    m->backend->type->rope(m->backend, &rope, positions, n, m->latent.rotated);
}

void latent_run_keys(struct transformer *m, size_t layer, const struct input *in,
                     const uint32_t *positions, size_t n)
{
    const struct transformer_shape *s = &m->shape;
    const struct backend_type *op = m->backend->type;
    struct latent_tables *t = &m->latent;
    struct weight *const *parts = m->layers[layer].parts;
    const struct product down = {parts[PART_LATENT], t->down};
    const struct input latent = {t->latent, parts[PART_LATENT_NORM], s->norm_eps};
    size_t rank = s->latent_rank, rotated = s->n_rotated, width = s->head_dim;

    op->matmul(m->backend, in, n, &down, 1);
    op->copy_columns(m->backend, t->down, width, 0, n, rank, t->latent, rank, 0);
    op->norm(m->backend, &latent, n, rank, t->latent);
    op->copy_columns(m->backend, t->latent, rank, 0, n, rank, m->k, width, 0);
    op->copy_columns(m->backend, t->down, width, rank, n, rotated, t->rotated, rotated, 0);
    latent_rotate(m, 1, positions, n);
    op->copy_columns(m->backend, t->rotated, rotated, 0, n, rotated, m->k, width, rank);
}

/* Makes m->latent.queries [n][n_heads][plain_dim + n_rotated]. */
static void latent_project(struct transformer *m, size_t layer, const struct input *in, size_t n)
{
    const struct backend_type *op = m->backend->type;
    struct latent_tables *t = &m->latent;
    struct weight *const *parts = m->layers[layer].parts;
    const struct product once = {parts[PART_Q], t->queries};
    const struct product down = {parts[PART_QUERY_DOWN], t->down};
    const struct product up = {parts[PART_QUERY_UP], t->queries};
    const struct input normed = {t->down, parts[PART_QUERY_DOWN_NORM], m->shape.norm_eps};

    if (m->shape.query_rank == 0) {
        op->matmul(m->backend, in, n, &once, 1);
        return;
    }
    op->matmul(m->backend, in, n, &down, 1);
    op->matmul(m->backend, &normed, n, &up, 1);
}

void latent_run_queries(struct transformer *m, size_t layer, const struct input *in,
                        const uint32_t *positions, size_t n)
{
    const struct transformer_shape *s = &m->shape;
    const struct backend_type *op = m->backend->type;
    struct latent_tables *t = &m->latent;
    size_t plain = s->plain_dim, rotated = s->n_rotated, rank = s->latent_rank;
    size_t n_heads = s->n_heads, head = plain + rotated;
    const struct input part = {.x = t->part};

    latent_project(m, layer, in, n);
    op->copy_columns(m->backend, t->queries, head, plain, n * n_heads, rotated, t->rotated, rotated,
                     0);
    latent_rotate(m, n_heads, positions, n);
    op->copy_columns(m->backend, t->rotated, rotated, 0, n * n_heads, rotated, m->q, s->head_dim,
                     rank);
    for (size_t h = 0; h < n_heads; h++) {
        const struct product key = {m->layers[layer].latent.keys[h], t->latent};

        op->copy_columns(m->backend, t->queries, n_heads * head, h * head, n, plain, t->part, plain,
                         0);
        op->matmul(m->backend, &part, n, &key, 1);
        op->copy_columns(m->backend, t->latent, rank, 0, n, rank, m->q, n_heads * s->head_dim,
                         h * s->head_dim);
    }
}

const struct buffer *latent_run_values(struct transformer *m, size_t layer, size_t n)
{
    const struct transformer_shape *s = &m->shape;
    const struct backend_type *op = m->backend->type;
    struct latent_tables *t = &m->latent;
    size_t rank = s->latent_rank, width = s->value_dim;
    const struct input latent = {.x = t->latent};

    for (size_t h = 0; h < s->n_heads; h++) {
        const struct product value = {m->layers[layer].latent.values[h], t->part};

        op->copy_columns(m->backend, m->attn_output, s->n_heads * s->head_dim, h * s->head_dim, n,
                         rank, t->latent, rank, 0);
        op->matmul(m->backend, &latent, n, &value, 1);
        op->copy_columns(m->backend, t->part, width, 0, n, width, t->values, s->n_heads * width,
                         h * width);
    }
    return t->values;
}
