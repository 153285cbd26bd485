/* Runs a step's rows through the layers: attention or convolution, then the feed-forward network,
 * as the descriptor of the architecture says. Logits, draws and hidden states are then fetched for
 * the positions that want them. */
#include "compute/model/rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/real.h"
#include "compute/model/arch/arch.h"
#include "compute/model/experts.h"
#include "compute/model/latent.h"
#include "compute/model/layer_embeddings.h"
#include "compute/model/network.h"
#include "compute/model/recurrent.h"
#include "compute/model/row.h"
#include "compute/model/state.h"
#include "compute/model/streams.h"

/* Tokens that go through a layer together. */
struct tokens {
    struct buffer *x; /* [n][width], the residual stream */
    size_t n;
    const uint32_t *positions;     /* [n] */
    const float *query_factors;    /* [n], or NULL */
    const struct attend_row *rows; /* [n_rows] */
    size_t n_rows;
};

/* What the query at a position is multiplied by. */
static float query_factor(const struct transformer_shape *s, size_t pos)
{
    return 1.0f +
           s->query_rise * (float)real_log((double)(1 + (pos + s->query_ahead) / s->query_every));
}

/* Adds the last n tokens of a row, whose tokens are laid out, to the wanted ones. */
static void rows_pick(struct transformer *m, const struct attend_row *row, size_t n,
                      struct tokens *wanted)
{
    size_t at = row->first + row->n_tokens - n;

    if (n == 0)
        return;
    m->pick_rows[wanted->n_rows++] = (struct attend_row){.first = wanted->n,
                                                         .n_tokens = n,
                                                         .pos = row->pos + row->n_tokens - n,
                                                         .pages = row->pages};
    for (; n > 0; n--, at++) {
        if (m->query_factors != NULL)
            m->pick_query_factors[wanted->n] = m->query_factors[at];
        m->picks[wanted->n] = (uint32_t)at;
        m->pick_positions[wanted->n++] = m->positions[at];
    }
}

/* Lays out the rows one after the other: all tokens; and those whose logits are wanted,
 * *ret_n_logits of them, before those whose hidden states are. */
static void rows_lay_out(struct transformer *m, const struct transformer_row *rows, size_t n_rows,
                         struct tokens *all, struct tokens *wanted, size_t *ret_n_logits)
{
    *all = (struct tokens){
        .x = m->x, .positions = m->positions, .query_factors = m->query_factors, .rows = m->rows};
    *wanted = (struct tokens){.x = m->picked,
                              .positions = m->pick_positions,
                              .query_factors = m->pick_query_factors,
                              .rows = m->pick_rows};
    m->recurrent.n_drafts = 0;
    for (size_t i = 0; i < n_rows; i++) {
        const struct transformer_row *row = &rows[i];

        assert(row->n_tokens > 0 && row->n_tokens <= m->config.max_tokens - all->n);
        assert(row->n_logits <= row->n_tokens && row->n_logits <= m->config.max_logits - wanted->n);
        assert(row->n_hidden == 0 || (row->n_logits == 0 && row->n_hidden <= row->n_tokens));
        assert(row->pos + row->n_tokens <= m->shape.context);
        if (m->states != NULL)
            m->recurrent.rows[all->n_rows] = (struct state_row){.first = all->n,
                                                                .n_tokens = row->n_tokens,
                                                                .from = row->state,
                                                                .saves = row->saves,
                                                                .n_saves = row->n_saves};
        recurrent_add_drafts(m, row, all->n);
        m->rows[all->n_rows++] = (struct attend_row){
            .first = all->n, .n_tokens = row->n_tokens, .pos = row->pos, .pages = row->pages};
        for (size_t t = 0; t < row->n_tokens; t++, all->n++) {
            assert(row->ids[t] >= 0 && (size_t)row->ids[t] < m->shape.n_vocab);
            m->ids[all->n] = row->ids[t];
            m->positions[all->n] = (uint32_t)(row->pos + t);
            if (m->query_factors != NULL)
                m->query_factors[all->n] = query_factor(&m->shape, row->pos + t);
        }
        rows_pick(m, &m->rows[i], row->n_logits, wanted);
    }
    *ret_n_logits = wanted->n;
    for (size_t i = 0; i < n_rows; i++)
        rows_pick(m, &m->rows[i], rows[i].n_hidden, wanted);
}

static struct input normed_input(const struct transformer *m, const struct buffer *x,
                                 const struct weight *gain)
{
    return (struct input){x, gain, m->shape.norm_eps};
}

/* The rows of x as the layer's part, a norm, leaves them: in m->normed where that takes an operator
 * of its own, until the next call. */
static struct input layer_input(struct transformer *m, size_t layer, enum transformer_part norm,
                                const struct buffer *x, size_t n)
{
    struct weight *const *parts = m->layers[layer].parts;
    const struct layer_norm how = {
        .gain = parts[norm], .bias = parts[norm + 1], .eps = m->shape.norm_eps};

    if (m->shape.arch->norm_kind != NORM_KIND_LAYER)
        return normed_input(m, x, parts[norm]);
    m->backend->type->layer_norm(m->backend, &how, x, n, m->shape.width, m->normed);
    return (struct input){.x = m->normed};
}

/* x [n][width] += the part's row, where the layer has it. */
static void add_bias(struct transformer *m, size_t layer, enum transformer_part part, size_t n,
                     struct buffer *x)
{
    const struct weight *bias = m->layers[layer].parts[part];

    if (bias != NULL)
        m->backend->type->add_bias(m->backend, bias, n, x);
}

/* Norms queries or keys x [n][n_heads * head_dim], where the layer does. */
static void norm_heads(struct transformer *m, size_t layer, enum transformer_part part, size_t n,
                       size_t n_heads, struct buffer *x)
{
    const struct weight *gain = m->layers[layer].parts[part];
    const struct input in = normed_input(m, x, gain);
    size_t n_rows = m->shape.arch->head_norms == HEAD_NORMS_ALL ? 1 : n_heads; /* of a token */

    if (gain != NULL)
        m->backend->type->norm(m->backend, &in, n * n_rows,
                               m->shape.layers[layer].head_dim * n_heads / n_rows, x);
}

/* Rotates queries or keys x, where the layer does. */
static void rotate_heads(struct transformer *m, size_t layer, const struct tokens *t,
                         size_t n_heads, struct buffer *x)
{
    const bool is_windowed = transformer_is_windowed(&m->shape, layer);
    struct rope rope = is_windowed ? m->ropes.windowed : m->ropes.all;
    const struct input in = normed_input(m, x, m->ones[is_windowed]);

    rope.n_heads = n_heads;
    if (!transformer_rotates(&m->shape, layer))
        return;
    m->backend->type->rope(m->backend, &rope, t->positions, t->n, x);
    if (m->shape.norms_rotated)
        m->backend->type->norm(m->backend, &in, t->n * n_heads, m->shape.layers[layer].head_dim, x);
}

/* Where the products of queries go. */
static struct buffer *queries_of(const struct transformer *m)
{
    return m->gated_queries != NULL ? m->gated_queries : m->q;
}

/* Parts queries from the gates of their heads' outputs. */
static void split_queries(struct transformer *m, size_t layer, size_t n)
{
    const struct backend_type *op = m->backend->type;
    const size_t width = m->shape.layers[layer].head_dim, n_rows = n * m->shape.n_heads;

    op->copy_columns(m->backend, m->gated_queries, 2 * width, 0, n_rows, width, m->q, width, 0);
    op->copy_columns(m->backend, m->gated_queries, 2 * width, width, n_rows, width, m->query_gate,
                     width, 0);
}

/* From the products on to what attention takes, in two steps: the ropes of queries and keys come
 * one after the other, because a device may then run them with what follows. */
static void finish_queries(struct transformer *m, size_t layer, const struct tokens *t)
{
    if (m->gated_queries != NULL)
        split_queries(m, layer, t->n);
    add_bias(m, layer, PART_Q_BIAS, t->n, m->q);
    if (!m->shape.arch->head_norms_after_rope)
        norm_heads(m, layer, PART_Q_NORM, t->n, m->shape.n_heads, m->q);
}

/* Values that have no product are the keys', before these are normed. */
static void finish_values(struct transformer *m, size_t layer, size_t n)
{
    const struct backend_type *op = m->backend->type;
    const struct shape_layer *l = &m->shape.layers[layer];
    const struct input in = normed_input(
        m, m->v,
        m->shape.arch->norms_values ? m->ones[transformer_is_windowed(&m->shape, layer)] : NULL);
    size_t width = l->n_kv_heads * (size_t)l->head_dim;

    if (m->layers[layer].parts[PART_V] == NULL)
        op->copy_columns(m->backend, m->k, width, 0, n, width, m->v, width, 0);
    add_bias(m, layer, PART_V_BIAS, n, m->v);
    if (in.gain != NULL)
        op->norm(m->backend, &in, n * l->n_kv_heads, l->head_dim, m->v);
}

static void finish_keys(struct transformer *m, size_t layer, const struct tokens *t)
{
    add_bias(m, layer, PART_K_BIAS, t->n, m->k);
    finish_values(m, layer, t->n);
    if (!m->shape.arch->head_norms_after_rope)
        norm_heads(m, layer, PART_K_NORM, t->n, m->shape.layers[layer].n_kv_heads, m->k);
}

static void rotate_keys(struct transformer *m, size_t layer, const struct tokens *t)
{
    const size_t n_heads = m->shape.layers[layer].n_kv_heads;

    rotate_heads(m, layer, t, n_heads, m->k);
    if (m->shape.arch->head_norms_after_rope)
        norm_heads(m, layer, PART_K_NORM, t->n, n_heads, m->k);
}

static void rotate_queries(struct transformer *m, size_t layer, const struct tokens *t)
{
    rotate_heads(m, layer, t, m->shape.n_heads, m->q);
    if (m->shape.arch->head_norms_after_rope)
        norm_heads(m, layer, PART_Q_NORM, t->n, m->shape.n_heads, m->q);
    if (t->query_factors != NULL &&
        !(m->shape.arch->unrotated_every > 0 && transformer_rotates(&m->shape, layer)))
        m->backend->type->scale_rows(m->backend, t->query_factors, t->n,
                                     m->shape.n_heads * m->shape.layers[layer].head_dim, m->q);
}

/* Computes the queries of t, in a layer whose keys and values are another's. */
static void run_queries(struct transformer *m, size_t layer, const struct tokens *all,
                        const struct tokens *t)
{
    const struct backend_type *op = m->backend->type;
    const struct product q = {m->layers[layer].parts[PART_Q], queries_of(m)};
    struct input in;

    if (t->n == 0)
        return;
    if (t != all)
        op->gather(m->backend, all->x, m->picks, t->n, m->shape.width, t->x);
    in = layer_input(m, layer, PART_ATTN_NORM, t->x, t->n);
    op->matmul(m->backend, &in, t->n, &q, 1);
    finish_queries(m, layer, t);
    rotate_queries(m, layer, t);
}

/* Stores the keys and values of all tokens. Computes the queries of t: of all, or of those whose
 * logits are wanted. */
static void run_projections(struct transformer *m, size_t layer, const struct tokens *all,
                            const struct tokens *t)
{
    struct backend *b = m->backend;
    const struct backend_type *op = b->type;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input normed = layer_input(m, layer, PART_ATTN_NORM, all->x, all->n);
    const struct product qkv[] = {
        {parts[PART_Q], queries_of(m)}, {parts[PART_K], m->k}, {parts[PART_V], m->v}};
    const bool is_all = t == all;
    const size_t n_products = parts[PART_V] != NULL ? 3 : 2;
    struct input picked;

    op->matmul(b, &normed, all->n, is_all ? qkv : qkv + 1, is_all ? n_products : n_products - 1);
    if (is_all)
        finish_queries(m, layer, t);
    finish_keys(m, layer, all);
    if (is_all)
        rotate_queries(m, layer, t);
    rotate_keys(m, layer, all);
    op->kv_store(b, m->kv, layer, m->k, m->v, all->rows, all->n_rows);
    if (is_all || t->n == 0)
        return;
    op->gather(b, all->x, m->picks, t->n, m->shape.width, t->x);
    picked = layer_input(m, layer, PART_ATTN_NORM, t->x, t->n);
    op->matmul(b, &picked, t->n, qkv, 1);
    finish_queries(m, layer, t);
    rotate_queries(m, layer, t);
}

/* The same where attention is latent. */
static void run_latent_projections(struct transformer *m, size_t layer, const struct tokens *all,
                                   const struct tokens *t)
{
    const struct backend_type *op = m->backend->type;
    const struct input normed = layer_input(m, layer, PART_ATTN_NORM, all->x, all->n);
    struct input picked = normed;

    latent_run_keys(m, layer, &normed, all->positions, all->n);
    op->kv_store(m->backend, m->kv, layer, m->k, m->k, all->rows, all->n_rows);
    if (t->n == 0)
        return;
    if (t != all) {
        op->gather(m->backend, all->x, m->picks, t->n, m->shape.width, t->x);
        picked = layer_input(m, layer, PART_ATTN_NORM, t->x, t->n);
    }
    latent_run_queries(m, layer, &picked, t->positions, t->n);
}

/* x += residual scale * norm(branch); branch has a half of the layer. */
static void add_branch(struct transformer *m, size_t layer, enum transformer_part post_norm,
                       const struct tokens *t)
{
    struct backend *b = m->backend;
    const struct weight *gain = m->layers[layer].parts[post_norm];
    const struct input in = normed_input(m, m->branch, gain);

    if (m->branch == NULL)
        return;
    if (gain != NULL)
        b->type->norm(b, &in, t->n, m->shape.width, m->branch);
    b->type->add(b, m->branch, m->shape.residual_scale, t->n, m->shape.width, t->x);
}

/* Of scores: 1/sqrt of a query's width before it is latent. */
static float latent_scale(const struct transformer *m)
{
    const size_t width = m->shape.plain_dim + m->shape.n_rotated;

    return m->ropes.score_factor / sqrtf((float)width);
}

/* From the queries to x. */
static void run_attention(struct transformer *m, size_t layer, const struct tokens *t)
{
    struct backend *b = m->backend;
    const struct transformer_shape *s = &m->shape;
    const bool is_latent = s->latent_rank > 0;
    const struct attention how = {.n_heads = s->n_heads,
                                  .scale = is_latent ? latent_scale(m) : s->attention_scale,
                                  .cap = m->shape.attention_cap,
                                  .window = transformer_window(&m->shape, layer),
                                  .window_is_chunk = m->shape.arch->window_is_chunk,
                                  .sinks = m->layers[layer].parts[PART_SINKS]};
    struct input attn_output = {.x = m->attn_output};
    const struct product out = {m->layers[layer].parts[PART_ATTN_OUT],
                                m->branch != NULL ? m->branch : t->x};

    b->type->attend(b, m->kv, transformer_kv_layer(s, layer), &how, m->q, t->rows, t->n_rows,
                    m->attn_output);
    if (is_latent)
        attn_output.x = latent_run_values(m, layer, t->n);
    if (m->query_gate != NULL) {
        b->type->activate(b, ACTIVATION_SIGMOID, m->attn_output, t->n,
                          s->n_heads * s->layers[layer].head_dim, m->query_gate);
        attn_output.x = m->query_gate;
    }
    if (m->branch != NULL)
        b->type->matmul(b, &attn_output, t->n, &out, 1);
    else
        b->type->matmul_add(b, &attn_output, t->n, &out);
    add_bias(m, layer, PART_ATTN_OUT_BIAS, t->n, out.out);
    add_branch(m, layer, PART_ATTN_POST_NORM, t);
}

/* out, which has the output of the layer's other network, = the norm of that + the norm of what the
 * experts make. The router reads the residual stream. */
static enum status run_experts_beside(struct transformer *m, size_t layer, const struct tokens *t,
                                      struct buffer *out, struct error *err)
{
    const struct backend_type *op = m->backend->type;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input experts_in = normed_input(m, t->x, parts[PART_EXPERTS_NORM]);
    const struct input router_in = normed_input(m, t->x, parts[PART_ROUTER_NORM]);
    const struct input network = normed_input(m, out, parts[PART_NETWORK_POST_NORM]);
    const struct input experts = normed_input(m, m->beside, parts[PART_EXPERTS_POST_NORM]);
    const size_t width = m->shape.width;
    enum status rc;

    op->norm(m->backend, &network, t->n, width, out);
    op->fill(m->backend, 0.0f, t->n, width, m->beside);
    rc = experts_run(m, layer, &experts_in, &router_in, t->n, m->beside, err);
    if (rc != STATUS_OK)
        return rc;
    op->norm(m->backend, &experts, t->n, width, m->beside);
    op->add(m->backend, m->beside, 1.0f, t->n, width, out);
    return STATUS_OK;
}

static enum status rows_run_ffn(struct transformer *m, size_t layer, const struct tokens *t,
                                struct error *err)
{
    struct backend *b = m->backend;
    struct weight *const *parts = m->layers[layer].parts;
    const enum transformer_part norm = m->shape.arch->has_halves ? PART_ATTN_NORM : PART_FFN_NORM;
    const struct input in = m->shape.is_parallel ? (struct input){.x = m->normed}
                                                 : layer_input(m, layer, norm, t->x, t->n);
    const struct model_network f = {.gate = parts[PART_GATE],
                                    .up = parts[PART_UP],
                                    .down = parts[PART_DOWN],
                                    .up_bias = parts[PART_UP_BIAS],
                                    .down_bias = parts[PART_DOWN_BIAS],
                                    .hidden = m->shape.layers[layer].ffn_width,
                                    .cuts = m->shape.layers[layer].cuts,
                                    .cut = m->shape.layers[layer].cut};
    struct buffer *out = m->branch != NULL ? m->branch : t->x;
    enum status rc = STATUS_OK;

    if (!transformer_has_experts(&m->shape, layer)) {
        network_run(m, &f, &in, t->n, m->branch != NULL, out);
    } else if (f.up != NULL) {
        network_run(m, &f, &in, t->n, true, out);
        rc = run_experts_beside(m, layer, t, out, err);
    } else {
        if (m->branch != NULL)
            b->type->fill(b, 0.0f, t->n, m->shape.width, out);
        rc = experts_run(m, layer, &in, NULL, t->n, out, err);
    }
    if (rc == STATUS_OK)
        add_branch(m, layer, PART_FFN_POST_NORM, t);
    return rc;
}

/* The half of a layer that has a convolution of its inputs in the place of attention: out(C *
 * conv(B
 * * x)), where B, C and x are made of the layer's input. */
static void run_convolution(struct transformer *m, size_t layer, const struct tokens *all,
                            const struct tokens *t)
{
    struct backend *b = m->backend;
    const struct backend_type *op = b->type;
    struct weight *const *parts = m->layers[layer].parts;
    const size_t width = m->shape.width, n = all->n;
    const struct input in = layer_input(m, layer, PART_ATTN_NORM, all->x, n);
    const struct product made = {parts[PART_CONV_IN], m->conv_in};
    struct buffer *gated = m->conv[0], *convolved = m->conv[1];
    struct input out_in = {.x = convolved};
    const struct product out = {parts[PART_CONV_OUT], m->branch != NULL ? m->branch : t->x};

    op->matmul(b, &in, n, &made, 1);
    op->copy_columns(b, m->conv_in, 3 * width, 0, n, width, gated, width, 0);
    op->copy_columns(b, m->conv_in, 3 * width, 2 * width, n, width, convolved, width, 0);
    op->activate(b, ACTIVATION_PRODUCT, convolved, n, width, gated);
    op->kv_conv(b, m->kv, layer, parts[PART_CONV_TAPS], m->shape.n_taps, gated, all->rows,
                all->n_rows, convolved);
    op->copy_columns(b, m->conv_in, 3 * width, width, n, width, gated, width, 0);
    op->activate(b, ACTIVATION_PRODUCT, gated, n, width, convolved);
    if (t->n == 0)
        return;
    if (t != all) {
        op->gather(b, all->x, m->picks, t->n, width, t->x);
        op->gather(b, convolved, m->picks, t->n, width, gated);
        out_in.x = gated;
    }
    if (m->branch != NULL)
        op->matmul(b, &out_in, t->n, &out, 1);
    else
        op->matmul_add(b, &out_in, t->n, &out);
    add_branch(m, layer, PART_ATTN_POST_NORM, t);
}

/* The half of a layer that carries a state. */
static void run_recurrence(struct transformer *m, size_t layer, const struct tokens *all,
                           const struct tokens *t)
{
    struct backend *b = m->backend;
    const struct input in = layer_input(m, layer, PART_ATTN_NORM, all->x, all->n);
    const struct product out = {m->layers[layer].parts[PART_STATE_OUT],
                                m->branch != NULL ? m->branch : t->x};
    struct input mixed;

    recurrent_run(m, layer, &in, all->n, all->n_rows);
    if (t->n == 0)
        return;
    if (t != all)
        b->type->gather(b, all->x, m->picks, t->n, m->shape.width, t->x);
    mixed = (struct input){.x = recurrent_output(m, layer, t != all ? m->picks : NULL, t->n)};
    if (m->branch != NULL)
        b->type->matmul(b, &mixed, t->n, &out, 1);
    else
        b->type->matmul_add(b, &mixed, t->n, &out);
    add_branch(m, layer, PART_ATTN_POST_NORM, t);
}

/* The half of a layer that mixes tokens. */
static void run_mixer(struct transformer *m, size_t layer, const struct tokens *all,
                      const struct tokens *t)
{
    if (!transformer_mixes(&m->shape, layer)) {
        if (t != all && t->n > 0)
            m->backend->type->gather(m->backend, all->x, m->picks, t->n, m->shape.width, t->x);
        return;
    }
    if (transformer_recurs(&m->shape, layer) && !transformer_attends(&m->shape, layer)) {
        run_recurrence(m, layer, all, t);
        return;
    }
    if (transformer_convolves(&m->shape, layer)) {
        run_convolution(m, layer, all, t);
        return;
    }
    if (m->shape.latent_rank > 0)
        run_latent_projections(m, layer, all, t);
    else if (layer >= m->shape.n_kv_layers)
        run_queries(m, layer, all, t);
    else
        run_projections(m, layer, all, t);
    if (transformer_recurs(&m->shape, layer))
        run_recurrence(m, layer, all, t); /* queries are made of what x was before */
    if (t->n > 0)
        run_attention(m, layer, t);
}

/* t is all, or in the last layer the wanted tokens: of the others only keys and values are
 * computed there. */
static enum status run_layer(struct transformer *m, size_t layer, const struct tokens *all,
                             const struct tokens *t, struct error *err)
{
    enum status rc;

    run_mixer(m, layer, all, t);
    if (t->n == 0 || !transformer_has_network(&m->shape, layer))
        return STATUS_OK;
    rc = rows_run_ffn(m, layer, t, err);
    if (rc != STATUS_OK)
        return rc;
    layer_embeddings_add(m, layer, t == all ? NULL : m->picks, t->n, t->x);
    if (m->layers[layer].scale != 1.0f)
        m->backend->type->scale(m->backend, m->layers[layer].scale, 0.0f, t->n, m->shape.width,
                                t->x);
    return STATUS_OK;
}

/* All tokens, also in the last layer: the streams are theirs. */
static enum status run_streams(struct transformer *m, const struct tokens *all,
                               const struct tokens *wanted, struct error *err)
{
    enum status rc = streams_begin(m, all->n, err);

    for (size_t layer = 0; layer < m->shape.n_layers && rc == STATUS_OK; layer++) {
        rc = streams_predict(m, layer, all->n, err);
        if (rc != STATUS_OK)
            return rc;
        run_mixer(m, layer, all, all);
        streams_add_laurel(m, layer, all->n);
        rc = rows_run_ffn(m, layer, all, err);
        if (rc == STATUS_OK)
            rc = streams_correct(m, layer, all->n, err);
    }
    if (rc == STATUS_OK)
        rc = streams_end(m, all->n, err);
    if (rc == STATUS_OK && wanted != all && wanted->n > 0)
        m->backend->type->gather(m->backend, all->x, m->picks, wanted->n, m->shape.width,
                                 wanted->x);
    return rc;
}

static enum status run_layers(struct transformer *m, const struct tokens *all,
                              const struct tokens *wanted, struct error *err)
{
    size_t last = m->shape.n_layers - 1;
    enum status rc = STATUS_OK;

    if (m->shape.n_streams > 0)
        return run_streams(m, all, wanted, err);
    for (size_t layer = 0; layer <= last && rc == STATUS_OK; layer++)
        rc = run_layer(m, layer, all, layer == last ? wanted : all, err);
    return rc;
}

static void run_embedding(struct transformer *m, const struct tokens *all)
{
    struct backend *b = m->backend;

    b->type->embed(b, m->embed, m->ids, all->n, m->x);
    if (m->shape.embedding_scale != 1.0f)
        b->type->scale(b, m->shape.embedding_scale, 0.0f, all->n, m->shape.width, m->x);
    layer_embeddings_begin(m, all->n, m->x);
}

/* The rows of x as the head reads them. */
static struct input head_input(struct transformer *m, const struct buffer *x, size_t n)
{
    const struct layer_norm how = {.gain = m->norm, .bias = m->norm_bias, .eps = m->shape.norm_eps};

    if (m->shape.arch->norm_kind != NORM_KIND_LAYER)
        return normed_input(m, x, m->norm);
    m->backend->type->layer_norm(m->backend, &how, x, n, m->shape.width, m->normed);
    return (struct input){.x = m->normed};
}

/* The logits of the wanted tokens. */
static void run_head(struct transformer *m, const struct tokens *wanted, struct buffer *out)
{
    struct backend *b = m->backend;
    const struct transformer_shape *s = &m->shape;
    const struct input normed = head_input(m, wanted->x, wanted->n);
    const struct product head = {m->own_head != NULL ? m->own_head : m->embed, out};

    b->type->matmul(b, &normed, wanted->n, &head, 1);
    if (m->head_bias != NULL)
        b->type->add_bias(b, m->head_bias, wanted->n, out);
    if (s->logit_factor != 1.0f || s->logit_cap > 0.0f)
        b->type->scale(b, s->logit_factor, s->logit_cap, wanted->n, s->n_vocab, out);
}

/* The address of all rows' logits, if they are contiguous in the caller's memory; else NULL. */
static float *one_place(const struct transformer *m, const struct transformer_row *rows,
                        size_t n_rows)
{
    float *first = NULL, *next = NULL;

    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].n_logits == 0)
            continue;
        if (first == NULL)
            first = next = rows[i].logits;
        if (rows[i].logits != next)
            return NULL;
        next += rows[i].n_logits * m->shape.n_vocab;
    }
    return first;
}

/* Where a call's logits go. */
struct outcome {
    size_t n_draws;
    size_t n_wanted; /* logits that the host wants beside the draws */
    float *place;    /* where all go, if they are contiguous */
};

/* Lists the rows of logits that are drawn from, and those that are not. */
static void lay_out_draws(struct transformer *m, const struct transformer_row *rows, size_t n_rows,
                          struct outcome *out)
{
    size_t at = 0;

    out->n_draws = out->n_wanted = 0;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = 0; k < rows[i].n_logits; k++, at++) {
            if (rows[i].draws != NULL) {
                m->draws[out->n_draws] = rows[i].draws[k];
                m->draws[out->n_draws++].row = (uint32_t)at;
            } else {
                m->wanted[out->n_wanted] = (uint32_t)at;
                m->places[out->n_wanted++] = rows[i].logits + k * m->shape.n_vocab;
            }
        }
}

/* Downloads the wanted rows of logits; they are in staged after the next sync. */
static void rows_fetch(struct transformer *m, size_t n)
{
    struct backend *b = m->backend;
    size_t n_vocab = m->shape.n_vocab;

    if (n == 0)
        return;
    b->type->gather(b, m->logits, m->wanted, n, n_vocab, m->fetched);
    b->type->download(b, m->staged, m->fetched, n * n_vocab * sizeof(float));
}

static void put_fetched(const struct transformer *m, size_t n)
{
    size_t n_vocab = m->shape.n_vocab;

    for (size_t i = 0; i < n; i++)
        memcpy(m->places[i], m->staged + i * n_vocab, n_vocab * sizeof(float));
}

/* Writes the logits to the caller's memory if that is contiguous, straight from the head where the
 * device can; else to staged. */
static void run_logits(struct transformer *m, const struct tokens *wanted, const struct outcome *o)
{
    struct backend *b = m->backend;
    size_t size_bytes = wanted->n * m->shape.n_vocab * sizeof(float);
    float *place = o->place != NULL ? o->place : m->staged;
    struct buffer *over = NULL;

    if (b->type->buffer_over != NULL)
        over = b->type->buffer_over(b, place, size_bytes);
    run_head(m, wanted, over != NULL ? over : m->logits);
    if (over == NULL)
        b->type->download(b, place, m->logits, size_bytes);
    b->type->buffer_close(b, over);
}

/* Draws the requested tokens; the logits stay on the device, except those that the host wants. */
static void rows_run_draws(struct transformer *m, const struct tokens *wanted,
                           const struct outcome *o)
{
    struct backend *b = m->backend;
    const struct draw_list list = {
        .draws = m->draws, .n = o->n_draws, .ends = m->config.ends, .n_ends = m->config.n_ends};

    run_head(m, wanted, m->logits);
    b->type->sample(b, m->logits, m->shape.n_vocab, &list, m->drawn);
    rows_fetch(m, o->n_wanted);
}

/* After the sync: delivers the draws, and downloads the logits of those that failed. */
static enum status take_draws(struct transformer *m, const struct transformer_row *rows,
                              size_t n_rows, const struct outcome *o, struct error *err)
{
    size_t at = 0, n_drawn = 0, n_more = 0;
    enum status rc;

    put_fetched(m, o->n_wanted);
    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = 0; k < rows[i].n_logits; k++, at++) {
            if (rows[i].draws == NULL)
                continue;
            rows[i].drawn[k] = m->drawn[n_drawn++];
            if (rows[i].drawn[k].id >= 0)
                continue;
            m->wanted[n_more] = (uint32_t)at;
            m->places[n_more++] = rows[i].logits + k * m->shape.n_vocab;
        }
    if (n_more == 0)
        return STATUS_OK;
    rows_fetch(m, n_more);
    rc = m->backend->type->sync(m->backend, err);
    if (rc == STATUS_OK)
        put_fetched(m, n_more);
    return rc;
}

/* Returns where the next ones are. */
static const float *put_values(float *to, const float *from, size_t n)
{
    if (n > 0)
        memcpy(to, from, n * sizeof(*from));
    return from + n;
}

/* Copies the logits from staged to their places. */
static void put_staged(const struct transformer *m, const struct transformer_row *rows,
                       size_t n_rows)
{
    const float *from = m->staged;

    for (size_t i = 0; i < n_rows; i++)
        from = put_values(rows[i].logits, from, rows[i].n_logits * m->shape.n_vocab);
}

/* Downloads the hidden states of the wanted tokens behind the first n_logits. */
static void run_hidden(struct transformer *m, const struct tokens *wanted, size_t n_logits)
{
    const struct backend_type *op = m->backend->type;
    size_t n = wanted->n - n_logits, width = m->shape.width;
    struct input normed;

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        m->hidden_picks[i] = (uint32_t)(n_logits + i);
    op->gather(m->backend, wanted->x, m->hidden_picks, n, width, m->hidden);
    normed = head_input(m, m->hidden, n);
    op->norm(m->backend, &normed, n, width, m->hidden);
    op->download(m->backend, m->staged_hidden, m->hidden, n * width * sizeof(float));
}

static void put_hidden(const struct transformer *m, const struct transformer_row *rows,
                       size_t n_rows)
{
    const float *from = m->staged_hidden;

    for (size_t i = 0; i < n_rows; i++)
        from = put_values(rows[i].hidden, from, rows[i].n_hidden * m->shape.width);
}

enum status rows_run(struct transformer *m, const struct transformer_row *rows, size_t n_rows,
                     struct error *err)
{
    struct backend *b = m->backend;
    struct tokens all, picked, heads;
    const struct tokens *wanted;
    struct outcome o = {0};
    size_t n_logits;
    enum status rc;

    rows_lay_out(m, rows, n_rows, &all, &picked, &n_logits);
    wanted = n_logits == all.n ? &all : &picked;
    o.place = one_place(m, rows, n_rows);
    lay_out_draws(m, rows, n_rows, &o);
    run_embedding(m, &all);
    if ((rc = run_layers(m, &all, wanted, err)) != STATUS_OK)
        return rc;
    heads = *wanted;
    heads.n = n_logits;
    run_hidden(m, wanted, n_logits);
    if (o.n_draws > 0)
        rows_run_draws(m, &heads, &o);
    else if (n_logits > 0)
        run_logits(m, &heads, &o);
    rc = b->type->sync(b, err);
    if (rc != STATUS_OK)
        return rc;
    put_hidden(m, rows, n_rows);
    if (o.n_draws > 0)
        return take_draws(m, rows, n_rows, &o, err);
    if (o.place == NULL)
        put_staged(m, rows, n_rows);
    return STATUS_OK;
}
