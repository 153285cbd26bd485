/* The operators that depend on positions: the pages of keys and values, and attention. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cpu/panels.h"
#include "compute/cpu/parts.h"
#include "compute/numerics/attend_units.h"
#include "compute/numerics/scalar.h"

enum {
    PIECE_VALUES = 4096,   /* of keys and values: less is not worth sharing */
    PIECE_COST = 512,      /* the same of attention, some 10 us */
    WIDEN_COST = 4,        /* of reading a page, in queries that attend to it */
    SHARED_PAGES = 4,      /* fewer shared pages do not pay for a common block */
    PIECES_A_THREAD = 4,   /* at least, where there is enough work, */
    LEAST_COST = 128,      /* each of this cost */
    MOST_FLOATS = 1 << 20, /* of spans' results, until they are merged: the caches hold so many */
    BUSY_BYTES = 64 << 20,
};

/* A layer in a page, from `at` on: [n_kv_heads], each as kv_view says; then the rows. */
struct cpu_kv_layer {
    struct kv_view view; /* without its base */
    size_t n_kv_heads, row_width;
    size_t at, rows_at;
};

/* [n_pages][n_layers] */
struct kv {
    struct kv_shape shape;
    struct cpu_kv_layer *layers; /* [n_layers] */
    size_t first_layer;          /* that has a part of a page */
    uint8_t *base;
    size_t page_bytes;
    atomic_size_t n_used; /* pages up to the highest that was written; any thread */
    size_t
        prepared_bytes; /* from the first on; SIZE_MAX: no more can be prefaulted. kv_prepare's */
};

/* Returns where the next layer begins. */
static size_t layer_place(struct cpu_kv_layer *l, const struct kv_layer *is, enum kv_type type,
                          size_t at)
{
    size_t padded = (is->head_dim + SCALAR_LANES - 1) / SCALAR_LANES * SCALAR_LANES;
    size_t scales = KV_PAGE_TOKENS * sizeof(float);
    struct kv_view *v = &l->view;

    v->type = type;
    v->head_dim = is->head_dim;
    v->padded_dim = padded;
    v->values_at = kv_row_bytes(type, KV_PAGE_TOKENS * is->head_dim) + scales;
    v->head_bytes = v->values_at + kv_row_bytes(type, KV_PAGE_TOKENS * padded) + scales;
    l->n_kv_heads = is->n_kv_heads;
    l->row_width = is->row_width;
    l->at = at;
    l->rows_at = at + is->n_kv_heads * v->head_bytes;
    return l->rows_at + KV_PAGE_TOKENS * is->row_width * sizeof(float);
}

static enum status kv_place_layers(struct kv *kv, struct error *err)
{
    for (size_t i = 0; i < kv->shape.n_layers; i++) {
        struct kv_layer is = kv_layer_of(&kv->shape, i);

        if (is.head_dim > KERNELS_HEAD_DIM)
            return error_set(
                err, STATUS_UNIMPLEMENTED,
                "the model's heads have %zu dimensions, this backend computes at most %d",
                is.head_dim, (int)KERNELS_HEAD_DIM);
        kv->page_bytes = layer_place(&kv->layers[i], &is, kv->shape.type, kv->page_bytes);
        if (kv->page_bytes == 0)
            kv->first_layer = i + 1;
    }
    for (size_t i = 0; i < kv->shape.n_layers; i++)
        kv->layers[i].view.page_bytes = kv->page_bytes;
    kv->shape.layers = NULL; /* the caller's */
    return STATUS_OK;
}

enum status cpu_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                        struct error *err)
{
    struct kv *kv = try_alloc(1, sizeof(*kv));
    size_t all_bytes = SIZE_MAX;
    enum status rc;

    if (kv == NULL)
        return error_no_memory(err, sizeof(*kv), "keys and values");
    kv->shape = *shape;
    kv->layers = try_alloc(shape->n_layers, sizeof(*kv->layers));
    rc = kv->layers == NULL ? error_no_memory(err, shape->n_layers * sizeof(*kv->layers), "layers")
                            : kv_place_layers(kv, err);
    if (rc == STATUS_OK && !__builtin_mul_overflow(shape->n_pages, kv->page_bytes, &all_bytes))
        kv->base = cpu_map(all_bytes);
    if (rc == STATUS_OK && kv->base == NULL)
        rc = error_no_memory(err, all_bytes, "keys and values");
    if (rc == STATUS_OK) {
        *out = kv;
        return STATUS_OK;
    }
    free(kv->layers);
    free(kv);
    return rc;
}

void cpu_kv_close(struct backend *b, struct kv *kv)
{
    if (kv != NULL) {
        cpu_unmap(kv->base, kv->shape.n_pages * kv->page_bytes);
        free(kv->layers);
    }
    free(kv);
}

bool cpu_kv_prepare(struct backend *b, struct kv *kv, bool is_busy)
{
    size_t all_bytes = kv->shape.n_pages * kv->page_bytes;
    size_t used_bytes = atomic_load(&kv->n_used) * kv->page_bytes;
    /* On a virtual machine, the first touch of memory that the host must allocate runs at 0.3 GB/s,
     * later ones at 6: half of the pool is prefaulted. While steps run, only what a prompt of some
     * thousand tokens takes, since prefaulting slows them down. */
    size_t ahead = is_busy && all_bytes / 2 > BUSY_BYTES ? BUSY_BYTES : all_bytes / 2;
    size_t goal = all_bytes - used_bytes < ahead ? all_bytes : used_bytes + ahead;
    size_t piece;

    if (kv->prepared_bytes < used_bytes) /* pages that were written are mapped */
        kv->prepared_bytes = used_bytes / CPU_HUGE_BYTES * CPU_HUGE_BYTES;
    if (kv->prepared_bytes >= goal)
        return false;
    piece = all_bytes - kv->prepared_bytes;
    piece = piece < CPU_HUGE_BYTES ? piece : CPU_HUGE_BYTES;
    if (!cpu_populate(kv->base + kv->prepared_bytes, piece)) {
        kv->prepared_bytes = SIZE_MAX;
        return false;
    }
    kv->prepared_bytes += piece;
    return kv->prepared_bytes < goal;
}

static bool is_page(const struct kv *kv, int32_t page)
{
    return page >= 0 && (size_t)page < kv->shape.n_pages;
}

void cpu_kv_copy(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page)
{
    size_t size = kv->page_bytes;

    assert(is_page(kv, from_page) && is_page(kv, to_page) && from_page != to_page);
    memcpy(kv->base + (size_t)to_page * size, kv->base + (size_t)from_page * size, size);
}

size_t cpu_kv_image_bytes(const struct kv *kv)
{
    return kv->page_bytes;
}

void cpu_kv_read(const struct kv *kv, int32_t page, void *out)
{
    assert(is_page(kv, page));
    memcpy(out, kv->base + (size_t)page * kv->page_bytes, kv->page_bytes);
}

/* Pages up to this one are in use now. */
static void note_used(struct kv *kv, size_t n_here)
{
    size_t n_used = atomic_load(&kv->n_used);

    while (n_used < n_here && !atomic_compare_exchange_weak(&kv->n_used, &n_used, n_here))
        ;
}

void cpu_kv_write(struct backend *b, struct kv *kv, int32_t page, const void *image)
{
    assert(is_page(kv, page));
    note_used(kv, (size_t)page + 1);
    memcpy(kv->base + (size_t)page * kv->page_bytes, image, kv->page_bytes);
}

static struct kv_view kv_view_of(const struct kv *kv, size_t layer)
{
    struct kv_view v;

    assert(layer < kv->shape.n_layers);
    v = kv->layers[layer].view;
    v.base = kv->base + kv->layers[layer].at;
    return v;
}

/* Plans. */

static size_t cpu_sequence_pages_for(size_t n_tokens)
{
    return (n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

/* Orders by pages, so that rows with a common prefix are neighbours. */
static bool comes_before(const struct attend_row *a, const struct attend_row *b)
{
    size_t n_a = cpu_sequence_pages_for(a->pos + a->n_tokens),
           n_b = cpu_sequence_pages_for(b->pos + b->n_tokens);

    for (size_t i = 0; i < n_a && i < n_b; i++)
        if (a->pages[i] != b->pages[i])
            return a->pages[i] < b->pages[i];
    return n_a < n_b;
}

/* Shell sort: takes no memory, and is fast for the few rows of a step. */
static void sort_rows(const struct attend_row **rows, size_t n)
{
    for (size_t gap = n / 2; gap > 0; gap /= 2)
        for (size_t i = gap; i < n; i++) {
            const struct attend_row *row = rows[i];
            size_t j = i;

            for (; j >= gap && comes_before(row, rows[j - gap]); j -= gap)
                rows[j] = rows[j - gap];
            rows[j] = row;
        }
}

static size_t count_tokens(const struct kv *kv, const struct attend_row *rows, size_t n_rows)
{
    size_t n = 0;

    for (const struct attend_row *r = rows; r < rows + n_rows; r++) {
        for (size_t i = 0; i < cpu_sequence_pages_for(r->pos + r->n_tokens); i++)
            assert(is_page(kv, r->pages[i]));
        n += r->n_tokens;
    }
    return n;
}

/* Lists the tokens of all rows, as neighbours where they share pages. The plan is valid until the
 * next sync, as the rows are: a step makes it once for all layers. */
static bool cpu_sequence_plan_tokens(struct cpu *c, const struct kv *kv,
                                     const struct attend_row *rows, size_t n_rows)
{
    struct plan *p = &c->plan;
    size_t n_tokens;

    if (p->kv == kv && p->rows == rows && p->n_rows == n_rows)
        return true;
    p->kv = NULL;
    n_tokens = count_tokens(kv, rows, n_rows);
    if (!cpu_reserve(c, (void **)&p->order, &p->order_cap, n_rows, sizeof(void *),
                     "a batch's rows") ||
        !cpu_reserve(c, (void **)&p->tokens, &p->tokens_cap, n_tokens, sizeof(*p->tokens),
                     "a batch's tokens"))
        return false;
    for (size_t i = 0; i < n_rows; i++)
        p->order[i] = &rows[i];
    sort_rows(p->order, n_rows);
    p->n_tokens = p->end = 0;
    for (size_t i = 0; i < n_rows; i++) {
        const struct attend_row *r = p->order[i];

        p->end = r->first + r->n_tokens > p->end ? r->first + r->n_tokens : p->end;
        for (size_t t = 0; t < r->n_tokens; t++)
            p->tokens[p->n_tokens++] = (struct attend_token){.pages = r->pages,
                                                             .n = attend_row_end(r, t),
                                                             .own = r->pos + t + 1,
                                                             .row = r->first + t};
    }
    p->kv = kv;
    p->rows = rows;
    p->n_rows = n_rows;
    p->n_items = 0;
    return true;
}

static bool are_worth_joining(const struct attend_token *a, const struct attend_token *b)
{
    return a->pages == b->pages ||
           (cpu_sequence_pages_for(a->n) >= SHARED_PAGES &&
            cpu_sequence_pages_for(b->n) >= SHARED_PAGES &&
            memcmp(a->pages, b->pages, SHARED_PAGES * sizeof(*a->pages)) == 0);
}

/* The number of spans of the token that sees the most. */
static size_t count_spans(const struct attend_token *tokens, size_t n)
{
    size_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = tokens[i].n > most ? tokens[i].n : most;
    return (most + ATTEND_SPAN - 1) / ATTEND_SPAN;
}

/* Of positions begin … end - 1. */
static size_t cpu_sequence_cost_of(const struct attend_token *tokens, size_t n, size_t n_sharing,
                                   size_t begin, size_t end)
{
    size_t most = 0, sum = 0;

    for (size_t i = 0; i < n; i++) {
        size_t last = tokens[i].n < end ? tokens[i].n : end;
        size_t n_pages = last > begin ? cpu_sequence_pages_for(last - begin) : 0;

        most = n_pages > most ? n_pages : most;
        sum += n_pages;
    }
    return most * WIDEN_COST + sum * n_sharing;
}

/* Of n tokens from `first` on, one key head. */
static size_t cost_of_all(const struct plan *p, size_t first, size_t n)
{
    return cpu_sequence_cost_of(p->tokens + first, n, p->n_heads / p->n_kv_heads, 0, SIZE_MAX);
}

/* The number of tokens from `first` on, at most `most`, that share a block. */
static size_t count_together(const struct plan *p, size_t first, size_t most)
{
    size_t n = 1;

    while (n < most && first + n < p->n_tokens &&
           are_worth_joining(&p->tokens[first], &p->tokens[first + n]))
        n++;
    return n;
}

/* Of one key head, n_parts of them by positions. */
static void add_items(struct plan *p, struct attend_item item, size_t n_parts)
{
    const struct attend_token *t = &p->tokens[item.first];
    size_t n_spans = count_spans(t, item.n_tokens);
    size_t n_floats = item.n_tokens * item.n_sharing * n_spans * p->span_floats;

    n_parts = n_parts < n_spans ? n_parts : n_spans;
    if (p->n_floats + n_floats > MOST_FLOATS)
        n_parts = 1;
    if (n_parts > 1) {
        item.group = &p->groups[p->n_groups++];
        atomic_init(&item.group->n_left, n_parts);
        item.group->n_items = n_parts;
        item.group->n_spans = n_spans;
        item.group->spans_at = p->n_floats;
        p->n_floats += n_floats;
    }
    assert(p->n_items + n_parts <= p->items_cap);
    for (size_t i = 0; i < n_parts; i++) {
        item.begin = n_spans * i / n_parts * ATTEND_SPAN;
        item.end = n_spans * (i + 1) / n_parts * ATTEND_SPAN;
        item.cost_before = p->cost;
        p->cost += cpu_sequence_cost_of(t, item.n_tokens, item.n_sharing, item.begin, item.end);
        p->items[p->n_items++] = item;
    }
}

/* n tokens from `first` on that are attended to together. */
static void cpu_sequence_add_block(struct plan *p, size_t first, size_t n, size_t n_together,
                                   size_t n_parts)
{
    size_t n_sharing = p->n_heads / p->n_kv_heads;
    struct attend_item item = {.first = first, .n_tokens = n};

    for (item.head = 0; item.head < p->n_kv_heads; item.head++)
        for (item.skip = 0; item.skip < n_sharing; item.skip += n_together) {
            size_t left = n_sharing - item.skip;

            item.n_sharing = left < n_together ? left : n_together;
            add_items(p, item, n_parts);
        }
}

/* The cost that a thread takes at once, of one key head, if blocks can be cut so small. */
static size_t piece_cost(const struct cpu *c, size_t most)
{
    const struct plan *p = &c->plan;
    size_t n_pieces =
        thread_pool_size(c->pool) > 1 ? PIECES_A_THREAD * thread_pool_size(c->pool) : 1;
    size_t cost = 0;

    for (size_t first = 0, n; first < p->n_tokens; first += n) {
        n = count_together(p, first, most);
        cost += p->n_kv_heads * cost_of_all(p, first, n);
    }
    cost = (cost + n_pieces - 1) / n_pieces;
    return cost > LEAST_COST ? cost : LEAST_COST;
}

/* Cuts the tokens into blocks, and those into items, one for each key head, or several where more
 * query heads share one than a block holds. Items that cost more than a thread is to take at once
 * are cut further: by positions as far as there are spans, since each item then reads its own; else
 * by tokens, which then all read the same pages. */
static bool plan_items(struct cpu *c, size_t n_heads, const struct cpu_kv_layer *l)
{
    struct plan *p = &c->plan;
    size_t n_kv_heads = l->n_kv_heads, n_sharing = n_heads / n_kv_heads;
    size_t n_together = n_sharing < ATTEND_QUERIES ? n_sharing : ATTEND_QUERIES;
    size_t n_splits = (n_sharing + n_together - 1) / n_together, most = ATTEND_QUERIES / n_together;
    /* a block cut in n parts has less than 2 n items of a head; n is its share of all pieces, or
     * up to 1 more */
    size_t n_most =
        n_splits * (2 * PIECES_A_THREAD * thread_pool_size(c->pool) + p->n_tokens * n_kv_heads);
    size_t piece, n;

    if (p->n_items > 0 && p->n_heads == n_heads && p->n_kv_heads == n_kv_heads &&
        p->span_floats == attend_span_floats(&l->view))
        return true;
    if (!cpu_reserve(c, (void **)&p->items, &p->items_cap, n_most, sizeof(*p->items),
                     "a batch's pieces") ||
        !cpu_reserve(c, (void **)&p->groups, &p->groups_cap, n_most, sizeof(*p->groups),
                     "a batch's pieces"))
        return false;
    p->n_heads = n_heads;
    p->n_kv_heads = n_kv_heads;
    p->span_floats = attend_span_floats(&l->view);
    p->n_items = p->n_groups = p->n_floats = p->cost = 0;
    piece = piece_cost(c, most);
    for (size_t first = 0; first < p->n_tokens; first += n) {
        size_t n_parts, n_spans, step;

        n = count_together(p, first, most);
        n_parts = (cost_of_all(p, first, n) + piece - 1) / piece;
        n_spans = count_spans(p->tokens + first, n);
        step = n_spans < n_parts ? (n * n_spans + n_parts - 1) / n_parts : n;
        for (size_t i = 0; i < n; i += step)
            cpu_sequence_add_block(p, first + i, n - i < step ? n - i : step, n_together, n_parts);
    }
    assert(p->cost <= UINT32_MAX);
    if (!cpu_reserve(c, (void **)&p->spans, &p->spans_cap, p->n_floats, sizeof(*p->spans),
                     "a batch's outputs by span")) {
        p->n_items = 0;
        return false;
    }
    return true;
}

void cpu_plan_free(struct plan *p)
{
    free(p->order);
    free(p->tokens);
    free(p->items);
    free(p->groups);
    free(p->spans);
    *p = (struct plan){0};
}

/* The operators. */

struct store {
    const struct cpu *cpu;
    struct kv_view kv;
    size_t n_kv_heads;
    const float *k, *v;
};

static void store_piece(void *arg, size_t begin, size_t end)
{
    const struct store *s = arg;

    for (const struct attend_token *t = s->cpu->plan.tokens + begin; t < s->cpu->plan.tokens + end;
         t++) {
        size_t pos = t->own - 1, at = t->row * s->n_kv_heads * s->kv.head_dim;

        for (size_t h = 0; h < s->n_kv_heads; h++, at += s->kv.head_dim)
            s->cpu->kernels->kv_store(&s->kv, t->pages[pos / KV_PAGE_TOKENS], pos % KV_PAGE_TOKENS,
                                      h, s->k + at, s->v + at);
    }
}

static void note_pages(struct kv *kv, const struct attend_row *rows, size_t n_rows)
{
    size_t n_here = 0;

    for (const struct attend_row *r = rows; r < rows + n_rows; r++)
        for (size_t i = r->pos / KV_PAGE_TOKENS; i < cpu_sequence_pages_for(r->pos + r->n_tokens);
             i++)
            n_here = n_here > (size_t)r->pages[i] ? n_here : (size_t)r->pages[i] + 1;
    note_used(kv, n_here);
}

void cpu_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                  const struct buffer *v, const struct attend_row *rows, size_t n_rows)
{
    struct cpu *c = to_cpu(b);
    const struct cpu_kv_layer *l = &kv->layers[layer];
    size_t width = l->n_kv_heads * l->view.head_dim;
    struct store s = {.cpu = c, .kv = kv_view_of(kv, layer), .n_kv_heads = l->n_kv_heads};

    if (!cpu_sequence_plan_tokens(c, kv, rows, n_rows))
        return;
    if (layer == kv->first_layer) /* of a step */
        note_pages(kv, rows, n_rows);
    s.k = cpu_read(k, c->plan.end, width);
    s.v = cpu_read(v, c->plan.end, width);
    thread_pool_for(c->pool, c->plan.n_tokens, 1 + PIECE_VALUES / (1 + width), store_piece, &s);
}

/* A convolution of rows: they are stored first, since others are read. */
struct convolution {
    const struct cpu *cpu;
    const struct kv *kv;
    const struct cpu_kv_layer *layer;
    const float *taps, *x;
    size_t n_taps;
    float *out;
};

static float *cpu_kv_row_of(const struct convolution *c, const int32_t *pages, size_t pos)
{
    uint8_t *rows =
        c->kv->base + (size_t)pages[pos / KV_PAGE_TOKENS] * c->kv->page_bytes + c->layer->rows_at;

    return (float *)(void *)rows + pos % KV_PAGE_TOKENS * c->layer->row_width;
}

static void store_rows_piece(void *arg, size_t begin, size_t end)
{
    const struct convolution *c = arg;
    size_t width = c->layer->row_width;

    for (const struct attend_token *t = c->cpu->plan.tokens + begin; t < c->cpu->plan.tokens + end;
         t++)
        memcpy(cpu_kv_row_of(c, t->pages, t->own - 1), c->x + t->row * width,
               width * sizeof(*c->x));
}

static void conv_piece(void *arg, size_t begin, size_t end)
{
    const struct convolution *c = arg;
    size_t width = c->layer->row_width;

    for (const struct attend_token *t = c->cpu->plan.tokens + begin; t < c->cpu->plan.tokens + end;
         t++) {
        float *out = c->out + t->row * width;

        for (size_t tap = 0; tap < c->n_taps; tap++) {
            size_t back = c->n_taps - tap; /* positions, its own included */

            if (back <= t->own)
                c->cpu->kernels->add_tap(c->taps, c->n_taps, tap,
                                         cpu_kv_row_of(c, t->pages, t->own - back), width, out);
            else
                memset(out, 0, width * sizeof(*out));
        }
    }
}

void cpu_kv_conv(struct backend *b, struct kv *kv, size_t layer, const struct weight *taps,
                 size_t n_taps, const struct buffer *x, const struct attend_row *rows,
                 size_t n_rows, struct buffer *out)
{
    struct cpu *c = to_cpu(b);
    struct convolution w = {
        .cpu = c, .kv = kv, .layer = &kv->layers[layer], .taps = taps->row, .n_taps = n_taps};
    size_t width = w.layer->row_width;

    assert(taps->row != NULL && taps->tensor.n_cols == width * n_taps);
    if (!cpu_sequence_plan_tokens(c, kv, rows, n_rows))
        return;
    if (layer == kv->first_layer) /* of a step */
        note_pages(kv, rows, n_rows);
    w.x = cpu_read(x, c->plan.end, width);
    w.out = cpu_written(out, c->plan.end, width);
    thread_pool_for(c->pool, c->plan.n_tokens, 1 + PIECE_VALUES / (1 + width), store_rows_piece,
                    &w);
    thread_pool_for(c->pool, c->plan.n_tokens, 1 + PIECE_VALUES / (1 + width), conv_piece, &w);
}

struct attending {
    const struct cpu *cpu;
    const struct attention *how;
    struct kv_view kv;
    float factor;
    const float *sinks; /* [n_heads], or NULL */
    size_t stride;
    const float *q;
    float *out;
};

/* The first item that costs begin or more come before. */
static const struct attend_item *item_from(const struct plan *p, size_t begin)
{
    size_t low = 0, high = p->n_items;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (p->items[middle].cost_before < begin)
            low = middle + 1;
        else
            high = middle;
    }
    return &p->items[low];
}

/* Runs the items that begin at costs begin … end - 1. */
static void attend_piece(void *arg, size_t begin, size_t end)
{
    const struct attending *a = arg;
    const struct plan *p = &a->cpu->plan;
    const struct attend_item *last = &p->items[p->n_items - 1];

    for (const struct attend_item *i = item_from(p, begin); i <= last && i->cost_before < end;
         i++) {
        const struct attend_item *next = i < last ? i + 1 : i;
        size_t skip =
            (i->head * (a->stride / a->kv.head_dim / p->n_kv_heads) + i->skip) * a->kv.head_dim;
        struct attend_block block = {
            .kv = a->kv,
            .head = i->head,
            .n_sharing = i->n_sharing,
            .n_tokens = i->n_tokens,
            .tokens = p->tokens + i->first,
            .begin = i->begin,
            .end = i->end,
            .window = a->how->window,
            .window_is_chunk = a->how->window_is_chunk,
            .factor = a->factor,
            .cap = a->how->cap * SCALAR_LOG2_E,
            .sinks = a->sinks != NULL ? a->sinks + skip / a->kv.head_dim : NULL,
            .q = a->q + skip,
            .out = a->out + skip,
            .stride = a->stride,
            .next = p->tokens + next->first,
            .next_head = next->head,
        };

        if (i->group != NULL) {
            block.spans = p->spans + i->group->spans_at;
            block.n_spans = i->group->n_spans;
        }
        a->cpu->kernels->attend(&block);
        if (i->group != NULL && atomic_fetch_sub(&i->group->n_left, 1) == 1) {
            atomic_store(&i->group->n_left, i->group->n_items); /* for the next layer */
            a->cpu->kernels->attend_merge(&block);
        }
    }
}

void cpu_attend(struct backend *b, const struct kv *kv, size_t layer, const struct attention *how,
                const struct buffer *q, const struct attend_row *rows, size_t n_rows,
                struct buffer *out)
{
    struct cpu *c = to_cpu(b);
    const struct cpu_kv_layer *l = &kv->layers[layer];
    size_t n_heads = how->n_heads, head_dim = l->view.head_dim, width = n_heads * head_dim;
    struct attending a = {.cpu = c,
                          .how = how,
                          .kv = kv_view_of(kv, layer),
                          .factor = attend_factor(head_dim, how->scale, how->cap),
                          .sinks = how->sinks != NULL ? how->sinks->row : NULL,
                          .stride = width};

    assert(n_heads % l->n_kv_heads == 0);
    if (!cpu_sequence_plan_tokens(c, kv, rows, n_rows) || !plan_items(c, n_heads, l))
        return;
    a.q = cpu_read(q, c->plan.end, width);
    a.out = cpu_written(out, c->plan.end, width);
    thread_pool_for(c->pool, c->plan.cost, PIECE_COST, attend_piece, &a);
}
