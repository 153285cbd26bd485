#include "compute/model/layer_embeddings.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/model/state.h"

enum status layer_embeddings_open_weights(struct transformer *m, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; m->shape.embedding_width > 0 && i < N_LAYER_EMBEDDINGS && rc == STATUS_OK;
         i++) {
        const struct tensor *t;

        rc = transformer_layer_embedding_tensor(&t, m->file, &m->shape,
                                                (enum layer_embedding_part)i, err);
        if (rc == STATUS_OK)
            rc = m->backend->type->weight_open(m->backend, t, &m->embeddings.weights[i], err);
        m->weight_bytes += rc == STATUS_OK ? t->size_bytes : 0;
        if (rc == STATUS_OK && i == LAYER_EMBEDDING_TABLE)
            m->embeddings.n_rows = t->n_rows;
    }
    return rc;
}

void layer_embeddings_close_weights(struct transformer *m)
{
    for (size_t i = 0; i < N_LAYER_EMBEDDINGS; i++) {
        m->backend->type->weight_close(m->backend, m->embeddings.weights[i]);
        m->embeddings.weights[i] = NULL;
    }
}

enum status layer_embeddings_open_tables(struct transformer *m, struct error *err)
{
    const struct transformer_shape *s = &m->shape;
    struct layer_embeddings *e = &m->embeddings;
    size_t n = m->config.max_tokens, all = s->n_layers * s->embedding_width;
    const struct {
        struct buffer **out;
        size_t width;
    } rooms[] = {{&e->all, all},
                 {&e->projected, all},
                 {&e->own, s->embedding_width},
                 {&e->picked, s->embedding_width},
                 {&e->gate, s->embedding_width},
                 {&e->out, s->width}};

    e->ids = s->embedding_width > 0 ? try_alloc(n, sizeof(*e->ids)) : NULL;
    if (s->embedding_width > 0 && e->ids == NULL)
        return error_no_memory(err, n * sizeof(*e->ids), "the embeddings of layers");
    for (size_t i = 0; s->embedding_width > 0 && i < sizeof(rooms) / sizeof(rooms[0]); i++)
        if (state_open_buffer(m, rooms[i].out, n, rooms[i].width, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

void layer_embeddings_close_tables(struct transformer *m)
{
    struct layer_embeddings *e = &m->embeddings;
    struct buffer **all[] = {&e->all, &e->projected, &e->own, &e->picked, &e->gate, &e->out};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        m->backend->type->buffer_close(m->backend, *all[i]);
        *all[i] = NULL;
    }
    free(e->ids);
    e->ids = NULL;
}

void layer_embeddings_begin(struct transformer *m, size_t n, const struct buffer *x)
{
    const struct transformer_shape *s = &m->shape;
    const struct backend_type *op = m->backend->type;
    struct layer_embeddings *e = &m->embeddings;
    size_t width = s->embedding_width, all = s->n_layers * width;
    const struct input in = {.x = x};
    const struct product projection = {e->weights[LAYER_EMBEDDING_PROJECTION], e->projected};
    const struct input projected = {e->projected, e->weights[LAYER_EMBEDDING_NORM], s->norm_eps};

    if (width == 0)
        return;
    e->n = n;
    for (size_t i = 0; i < n; i++)
        e->ids[i] = (size_t)m->ids[i] < e->n_rows ? m->ids[i] : 0;
    op->embed(m->backend, e->weights[LAYER_EMBEDDING_TABLE], e->ids, n, e->all);
    op->scale(m->backend, sqrtf((float)width), 0.0f, n, all, e->all);
    op->matmul(m->backend, &in, n, &projection, 1);
    op->scale(m->backend, 1.0f / sqrtf((float)s->width), 0.0f, n, all, e->projected);
    op->norm(m->backend, &projected, n * s->n_layers, width, e->projected);
    op->add(m->backend, e->projected, 1.0f, n, all, e->all);
    op->scale(m->backend, sqrtf(0.5f), 0.0f, n, all, e->all);
}

const struct buffer *layer_embeddings_make(struct transformer *m, size_t layer,
                                           const uint32_t *picks, size_t n, const struct buffer *x)
{
    const struct transformer_shape *s = &m->shape;
    const struct backend_type *op = m->backend->type;
    struct layer_embeddings *e = &m->embeddings;
    struct weight *const *parts = m->layers[layer].parts;
    size_t width = s->embedding_width, all = s->n_layers * width;
    const struct input in = {.x = x}, gated = {.x = e->gate};
    const struct product gate = {parts[PART_EMBEDDING_GATE], e->gate};
    const struct product out = {parts[PART_EMBEDDING_OUT], e->out};
    const struct input normed = {e->out, parts[PART_EMBEDDING_NORM], s->norm_eps};

    if (width == 0)
        return NULL;
    op->copy_columns(m->backend, e->all, all, layer * width, picks != NULL ? e->n : n, width,
                     e->own, width, 0);
    if (picks != NULL)
        op->gather(m->backend, e->own, picks, n, width, e->picked);
    op->matmul(m->backend, &in, n, &gate, 1);
    op->activate(m->backend, ACTIVATION_GELU, picks != NULL ? e->picked : e->own, n, width,
                 e->gate);
    op->matmul(m->backend, &gated, n, &out, 1);
    op->norm(m->backend, &normed, n, s->width, e->out);
    return e->out;
}

void layer_embeddings_add(struct transformer *m, size_t layer, const uint32_t *picks, size_t n,
                          struct buffer *x)
{
    const struct buffer *own = layer_embeddings_make(m, layer, picks, n, x);

    if (own != NULL)
        m->backend->type->add(m->backend, own, 1.0f, n, m->shape.width, x);
}
