/* What knows positions: rope, the pages of keys and values, attention. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cpu/panels.h"
#include "compute/cpu/parts.h"

enum {
    MAX_HEAD_DIM = 256,
    PIECE_VALUES = 4096, /* of rope or keys and values: less is not worth handing out */
    MIN_POSITIONS = 256, /* of a rope table */
};

/* Rope. */

void cpu_rope_free(struct rope_table *t)
{
    free(t->scale);
    free(t->cosines);
    free(t->sines);
    *t = (struct rope_table){0};
}

static bool is_table_of(const struct rope_table *t, const struct rope *r)
{
    if (t->head_dim != r->head_dim || t->base != r->base ||
        (t->scale == NULL) != (r->scale == NULL))
        return false;
    return r->scale == NULL || memcmp(t->scale, r->scale, r->head_dim / 2 * sizeof *r->scale) == 0;
}

/* The angles of ref_rope, in double for the same reason. */
static void fill_table(struct rope_table *t, size_t first)
{
    for (size_t j = 0; j < t->head_dim / 2; j++) {
        double frequency = pow((double)t->base, -2.0 * (double)j / (double)t->head_dim);

        if (t->scale != NULL)
            frequency /= (double)t->scale[j];
        for (size_t pos = first; pos < t->n_positions; pos++) {
            double angle = (double)pos * frequency;
            float *cosine = t->cosines + pos * t->head_dim + 2 * j;
            float *sine = t->sines + pos * t->head_dim + 2 * j;

            cosine[0] = cosine[1] = (float)cos(angle);
            sine[1] = (float)sin(angle);
            sine[0] = -sine[1];
        }
    }
}

/* Makes the table hold positions below n, of the rope r. */
static bool table_for(struct cpu *c, const struct rope *r, size_t n)
{
    struct rope_table *t = &c->rope;
    size_t first, size_bytes = r->head_dim / 2 * sizeof *r->scale;
    struct error err;
    float *more;

    if (!is_table_of(t, r)) {
        cpu_rope_free(t);
        if (r->scale != NULL) {
            t->scale = try_alloc(1, size_bytes);
            if (t->scale == NULL)
                goto failed;
            memcpy(t->scale, r->scale, size_bytes);
        }
        t->base = r->base;
        t->head_dim = r->head_dim;
    }
    if (n <= t->n_positions)
        return true;
    first = t->n_positions;
    n = n < 2 * first ? 2 * first : n < MIN_POSITIONS ? MIN_POSITIONS : n;
    size_bytes = r->head_dim * sizeof *more;
    more = try_realloc(t->cosines, n, size_bytes);
    if (more == NULL)
        goto failed;
    t->cosines = more;
    more = try_realloc(t->sines, n, size_bytes);
    if (more == NULL)
        goto failed;
    t->sines = more;
    t->n_positions = n;
    fill_table(t, first);
    return true;
failed:
    (void)error_no_memory(&err, (uint64_t)n * size_bytes, "rope");
    cpu_fail(c, &err);
    return false;
}

struct rotation {
    const struct cpu *cpu;
    size_t n_heads;
    const uint32_t *positions;
    float *x;
};

static void rope_piece(void *arg, size_t begin, size_t end)
{
    const struct rotation *r = arg;
    const struct rope_table *t = &r->cpu->rope;

    for (size_t i = begin; i < end; i++)
        r->cpu->kernels->rope(r->x + i * r->n_heads * t->head_dim, r->n_heads, t->head_dim,
                              t->cosines + r->positions[i] * t->head_dim,
                              t->sines + r->positions[i] * t->head_dim);
}

void cpu_rope(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
              struct buffer *x)
{
    struct cpu *c = to_cpu(b);
    size_t width = r->n_heads * r->head_dim, end = 0;
    struct rotation rotation = {c, r->n_heads, positions, cpu_written(c, x, n, width)};

    for (size_t i = 0; i < n; i++)
        end = positions[i] >= end ? positions[i] + (size_t)1 : end;
    if (table_for(c, r, end))
        team_for(c->team, n, 1 + PIECE_VALUES / (1 + width), rope_piece, &rotation);
}

/* Keys and values: [n_pages][n_layers][n_kv_heads], each as kv_view says. */

struct kv {
    struct kv_shape shape;
    struct kv_view view; /* of layer 0 */
    size_t layer_bytes;
};

enum status cpu_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                        struct error *err)
{
    size_t padded = (shape->head_dim + ACT_ROWS - 1) / ACT_ROWS * ACT_ROWS;
    size_t value_bytes = shape->type == KV_F16 ? sizeof(uint16_t) : sizeof(float);
    struct kv *kv;
    size_t all_bytes;

    (void)b;
    if (shape->head_dim > MAX_HEAD_DIM)
        return error_set(err, STATUS_UNIMPLEMENTED, "heads of %zu dimensions, at most %d are done",
                         shape->head_dim, (int)MAX_HEAD_DIM);
    kv = try_alloc(1, sizeof *kv);
    if (kv == NULL)
        return error_no_memory(err, sizeof *kv, "keys and values");
    kv->shape = *shape;
    kv->view.type = shape->type;
    kv->view.head_dim = shape->head_dim;
    kv->view.padded_dim = padded;
    kv->view.head_bytes = KV_PAGE_TOKENS * (shape->head_dim + padded) * value_bytes;
    kv->layer_bytes = shape->n_kv_heads * kv->view.head_bytes;
    kv->view.page_bytes = shape->n_layers * kv->layer_bytes;
    if (!__builtin_mul_overflow(shape->n_pages, kv->view.page_bytes, &all_bytes))
        kv->view.base = cpu_map(all_bytes);
    else
        all_bytes = SIZE_MAX;
    if (kv->view.base == NULL) {
        free(kv);
        return error_no_memory(err, all_bytes, "keys and values");
    }
    *out = kv;
    return STATUS_OK;
}

void cpu_kv_close(struct backend *b, struct kv *kv)
{
    (void)b;
    if (kv != NULL)
        cpu_unmap(kv->view.base, kv->shape.n_pages * kv->view.page_bytes);
    free(kv);
}

static bool is_page(const struct kv *kv, int32_t page)
{
    return page >= 0 && (size_t)page < kv->shape.n_pages;
}

void cpu_kv_copy(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page)
{
    size_t size = kv->view.page_bytes;

    (void)b;
    assert(is_page(kv, from_page) && is_page(kv, to_page) && from_page != to_page);
    memcpy(kv->view.base + (size_t)to_page * size, kv->view.base + (size_t)from_page * size, size);
}

static struct kv_view view_of(const struct kv *kv, size_t layer)
{
    struct kv_view v = kv->view;

    assert(layer < kv->shape.n_layers);
    v.base += layer * kv->layer_bytes;
    return v;
}

/* A ragged batch, cut in pieces that are counted through all rows. */
struct ragged {
    const struct cpu *cpu;
    struct kv_view kv;
    const struct attend_row *rows;
    size_t n_rows;
    size_t n_kv_heads, n_sharing; /* query heads of one key head */
    size_t n_together, n_tokens;  /* of a piece: query heads, tokens */
    size_t n_splits;              /* pieces that the heads of a key head make */
    const float *k, *v, *q;
    float *out;
};

/* Row of piece i. */
static size_t row_of(const struct ragged *g, size_t i)
{
    size_t low = 0, high = g->n_rows;

    while (high - low > 1) {
        size_t middle = (low + high) / 2;

        if (g->cpu->starts[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void store_piece(void *arg, size_t begin, size_t end)
{
    const struct ragged *g = arg;
    size_t width = g->n_kv_heads * g->kv.head_dim, row = row_of(g, begin);

    for (size_t i = begin; i < end; i++) {
        const struct attend_row *r;
        size_t pos, at;

        while (g->cpu->starts[row + 1] <= i)
            row++;
        r = &g->rows[row];
        pos = r->pos + (i - g->cpu->starts[row]);
        at = (r->first + (i - g->cpu->starts[row])) * width;
        for (size_t h = 0; h < g->n_kv_heads; h++, at += g->kv.head_dim)
            g->cpu->kernels->kv_store(&g->kv, r->pages[pos / KV_PAGE_TOKENS], pos % KV_PAGE_TOKENS,
                                      h, g->k + at, g->v + at);
    }
}

/* Counts pieces: of each row's n_tokens, n_tokens at a time, n_each for each such chunk. */
static size_t count_pieces(struct cpu *c, const struct attend_row *rows, size_t n_rows,
                           size_t n_tokens, size_t n_each)
{
    size_t n = 0;

    if (!cpu_reserve(c, (void **)&c->starts, &c->starts_cap, n_rows + 1, sizeof *c->starts,
                     "a batch's rows"))
        return 0;
    for (size_t i = 0; i < n_rows; i++) {
        c->starts[i] = (uint32_t)n;
        n += (rows[i].n_tokens + n_tokens - 1) / n_tokens * n_each;
    }
    assert(n <= UINT32_MAX);
    c->starts[n_rows] = (uint32_t)n;
    return n;
}

static size_t rows_end(const struct kv *kv, const struct attend_row *rows, size_t n_rows)
{
    size_t end = 0;

    for (const struct attend_row *r = rows; r < rows + n_rows; r++) {
        size_t n_pages = (r->pos + r->n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;

        for (size_t i = 0; i < n_pages; i++)
            assert(is_page(kv, r->pages[i]));
        end = r->first + r->n_tokens > end ? r->first + r->n_tokens : end;
    }
    return end;
}

void cpu_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                  const struct buffer *v, const struct attend_row *rows, size_t n_rows)
{
    struct cpu *c = to_cpu(b);
    size_t width = kv->shape.n_kv_heads * kv->shape.head_dim, end = rows_end(kv, rows, n_rows);
    struct ragged g = {
        .cpu = c,
        .kv = view_of(kv, layer),
        .rows = rows,
        .n_rows = n_rows,
        .n_kv_heads = kv->shape.n_kv_heads,
        .k = cpu_read(k, end, width),
        .v = cpu_read(v, end, width),
    };
    size_t n = count_pieces(c, rows, n_rows, 1, 1);

    team_for(c->team, n, 1 + PIECE_VALUES / (1 + width), store_piece, &g);
}

/* The keys that piece i + 1 begins with; i, of row, may be the last of all. */
static const void *next_keys(const struct ragged *g, size_t row, size_t i)
{
    size_t n_pieces = g->n_kv_heads * g->n_splits;
    const uint32_t *starts = g->cpu->starts;

    if (i + 1 < starts[row + 1])
        i++;
    else if (row + 1 < g->n_rows && starts[row + 2] > i + 1)
        i = starts[++row];
    return g->kv.base + (size_t)g->rows[row].pages[0] * g->kv.page_bytes +
           (i - starts[row]) % n_pieces / g->n_splits * g->kv.head_bytes;
}

static void attend_piece(void *arg, size_t begin, size_t end)
{
    const struct ragged *g = arg;
    size_t head_dim = g->kv.head_dim, row = row_of(g, begin);
    size_t n_pieces = g->n_kv_heads * g->n_splits; /* of a chunk of tokens */

    for (size_t i = begin; i < end; i++) {
        const struct attend_row *r;
        size_t token, head, split, n_left, at;
        struct attend_slice s = {.kv = g->kv};

        while (g->cpu->starts[row + 1] <= i)
            row++;
        r = &g->rows[row];
        token = (i - g->cpu->starts[row]) / n_pieces * g->n_tokens;
        head = (i - g->cpu->starts[row]) % n_pieces / g->n_splits;
        split = (i - g->cpu->starts[row]) % g->n_splits * g->n_together;
        s.stride = g->n_kv_heads * g->n_sharing * head_dim;
        at = (r->first + token) * s.stride + (head * g->n_sharing + split) * head_dim;
        n_left = r->n_tokens - token;
        s.pages = r->pages;
        s.head = head;
        s.n_sharing = g->n_sharing - split < g->n_together ? g->n_sharing - split : g->n_together;
        s.n_tokens = n_left < g->n_tokens ? n_left : g->n_tokens;
        s.pos = r->pos + token;
        s.next = next_keys(g, row, i);
        s.q = g->q + at;
        s.out = g->out + at;
        g->cpu->kernels->attend(&s);
    }
}

void cpu_attend(struct backend *b, const struct kv *kv, size_t layer, size_t n_heads,
                const struct buffer *q, const struct attend_row *rows, size_t n_rows,
                struct buffer *out)
{
    struct cpu *c = to_cpu(b);
    size_t width = n_heads * kv->shape.head_dim, end = rows_end(kv, rows, n_rows);
    size_t n_sharing = n_heads / kv->shape.n_kv_heads;
    size_t n_together = n_sharing < ATTEND_VECTORS ? n_sharing : ATTEND_VECTORS;
    struct ragged g = {
        .cpu = c,
        .kv = view_of(kv, layer),
        .rows = rows,
        .n_rows = n_rows,
        .n_kv_heads = kv->shape.n_kv_heads,
        .n_sharing = n_sharing,
        .n_together = n_together,
        .n_tokens = ATTEND_VECTORS / n_together,
        .n_splits = (n_sharing + n_together - 1) / n_together,
        .q = cpu_read(q, end, width),
        .out = cpu_written(c, out, end, width),
    };
    size_t n = count_pieces(c, rows, n_rows, g.n_tokens, g.n_kv_heads * g.n_splits);

    assert(n_heads % kv->shape.n_kv_heads == 0);
    team_for(c->team, n, 1, attend_piece, &g);
}
