/* Opens a layer's router and experts in the layouts that files have, fused or apart. A run lists
 * the rows of each expert, computes these together, and adds the results to the rows expert by
 * expert. */
#include "compute/model/experts.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/model/network.h"
#include "compute/model/routing.h"
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

/* The parts that experts have rows of, and where an expert's weights are in its network. */
enum { N_EXPERT_PARTS = 6 };
static const struct {
    enum transformer_part part;
    size_t at;
} expert_parts[N_EXPERT_PARTS] = {
    {PART_GATE_EXPERTS, offsetof(struct model_network, gate)},
    {PART_UP_EXPERTS, offsetof(struct model_network, up)},
    {PART_DOWN_EXPERTS, offsetof(struct model_network, down)},
    {PART_GATE_EXPERTS_BIAS, offsetof(struct model_network, gate_bias)},
    {PART_UP_EXPERTS_BIAS, offsetof(struct model_network, up_bias)},
    {PART_DOWN_EXPERTS_BIAS, offsetof(struct model_network, down_bias)},
};

bool experts_have_part(enum transformer_part part)
{
    for (size_t i = 0; i < N_EXPERT_PARTS; i++)
        if (expert_parts[i].part == part)
            return true;
    return part == PART_SELECT_BIAS || part == PART_EXPERT_SCALES || part == PART_GATE_UP_EXPERTS;
}

static const struct weight **expert_weight(struct model_network *f, size_t i)
{
    return (const struct weight **)(void *)((char *)f + expert_parts[i].at);
}

/* Opens the network of one expert: the rows that it has of the layer's tensors. */
static enum status open_expert(struct transformer *m, struct model_network *f,
                               const struct tensor all[N_EXPERT_PARTS], size_t expert,
                               struct error *err)
{
    enum status rc = STATUS_OK;

    f->hidden = m->shape.expert_width;
    for (size_t i = 0; i < N_EXPERT_PARTS && rc == STATUS_OK; i++) {
        size_t n = all[i].n_rows / m->shape.n_experts;
        struct tensor t;

        if (all[i].name == NULL)
            continue;
        t = tensor_rows(&all[i], expert * n, n);
        rc = experts_open_weight(m, expert_weight(f, i), &t, err);
    }
    return rc;
}

/* The same of a tensor that has each expert's gate before its up. */
static enum status open_fused_expert(struct transformer *m, struct model_network *f,
                                     const struct tensor *both, size_t expert, struct error *err)
{
    size_t n = m->shape.expert_width;
    struct tensor gate = tensor_rows(both, 2 * expert * n, n);
    struct tensor up = tensor_rows(both, (2 * expert + 1) * n, n);
    enum status rc = experts_open_weight(m, &f->gate, &gate, err);

    return rc == STATUS_OK ? experts_open_weight(m, &f->up, &up, err) : rc;
}

enum status experts_open_weights(struct transformer *m, struct model_experts *e, size_t layer,
                                 struct error *err)
{
    size_t n = m->shape.n_experts;
    const struct transformer_shape *s = &m->shape;
    struct tensor all[N_EXPERT_PARTS], both;
    enum status rc =
        transformer_read_row(&e->select_bias, m->file, s, layer, PART_SELECT_BIAS, err);

    if (rc == STATUS_OK)
        rc = transformer_read_row(&e->scales, m->file, s, layer, PART_EXPERT_SCALES, err);
    if (rc == STATUS_OK)
        rc = transformer_layer_tensor(&both, m->file, s, layer, PART_GATE_UP_EXPERTS, err);
    e->networks = try_alloc(n, sizeof(*e->networks));
    if (rc == STATUS_OK && e->networks == NULL)
        return error_no_memory(err, n * sizeof(*e->networks), "experts");
    for (size_t i = 0; i < N_EXPERT_PARTS && rc == STATUS_OK; i++)
        rc =
            transformer_layer_tensor(&all[i], m->file, &m->shape, layer, expert_parts[i].part, err);
    for (size_t i = 0; i < n && rc == STATUS_OK; i++) {
        rc = open_expert(m, &e->networks[i], all, i, err);
        if (rc == STATUS_OK && both.name != NULL)
            rc = open_fused_expert(m, &e->networks[i], &both, i, err);
    }
    return rc;
}

void experts_close_weights(struct transformer *m, struct model_experts *e)
{
    const struct backend_type *op = m->backend->type;

    for (size_t i = 0; e->networks != NULL && i < m->shape.n_experts; i++)
        for (size_t k = 0; k < N_EXPERT_PARTS; k++)
            op->weight_close(m->backend, (struct weight *)*expert_weight(&e->networks[i], k));
    free(e->networks);
    free(e->select_bias);
    free(e->scales);
    *e = (struct model_experts){0};
}

enum status experts_open_router(struct transformer *m, struct weight **out, const struct tensor *t,
                                struct error *err)
{
    size_t n = t->n_rows * t->n_cols;
    struct tensor floats = {.name = t->name,
                            .type = DTYPE_F32,
                            .n_rows = t->n_rows,
                            .n_cols = t->n_cols,
                            .size_bytes = n * sizeof(float)};
    void *rows = try_alloc(t->size_bytes, 1);
    float *numbers = try_alloc(n, sizeof(*numbers));
    enum status rc;

    floats.data = (const void *)numbers;
    rc = rows == NULL || numbers == NULL
             ? error_no_memory(err, t->size_bytes + floats.size_bytes, t->name)
             : tensor_read(t, 0, t->n_rows, rows, err);
    if (rc == STATUS_OK) {
        dtype_decode(t->type, rows, n, numbers);
        rc = m->backend->type->weight_open(m->backend, &floats, out, err);
    }
    if (rc == STATUS_OK)
        m->weight_bytes += floats.size_bytes;
    free(numbers);
    free(rows);
    return rc;
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
    t->shared_shares = try_alloc(n, sizeof(*t->shared_shares));
    t->all_rows = try_alloc(n, sizeof(*t->all_rows));
    t->chosen = try_alloc(n_chosen, sizeof(*t->chosen));
    t->shares = try_alloc(n_chosen, sizeof(*t->shares));
    t->first = try_alloc(s->n_experts + 1, sizeof(*t->first));
    t->rows = try_alloc(n_chosen, sizeof(*t->rows));
    t->factors = try_alloc(n_chosen, sizeof(*t->factors));
    t->ones = s->arch->weighs_inputs ? try_alloc(n_chosen, sizeof(*t->ones)) : NULL;
    if ((s->arch->weighs_inputs && t->ones == NULL) || t->host_scores == NULL ||
        t->shared_shares == NULL || t->all_rows == NULL || t->chosen == NULL || t->shares == NULL ||
        t->first == NULL || t->rows == NULL || t->factors == NULL ||
        !open_room(m, &t->normed, s->width) || !open_room(m, &t->gathered, s->width) ||
        !open_room(m, &t->output, s->width) || !open_room(m, &t->scores, s->n_experts) ||
        !open_room(m, &t->shared_scores, 1))
        return error_no_memory(err, 3 * n * s->width * sizeof(float), "the experts of a step");
    for (size_t i = 0; i < n; i++)
        t->all_rows[i] = (uint32_t)i;
    for (size_t i = 0; t->ones != NULL && i < n_chosen; i++)
        t->ones[i] = 1.0f;
    return STATUS_OK;
}

void experts_close_tables(struct transformer *m)
{
    struct expert_tables *t = &m->experts;
    struct buffer *buffers[] = {t->normed, t->gathered, t->output, t->scores, t->shared_scores};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
        m->backend->type->buffer_close(m->backend, buffers[i]);
    free(t->host_scores);
    free(t->shared_shares);
    free(t->all_rows);
    free(t->chosen);
    free(t->shares);
    free(t->first);
    free(t->rows);
    free(t->factors);
    free(t->ones);
    *t = (struct expert_tables){0};
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
static enum status run_router(struct transformer *m, size_t layer, const struct input *in,
                              const struct input *router_in, size_t n, struct error *err)
{
    const struct backend_type *op = m->backend->type;
    struct expert_tables *t = &m->experts;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input normed = {.x = t->normed};
    const struct product scores = {parts[PART_ROUTER], t->scores};
    const struct product shared = {parts[PART_SHARED_ROUTER], t->shared_scores};

    op->norm(m->backend, in, n, m->shape.width, t->normed);
    op->matmul(m->backend, router_in != NULL ? router_in : &normed, n, &scores, 1);
    if (router_in != NULL)
        op->scale(m->backend, 1.0f / sqrtf((float)m->shape.width), 0.0f, n, m->shape.n_experts,
                  t->scores);
    if (parts[PART_ROUTER_BIAS] != NULL)
        op->add_bias(m->backend, parts[PART_ROUTER_BIAS], n, t->scores);
    op->download(m->backend, t->host_scores, t->scores,
                 n * m->shape.n_experts * sizeof(*t->host_scores));
    if (shared.w != NULL) {
        op->matmul(m->backend, &normed, n, &shared, 1);
        op->download(m->backend, t->shared_shares, t->shared_scores, n * sizeof(*t->shared_shares));
    }
    return op->sync(m->backend, err);
}

static void run_expert(struct transformer *m, const struct model_network *f, size_t first, size_t n,
                       struct buffer *x)
{
    const struct backend_type *op = m->backend->type;
    struct expert_tables *t = &m->experts;
    const struct input in = {.x = t->gathered};

    op->gather(m->backend, t->normed, t->rows + first, n, m->shape.width, t->gathered);
    if (t->ones != NULL)
        op->scale_rows(m->backend, t->factors + first, n, m->shape.width, t->gathered);
    network_run(m, f, &in, n, true, t->output);
    op->scatter_add(m->backend, t->output, t->rows + first,
                    (t->ones != NULL ? t->ones : t->factors) + first, n, m->shape.width, x);
}

/* x += the expert that all rows use. */
static void run_shared(struct transformer *m, size_t layer, size_t n, struct buffer *x)
{
    struct expert_tables *t = &m->experts;
    struct weight *const *parts = m->layers[layer].parts;
    const struct model_network f = {.gate = parts[PART_SHARED_GATE],
                                    .up = parts[PART_SHARED_UP],
                                    .down = parts[PART_SHARED_DOWN],
                                    .hidden = m->shape.shared_width};
    const struct input in = {.x = t->normed};

    if (f.up == NULL)
        return;
    if (parts[PART_SHARED_ROUTER] == NULL) {
        network_run(m, &f, &in, n, false, x);
        return;
    }
    for (size_t i = 0; i < n; i++)
        t->shared_shares[i] = scalar_sigmoid(t->shared_shares[i]);
    network_run(m, &f, &in, n, true, t->output);
    m->backend->type->scatter_add(m->backend, t->output, t->all_rows, t->shared_shares, n,
                                  m->shape.width, x);
}

/* Multiplies the shares of each expert by its scale. */
static void scale_experts(const struct model_experts *e, const uint32_t *chosen, float *shares,
                          size_t n)
{
    for (size_t i = 0; e->scales != NULL && i < n; i++)
        shares[i] *= e->scales[chosen[i]];
}

enum status experts_run(struct transformer *m, size_t layer, const struct input *in,
                        const struct input *router_in, size_t n, struct buffer *x,
                        struct error *err)
{
    const struct transformer_shape *s = &m->shape;
    struct expert_tables *t = &m->experts;
    const struct model_experts *e = &m->layers[layer].experts;
    enum status rc = run_router(m, layer, in, router_in, n, err);

    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        routing_choose(s, e->select_bias, t->host_scores + i * s->n_experts,
                       t->chosen + i * s->n_experts_used, t->shares + i * s->n_experts_used);
    scale_experts(e, t->chosen, t->shares, n * s->n_experts_used);
    list_rows(t, s, n);
    for (size_t i = 0; i < s->n_experts; i++)
        if (t->first[i + 1] > t->first[i])
            run_expert(m, &e->networks[i], t->first[i], t->first[i + 1] - t->first[i], x);
    run_shared(m, layer, n, x);
    return STATUS_OK;
}
