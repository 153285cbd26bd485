#include "compute/model/rows.h"

#include <assert.h>
#include <string.h>

#include "compute/model/row.h"
#include "compute/model/state.h"

/* Tokens that go through a layer together. */
struct tokens {
    struct buffer *x; /* [n][width], the residual stream */
    size_t n;
    const uint32_t *positions;     /* [n] */
    const struct attend_row *rows; /* [n_rows] */
    size_t n_rows;
};

/* Lays out the rows one after the other: all tokens, and those whose logits are wanted. */
static void rows_lay_out(struct llama *m, const struct llama_row *rows, size_t n_rows,
                         struct tokens *all, struct tokens *wanted)
{
    *all = (struct tokens){.x = m->x, .positions = m->positions, .rows = m->rows};
    *wanted = (struct tokens){.x = m->picked, .positions = m->pick_positions, .rows = m->pick_rows};
    for (size_t i = 0; i < n_rows; i++) {
        const struct llama_row *row = &rows[i];
        size_t n_before = row->n_tokens - row->n_logits; /* the wanted ones */

        assert(row->n_tokens > 0 && row->n_tokens <= m->config.max_tokens - all->n);
        assert(row->n_logits <= row->n_tokens && row->n_logits <= m->config.max_logits - wanted->n);
        assert(row->pos + row->n_tokens <= m->shape.context);
        m->rows[all->n_rows++] = (struct attend_row){
            .first = all->n, .n_tokens = row->n_tokens, .pos = row->pos, .pages = row->pages};
        if (row->n_logits > 0)
            m->pick_rows[wanted->n_rows++] = (struct attend_row){.first = wanted->n,
                                                                 .n_tokens = row->n_logits,
                                                                 .pos = row->pos + n_before,
                                                                 .pages = row->pages};
        for (size_t t = 0; t < row->n_tokens; t++, all->n++) {
            assert(row->ids[t] >= 0 && (size_t)row->ids[t] < m->shape.n_vocab);
            m->ids[all->n] = row->ids[t];
            m->positions[all->n] = (uint32_t)(row->pos + t);
            if (t < n_before)
                continue;
            m->picks[wanted->n] = (uint32_t)all->n;
            m->pick_positions[wanted->n++] = (uint32_t)(row->pos + t);
        }
    }
    if (wanted->n == all->n)
        *wanted = *all;
}

static struct rope rope_of(const struct llama *m, size_t n_heads)
{
    return (struct rope){.n_heads = n_heads,
                         .head_dim = m->shape.head_dim,
                         .base = m->shape.rope_base,
                         .scale = m->rope_scale};
}

/* The part of a layer from the queries on. */
static void run_attention(struct llama *m, size_t layer, const struct tokens *t)
{
    struct backend *b = m->backend;
    const struct input attn_output = {.x = m->attn_output};
    const struct product out = {m->layers[layer].parts[PART_ATTN_OUT], t->x};

    b->type->attend(b, m->kv, layer, m->shape.n_heads, m->q, t->rows, t->n_rows, m->attn_output);
    b->type->matmul_add(b, &attn_output, t->n, &out);
}

/* x += down(silu(gate(norm(x))) * up(norm(x))) */
static void rows_run_ffn(struct llama *m, size_t layer, const struct tokens *t)
{
    struct backend *b = m->backend;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input normed = {t->x, parts[PART_FFN_NORM], m->shape.norm_eps};
    const struct ffn ffn = {parts[PART_GATE], parts[PART_UP], parts[PART_DOWN]};

    b->type->ffn(b, &normed, t->n, &ffn, t->x);
}

/* x += attention(norm(x)), then the feed-forward network. */
static void run_layer(struct llama *m, size_t layer, const struct tokens *t)
{
    struct backend *b = m->backend;
    const struct backend_type *op = b->type;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input normed = {t->x, parts[PART_ATTN_NORM], m->shape.norm_eps};
    const struct product qkv[] = {
        {parts[PART_Q], m->q}, {parts[PART_K], m->k}, {parts[PART_V], m->v}};
    const struct rope q_rope = rope_of(m, m->shape.n_heads),
                      k_rope = rope_of(m, m->shape.n_kv_heads);

    op->matmul(b, &normed, t->n, qkv, sizeof qkv / sizeof qkv[0]);
    op->rope(b, &q_rope, t->positions, t->n, m->q);
    op->rope(b, &k_rope, t->positions, t->n, m->k);
    op->kv_store(b, m->kv, layer, m->k, m->v, t->rows, t->n_rows);
    run_attention(m, layer, t);
    rows_run_ffn(m, layer, t);
}

/* The last layer: of a token whose logits are not wanted, only the keys and values are computed. */
static void run_last_layer(struct llama *m, size_t layer, const struct tokens *all,
                           const struct tokens *wanted)
{
    struct backend *b = m->backend;
    const struct backend_type *op = b->type;
    struct weight *const *parts = m->layers[layer].parts;
    const struct input normed = {all->x, parts[PART_ATTN_NORM], m->shape.norm_eps};
    const struct input picked = {wanted->x, parts[PART_ATTN_NORM], m->shape.norm_eps};
    const struct product kv[] = {{parts[PART_K], m->k}, {parts[PART_V], m->v}};
    const struct product q = {parts[PART_Q], m->q};
    const struct rope q_rope = rope_of(m, m->shape.n_heads),
                      k_rope = rope_of(m, m->shape.n_kv_heads);

    op->matmul(b, &normed, all->n, kv, sizeof kv / sizeof kv[0]);
    op->rope(b, &k_rope, all->positions, all->n, m->k);
    op->kv_store(b, m->kv, layer, m->k, m->v, all->rows, all->n_rows);
    if (wanted->n == 0)
        return;
    op->gather(b, all->x, m->picks, wanted->n, m->shape.width, wanted->x);
    op->matmul(b, &picked, wanted->n, &q, 1);
    op->rope(b, &q_rope, wanted->positions, wanted->n, m->q);
    run_attention(m, layer, wanted);
    rows_run_ffn(m, layer, wanted);
}

/* The logits of the wanted tokens. */
static void run_head(struct llama *m, const struct tokens *wanted, struct buffer *out)
{
    struct backend *b = m->backend;
    const struct input normed = {wanted->x, m->norm, m->shape.norm_eps};
    const struct product head = {m->own_head != NULL ? m->own_head : m->embed, out};

    b->type->matmul(b, &normed, wanted->n, &head, 1);
}

/* The address of all rows' logits, if they are contiguous in the caller's memory; else NULL. */
static float *one_place(const struct llama *m, const struct llama_row *rows, size_t n_rows)
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
static void lay_out_draws(struct llama *m, const struct llama_row *rows, size_t n_rows,
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
static void rows_fetch(struct llama *m, size_t n)
{
    struct backend *b = m->backend;
    size_t n_vocab = m->shape.n_vocab;

    if (n == 0)
        return;
    b->type->gather(b, m->logits, m->wanted, n, n_vocab, m->fetched);
    b->type->download(b, m->staged, m->fetched, n * n_vocab * sizeof(float));
}

static void put_fetched(const struct llama *m, size_t n)
{
    size_t n_vocab = m->shape.n_vocab;

    for (size_t i = 0; i < n; i++)
        memcpy(m->places[i], m->staged + i * n_vocab, n_vocab * sizeof(float));
}

/* Writes the logits to the caller's memory if that is contiguous, straight from the head where the
 * device can; else to staged. */
static void run_logits(struct llama *m, const struct tokens *wanted, const struct outcome *o)
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
static void rows_run_draws(struct llama *m, const struct tokens *wanted, const struct outcome *o)
{
    struct backend *b = m->backend;
    const struct draw_list list = {
        .draws = m->draws, .n = o->n_draws, .ends = m->config.ends, .n_ends = m->config.n_ends};

    run_head(m, wanted, m->logits);
    b->type->sample(b, m->logits, m->shape.n_vocab, &list, m->drawn);
    rows_fetch(m, o->n_wanted);
}

/* After the sync: delivers the draws, and downloads the logits of those that failed. */
static enum status take_draws(struct llama *m, const struct llama_row *rows, size_t n_rows,
                              const struct outcome *o, struct error *err)
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

/* Copies the logits from staged to their places. */
static void put_staged(const struct llama *m, const struct llama_row *rows, size_t n_rows)
{
    const float *from = m->staged;

    for (size_t i = 0; i < n_rows; i++) {
        size_t n_values = rows[i].n_logits * m->shape.n_vocab;

        if (n_values > 0)
            memcpy(rows[i].logits, from, n_values * sizeof *from);
        from += n_values;
    }
}

enum status rows_run(struct llama *m, const struct llama_row *rows, size_t n_rows,
                     struct error *err)
{
    struct backend *b = m->backend;
    size_t last = m->shape.n_layers - 1;
    struct tokens all, wanted;
    struct outcome o = {0};
    enum status rc;

    rows_lay_out(m, rows, n_rows, &all, &wanted);
    o.place = one_place(m, rows, n_rows);
    lay_out_draws(m, rows, n_rows, &o);
    b->type->embed(b, m->embed, m->ids, all.n, m->x);
    for (size_t layer = 0; layer < last; layer++)
        run_layer(m, layer, &all);
    if (wanted.n == all.n)
        run_layer(m, last, &all);
    else
        run_last_layer(m, last, &all, &wanted);
    if (o.n_draws > 0)
        rows_run_draws(m, &wanted, &o);
    else if (wanted.n > 0)
        run_logits(m, &wanted, &o);
    rc = b->type->sync(b, err);
    if (rc != STATUS_OK)
        return rc;
    if (o.n_draws > 0)
        return take_draws(m, rows, n_rows, &o, err);
    if (o.place == NULL)
        put_staged(m, rows, n_rows);
    return STATUS_OK;
}
