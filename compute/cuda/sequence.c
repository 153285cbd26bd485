/* Stores the keys and values of a step's tokens, and computes their attention. */
#include <assert.h>
#include <string.h>

#include "compute/cuda/parts.h"

enum {
    BLOCKS_A_PROCESSOR = 2, /* that attention is cut into, where there are few queries */
    MOST_PIECES = 8,        /* of inputs that are staged here at once, counts too */
};

static size_t cuda_sequence_pages_for(size_t n_tokens)
{
    return (n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

static size_t end_of(const struct attend_row *rows, size_t n_rows)
{
    size_t end = 0;

    for (const struct attend_row *r = rows; r < rows + n_rows; r++)
        end = r->first + r->n_tokens > end ? r->first + r->n_tokens : end;
    return end;
}

static bool is_planned(const struct cuda *c, const struct attend_row *rows, size_t n_rows)
{
    const struct step_plan *p = &c->plan;

    return p->rows == rows && p->n_rows == n_rows && p->epoch == c->list.epoch;
}

/* Bytes that stage_tokens stages. */
static size_t tokens_bytes(size_t end)
{
    return 2 * list_bucket(end) * sizeof(uint32_t);
}

static void stage_tokens(struct cuda *c, const struct kv *kv, const struct attend_row *rows,
                         size_t n_rows, size_t end)
{
    size_t cap_bytes = list_bucket(end) * sizeof(uint32_t);
    struct step_plan *p = &c->plan;
    void *positions_at, *pages_at;
    uint32_t *positions;
    int32_t *pages;

    memset(p, 0, sizeof(*p));
    p->tokens.positions = list_stage(&c->list, NULL, 0, cap_bytes, &positions_at);
    p->tokens.pages = list_stage(&c->list, NULL, 0, cap_bytes, &pages_at);
    p->tokens.n = cuda_count_of(c, end);
    positions = positions_at;
    pages = pages_at;
    memset(positions, 0, end * sizeof(*positions));
    memset(pages, 0xff, end * sizeof(*pages)); /* -1: tokens of no row */
    for (const struct attend_row *r = rows; r < rows + n_rows; r++)
        for (size_t t = 0; t < r->n_tokens; t++) {
            size_t pos = r->pos + t;

            assert(cuda_is_page(kv, r->pages[pos / KV_PAGE_TOKENS]));
            positions[r->first + t] = (uint32_t)pos;
            pages[r->first + t] = r->pages[pos / KV_PAGE_TOKENS];
        }
    p->host_positions = positions;
    p->end = end;
    p->rows = rows;
    p->n_rows = n_rows;
    p->epoch = c->list.epoch;
}

static bool cuda_sequence_plan_tokens(struct cuda *c, const struct kv *kv,
                                      const struct attend_row *rows, size_t n_rows)
{
    size_t end = end_of(rows, n_rows);

    if (!list_reserve(&c->list, tokens_bytes(end) + MOST_PIECES * LIST_ALIGN))
        return false;
    if (!is_planned(c, rows, n_rows))
        stage_tokens(c, kv, rows, n_rows, end);
    return true;
}

/* Keys and values. */

struct store_args {
    struct cuda_turns rope;
    struct cuda_kv kv;
    uint32_t layer, n_heads;
    struct cuda_tokens tokens;
    float *q, *k;
    const float *v;
};

static void launch_store(const void *args, cudaStream_t stream)
{
    const struct store_args *a = args;

    cuda_kv_store(&a->kv, a->layer, &a->tokens, a->k, a->v, stream);
}

static void launch_rope_store(const void *args, cudaStream_t stream)
{
    const struct store_args *a = args;

    cuda_rope_kv_store(&a->rope, &a->kv, a->layer, &a->tokens, a->n_heads, a->q, a->k, a->v,
                       stream);
}

static bool is_of_tokens(const struct held_rope *h, const struct step_plan *p)
{
    return h->n == p->end &&
           memcmp(h->host_positions, p->host_positions, p->end * sizeof(*p->host_positions)) == 0;
}

/* Whether the ropes held back are those of the tokens' queries and keys. */
static bool is_fusible(const struct cuda *c, const struct kv *kv, const struct buffer *k)
{
    return c->n_held == 2 && c->held[1].x == k->at && c->held[1].n_heads == kv->shape.n_kv_heads &&
           c->held[0].turns == c->held[1].turns && !c->held[0].turns->rope.halves &&
           c->held[0].turns->rope.head_dim == kv->shape.head_dim &&
           is_of_tokens(&c->held[0], &c->plan) && is_of_tokens(&c->held[1], &c->plan);
}

void cuda_kv_store_rows(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                        const struct buffer *v, const struct attend_row *rows, size_t n_rows)
{
    size_t width = kv->shape.n_kv_heads * kv->shape.head_dim;
    struct cuda *c = to_cuda(b);
    struct store_args a;
    bool fused;

    assert(layer < kv->shape.n_layers);
    cuda_run_copies(c);
    if (n_rows == 0 || !cuda_sequence_plan_tokens(c, kv, rows, n_rows))
        return;
    fused = is_fusible(c, kv, k);
    if (!fused) {
        cuda_settle(c);
        if (!cuda_sequence_plan_tokens(c, kv, rows, n_rows)) /* the list may have run */
            return;
    }
    memset(&a, 0, sizeof(a));
    a.kv = kv->view;
    a.layer = (uint32_t)layer;
    a.tokens = c->plan.tokens;
    a.k = cuda_written((struct buffer *)k, c->plan.end, width);
    a.v = cuda_read(v, c->plan.end, width);
    if (fused) {
        a.rope = rope_turns(c->held[0].turns);
        a.n_heads = (uint32_t)c->held[0].n_heads;
        a.q = c->held[0].x;
        c->n_held = 0;
    }
    list_add(&c->list, fused ? launch_rope_store : launch_store, &a, sizeof(a));
}

/* Attention. */

struct attend_args {
    struct cuda_kv kv;
    uint32_t layer;
    struct cuda_attention attention;
    const float *q;
    float *out;
};

static void launch_attend(const void *args, cudaStream_t stream)
{
    const struct attend_args *a = args;

    cuda_attend(&a->kv, a->layer, &a->attention, a->q, a->out, stream);
}

static void stage_tables(int32_t *to, const struct kv *kv, const struct attend_row *rows,
                         size_t n_rows)
{
    for (const struct attend_row *r = rows; r < rows + n_rows; r++)
        for (size_t i = 0; i < cuda_sequence_pages_for(r->pos + r->n_tokens); i++) {
            assert(cuda_is_page(kv, r->pages[i]));
            *to++ = r->pages[i];
        }
}

/* Stages items and tables of pages, for all layers. */
static bool plan_attention(struct cuda *c, const struct kv *kv, size_t n_heads,
                           const struct attend_row *rows, size_t n_rows)
{
    size_t n_kv_heads = kv->shape.n_kv_heads, n_sharing = n_heads / n_kv_heads, n_pages = 0;
    size_t enough = (size_t)(BLOCKS_A_PROCESSOR * c->device.n_multiprocessors) / n_kv_heads + 1;
    size_t items_bytes, tables_bytes, partial_bytes, end = end_of(rows, n_rows);
    struct cuda_attention *a = &c->plan.attention;
    struct cuda_attend_sizes sizes;
    void *counters, *items, *tables;

    if (is_planned(c, rows, n_rows) && c->plan.has_items && a->n_heads == n_heads)
        return true;
    partial_bytes = n_heads * (kv->shape.head_dim + 2) * sizeof(float);
    cuda_attend_plan(&sizes, NULL, rows, n_rows, n_sharing, enough);
    if (sizes.n_partials > c->partials.cap_bytes / partial_bytes) {
        enough = 0; /* long rows, and many of them: each is computed by one block */
        cuda_attend_plan(&sizes, NULL, rows, n_rows, n_sharing, enough);
    }
    for (const struct attend_row *r = rows; r < rows + n_rows; r++)
        n_pages += cuda_sequence_pages_for(r->pos + r->n_tokens);
    items_bytes = list_bucket(sizes.n_items) * sizeof(struct cuda_attend_item);
    tables_bytes = list_bucket(n_pages) * sizeof(int32_t);
    counters =
        cuda_scratch(c, &c->counters, list_bucket(sizes.n_counters) * n_heads * sizeof(uint32_t));
    if (counters == NULL || !list_reserve(&c->list, tokens_bytes(end) + items_bytes + tables_bytes +
                                                        MOST_PIECES * LIST_ALIGN))
        return false;
    if (!is_planned(c, rows, n_rows))
        stage_tokens(c, kv, rows, n_rows, end);
    a->n_heads = (uint32_t)n_heads;
    a->partials = c->partials.at;
    a->counters = counters;
    a->items = list_stage(&c->list, NULL, 0, items_bytes, &items);
    a->tables = list_stage(&c->list, NULL, 0, tables_bytes, &tables);
    a->n_items = cuda_count_of(c, sizes.n_items);
    cuda_attend_plan(&sizes, items, rows, n_rows, n_sharing, enough);
    stage_tables(tables, kv, rows, n_rows);
    c->plan.has_items = true;
    return true;
}

void cuda_attend_rows(struct backend *b, const struct kv *kv, size_t layer,
                      const struct attention *how, const struct buffer *q,
                      const struct attend_row *rows, size_t n_rows, struct buffer *out)
{
    size_t n_heads = how->n_heads, width = n_heads * kv->shape.head_dim;
    struct cuda *c = to_cuda(b);
    struct attend_args a;

    assert(n_heads % kv->shape.n_kv_heads == 0 && layer < kv->shape.n_layers);
    if (n_rows == 0 || !cuda_begin(c, 0) || !plan_attention(c, kv, n_heads, rows, n_rows))
        return;
    memset(&a, 0, sizeof(a));
    a.kv = kv->view;
    a.layer = (uint32_t)layer;
    a.attention = c->plan.attention;
    a.attention.window = (uint32_t)how->window;
    a.attention.factor = attend_factor(kv->shape.head_dim, how->scale, how->cap);
    a.attention.cap = how->cap * SCALAR_LOG2_E;
    a.q = cuda_read(q, c->plan.end, width);
    a.out = cuda_written(out, c->plan.end, width);
    list_add(&c->list, launch_attend, &a, sizeof(a));
}
