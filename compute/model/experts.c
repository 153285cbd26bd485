#include "compute/model/experts.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/model/arch/arch.h"
#include "compute/model/state.h"
#include "compute/numerics/scalar.h"

static enum status experts_open_weight(struct transformer *m, const struct weight **out,
                                       const struct tensor *t, struct error *err)
{
    struct weight *w = NULL;
    enum status rc = m->backend->type->weight_open(m->backend, t, &w, err);

    if (rc == STATUS_OK)
        m->weight_bytes += t->size_bytes;
    *out = w;
    return rc;
}

/* Opens the network of one expert: the rows that it has of the layer's tensors. */
static enum status open_expert(struct transformer *m, struct ffn *f, const struct tensor all[3],
                               size_t expert, struct error *err)
{
    const struct weight **weights[] = {&f->gate, &f->up, &f->down};
    enum status rc = STATUS_OK;

    f->activation = m->shape.arch->activation;
    f->stores = true;
    for (size_t i = 0; i < 3 && rc == STATUS_OK; i++) {
        size_t n = all[i].n_rows / m->shape.n_experts;
        struct tensor t = tensor_rows(&all[i], expert * n, n);

        rc = experts_open_weight(m, weights[i], &t, err);
    }
    return rc;
}

enum status experts_open_weights(struct transformer *m, struct model_experts *e, size_t layer,
                                 struct error *err)
{
    static const enum transformer_part parts[] = {PART_GATE_EXPERTS, PART_UP_EXPERTS,
                                                  PART_DOWN_EXPERTS};
    size_t n = m->shape.n_experts;
    struct tensor all[3];
    enum status rc = STATUS_OK;

    e->ffns = try_alloc(n, sizeof(*e->ffns));
    if (e->ffns == NULL)
        return error_no_memory(err, n * sizeof(*e->ffns), "experts");
    for (size_t i = 0; i < 3 && rc == STATUS_OK; i++)
        rc = transformer_layer_tensor(&all[i], m->file, &m->shape, layer, parts[i], err);
    for (size_t i = 0; i < n && rc == STATUS_OK; i++)
        rc = open_expert(m, &e->ffns[i], all, i, err);
    return rc;
}

void experts_close_weights(struct transformer *m, struct model_experts *e)
{
    const struct backend_type *op = m->backend->type;

    for (size_t i = 0; e->ffns != NULL && i < m->shape.n_experts; i++) {
        op->weight_close(m->backend, (struct weight *)e->ffns[i].gate);
        op->weight_close(m->backend, (struct weight *)e->ffns[i].up);
        op->weight_close(m->backend, (struct weight *)e->ffns[i].down);
    }
    free(e->ffns);
    e->ffns = NULL;
}

static bool open_room(struct transformer *m, struct buffer **out, size_t width)
{
    *out = m->backend->type->buffer_open(m->backend, m->config.max_tokens * width * sizeof(float));
    return *out != NULL;
}

enum status experts_open_tables(struct transformer *m, struct error *err)
{
    const struct transformer_shape *s = &m->shape;
    struct expert_tables *t = &m->experts;
    size_t n = m->config.max_tokens, n_chosen = n * s->n_experts_used;

    if (s->n_experts == 0)
        return STATUS_OK;
    t->host_scores = try_alloc(n, s->n_experts * sizeof(*t->host_scores));
    t->chosen = try_alloc(n_chosen, sizeof(*t->chosen));
    t->shares = try_alloc(n_chosen, sizeof(*t->shares));
    t->first = try_alloc(s->n_experts + 1, sizeof(*t->first));
    t->rows = try_alloc(n_chosen, sizeof(*t->rows));
    t->factors = try_alloc(n_chosen, sizeof(*t->factors));
    if (t->host_scores == NULL || t->chosen == NULL || t->shares == NULL || t->first == NULL ||
        t->rows == NULL || t->factors == NULL || !open_room(m, &t->normed, s->width) ||
        !open_room(m, &t->gathered, s->width) || !open_room(m, &t->output, s->width) ||
        !open_room(m, &t->scores, s->n_experts))
        return error_no_memory(err, 3 * n * s->width * sizeof(float), "the experts of a step");
    return STATUS_OK;
}

void experts_close_tables(struct transformer *m)
{
    struct expert_tables *t = &m->experts;
    struct buffer *buffers[] = {t->normed, t->gathered, t->output, t->scores};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
        m->backend->type->buffer_close(m->backend, buffers[i]);
    free(t->host_scores);
    free(t->chosen);
    free(t->shares);
    free(t->first);
    free(t->rows);
    free(t->factors);
    *t = (struct expert_tables){0};
}

static bool is_chosen(const uint32_t *chosen, size_t n, size_t expert)
{
    for (size_t i = 0; i < n; i++)
        if (chosen[i] == expert)
            return true;
    return false;
}

/* The expert with the greatest score of those not chosen yet; of equals the first. */
static uint32_t next_expert(const float *scores, size_t n_experts, const uint32_t *chosen, size_t n)
{
    size_t best = n_experts;

    for (size_t i = 0; i < n_experts; i++)
        if ((best == n_experts || scores[i] > scores[best]) && !is_chosen(chosen, n, i))
            best = i;
    return (uint32_t)best;
}

/* A row's experts, and their shares: softmax over the scores of those chosen. */
static void choose(const struct transformer_shape *s, const float *scores, uint32_t *chosen,
                   float *shares)
{
    float sum = 0.0f;

    for (size_t i = 0; i < s->n_experts_used; i++) {
        chosen[i] = next_expert(scores, s->n_experts, chosen, i);
        shares[i] = scalar_exp(scores[chosen[i]] - scores[chosen[0]]);
        sum += shares[i];
    }
    for (size_t i = 0; i < s->n_experts_used; i++)
        shares[i] *= s->expert_scale / sum;
}

/* Lists the rows of each expert, in rising order. */
static void list_rows(struct expert_tables *t, const struct transformer_shape *s, size_t n)
{
    size_t n_used = s->n_experts_used, at = 0;

    for (uint32_t e = 0; e < s->n_experts; e++) {
        t->first[e] = at;
        for (size_t i = 0; i < n * n_used; i++)
            if (t->chosen[i] == e) {
                t->rows[at] = (uint32_t)(i / n_used);
                t->factors[at++] = t->shares[i];
            }
    }
    t->first[s->n_experts] = at;
}

/* Scores the experts for all rows, and waits for the scores. */
static enum status run_router(struct transformer *m, size_t layer, const struct input *in, size_t n,
                              struct error *err)
{
    const struct backend_type *op = m->backend->type;
    struct expert_tables *t = &m->experts;
    const struct input normed = {.x = t->normed};
    const struct product scores = {m->layers[layer].parts[PART_ROUTER], t->scores};

    op->norm(m->backend, in, n, m->shape.width, t->normed);
    op->matmul(m->backend, &normed, n, &scores, 1);
    op->download(m->backend, t->host_scores, t->scores,
                 n * m->shape.n_experts * sizeof(*t->host_scores));
    return op->sync(m->backend, err);
}

static void run_expert(struct transformer *m, const struct ffn *f, size_t first, size_t n,
                       struct buffer *x)
{
    const struct backend_type *op = m->backend->type;
    struct expert_tables *t = &m->experts;
    const struct input in = {.x = t->gathered};

    op->gather(m->backend, t->normed, t->rows + first, n, m->shape.width, t->gathered);
    op->ffn(m->backend, &in, n, f, t->output);
    op->scatter_add(m->backend, t->output, t->rows + first, t->factors + first, n, m->shape.width,
                    x);
}

enum status experts_run(struct transformer *m, size_t layer, const struct input *in, size_t n,
                        struct buffer *x, struct error *err)
{
    const struct transformer_shape *s = &m->shape;
    struct expert_tables *t = &m->experts;
    enum status rc = run_router(m, layer, in, n, err);

    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        choose(s, t->host_scores + i * s->n_experts, t->chosen + i * s->n_experts_used,
               t->shares + i * s->n_experts_used);
    list_rows(t, s, n);
    for (size_t i = 0; i < s->n_experts; i++)
        if (t->first[i + 1] > t->first[i])
            run_expert(m, &m->layers[layer].experts.ffns[i], t->first[i],
                       t->first[i + 1] - t->first[i], x);
    return STATUS_OK;
}
