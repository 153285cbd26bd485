/* Paged attention; attend_units.h has its arithmetic.
 *
 * A span's keys and values are rounded once for all queries of a block that see the same pages, and
 * held; then the span is processed for a few queries at a time, so that their scores and weights
 * stay in the L1 cache. With few queries in all, products read the pages themselves and round as
 * they read. Both products, of queries with keys and of weights with values, are the same: rows of
 * A, [depth] pairs, with B [depth][columns] of pairs. */
#include <assert.h>
#include <math.h>

#include "compute/cpu/isa.h"
#include "compute/cpu/pairs.h"
#include "compute/numerics/attend_units.h"

enum {
    SPAN = ATTEND_SPAN,
    CHUNK = ATTEND_CHUNK,
    CHUNK_PAGES = CHUNK / KV_PAGE_TOKENS,
    SPAN_CHUNKS = SPAN / CHUNK,
    SPAN_PAGES = SPAN / KV_PAGE_TOKENS,
    LINE_BYTES = 64,
    TILE = 6,        /* rows of A that share a load of B */
    MAX_VECTORS = 4, /* of B, side by side */
#if defined(__AVX512F__)
    SUMS = TILE * MAX_VECTORS, /* that registers hold, beside the operands */
#else
    SUMS = TILE,
#endif
};

_Static_assert((int)KV_PAGE_TOKENS == (int)LANES, "a row of a key page is one vector");
_Static_assert(ATTEND_WEIGHT_MOST << ATTEND_VALUE_BITS <= INT32_MAX / CHUNK,
               "a chunk's sums stay within int32");

/* One head of a token, and its results so far. */
struct query {
    const struct attend_token *token;
    const int16_t *q;   /* [padded_dim] */
    float unit;         /* of q, times the block's factor */
    float cap;          /* the block's */
    size_t first;       /* position of the first span that it sees */
    float *p;           /* while it is in a tile: [SPAN] scores, then z, */
    int16_t *weights;   /* [SPAN] those, */
    float *y;           /* [padded_dim] and this span's outputs */
    float *out;         /* [head_dim] of the spans before */
    size_t n_here;      /* positions of this span up to its own, */
    size_t skip;        /* of which it does not see the first ones */
    float max_here;     /* z of them */
    float sum_here;     /* of their weights */
    float max, sum;     /* of the spans before, and of the sink; sum is 0 if there are none */
    float before, here; /* what the outputs of both are multiplied by */
};

/* A span, for tokens that see the same pages of it. */
struct span {
    size_t first; /* position */
    size_t n_pages;
    /* where their keys begin; after the last page, as many as a chunk has that are read next */
    const uint8_t *pages[SPAN_PAGES + CHUNK_PAGES];
    bool in_place; /* else the span is held */
    /* By position: the factors that make keys integers (not for q8, whose are), and their units; e
     * of attend_units.h, and 2^-e, the factor that makes values integers; the factor that makes
     * weights integers. */
    _Alignas(64) float key_by[SPAN], key_units[SPAN];
    _Alignas(64) float value_exponents[SPAN], value_inverses[SPAN], weight_most[SPAN];
    /* The integers, where they are held: [chunks][pairs of dimensions][CHUNK], and
     * [pairs of positions][padded_dim], of these pages, -1: none. */
    int32_t held[SPAN_PAGES];
    _Alignas(64) int32_t keys[SPAN * KERNELS_HEAD_DIM / 2], values[SPAN * KERNELS_HEAD_DIM / 2];
};

struct attend_scratch {
    struct query queries[ATTEND_QUERIES];
    struct span span;
    _Alignas(64) int16_t q[ATTEND_QUERIES * KERNELS_HEAD_DIM];
    _Alignas(64) float p[TILE][SPAN], y[TILE * KERNELS_HEAD_DIM];
    _Alignas(64) int16_t weights[TILE][SPAN];
};

/* Numbers. */

/* attend_unit_exponent */
static struct v16 unit_exponents(struct v16 greatest, int bits)
{
    struct v16 e = v16_sub(v16_exponent(greatest), v16_all((float)(bits - 1)));

    e = v16_max(v16_all((float)ATTEND_LEAST_EXPONENT), e);
    return v16_add(e, v16_sub(greatest, greatest));
}

/* attend_power */
static struct v16 power_of_2(struct v16 e)
{
    return v16_power(v16_add(e, v16_all(ATTEND_MAGIC + 127.0f)));
}

/* Fills the span's factors for the positions of its page i. */
static void take_scales(const struct kv_view *kv, struct span *s, size_t i)
{
    size_t keys_at = kv_row_bytes(kv->type, kv->head_dim * KV_PAGE_TOKENS), at = i * LANES;
    size_t values_at = kv->values_at + kv_row_bytes(kv->type, kv->padded_dim * KV_PAGE_TOKENS);
    struct v16 keys = v16_load((const float *)(const void *)(s->pages[i] + keys_at));
    struct v16 values = v16_load((const float *)(const void *)(s->pages[i] + values_at));
    struct v16 none = v16_all(0.0f), most = v16_all((float)ATTEND_WEIGHT_MOST), e, inverse;
    bool is_q8 = kv->type == KV_Q8;

    __builtin_prefetch(s->pages[i + CHUNK_PAGES] + keys_at);
    __builtin_prefetch(s->pages[i + CHUNK_PAGES] + values_at);
    if (!is_q8) {
        e = unit_exponents(keys, ATTEND_KEY_BITS);
        v16_store(s->key_by + at, power_of_2(v16_sub(none, e)));
        keys = v16_add(power_of_2(e), v16_sub(keys, keys));
    }
    v16_store(s->key_units + at, keys);
    e = unit_exponents(values, is_q8 ? 0 : ATTEND_VALUE_BITS);
    inverse = power_of_2(v16_sub(none, e));
    v16_store(s->value_exponents + at, e);
    v16_store(s->value_inverses + at, inverse);
    v16_store(s->weight_most + at, is_q8 ? v16_mul(v16_mul(values, inverse), most) : most);
}

/* Products. */

enum source {
    HELD,
    KEYS,
    VALUES
}; /* of B: held integers, or the numbers of a chunk in its pages */

struct int_product {
    const int16_t *a[TILE]; /* [depth][2] */
    float *y[TILE];
    size_t depth;
    bool adds; /* to the contents of y */

    const int32_t *b; /* if held: a row's vectors side by side, stride from row to row */
    size_t stride;

    const uint8_t *pages[CHUNK_PAGES]; /* else; row_bytes: of a row of values */
    size_t row_bytes;
    const float *by; /* [CHUNK] */

    const uint8_t
        *next[CHUNK_PAGES]; /* prefetched meanwhile: if held, a line of [0] for each row */
};

static inline struct v16 attend_load(const uint8_t *from, enum kv_type type)
{
    return type == KV_F32 ? v16_load((const float *)(const void *)from)
                          : v16_load_f16((const uint16_t *)(const void *)from);
}

/* Rounds two rows of numbers of a page to integers; prefetches as many bytes of what is read
 * next. */
static FIXED_SIZE struct v16i round_pairs(const uint8_t *from, size_t row_bytes, enum kv_type type,
                                          struct v16 by_lower, struct v16 by_upper,
                                          const uint8_t *next)
{
    __builtin_prefetch(next);
    if (2 * kv_row_bytes(type, LANES) > LINE_BYTES)
        __builtin_prefetch(next + LINE_BYTES);
    if (type == KV_Q8)
        return v16i_pairs(v16i_load_i8((const int8_t *)from),
                          v16i_load_i8((const int8_t *)(from + row_bytes)));
    return v16i_pairs(v16_bits(v16_round(attend_load(from, type), by_lower)),
                      v16_bits(v16_round(attend_load(from + row_bytes, type), by_upper)));
}

/* Vector v of row k of B. source and type are constants where this is called. With an odd number of
 * dimensions, the last pair of a key is completed by any number, that of a query by 0. */
static FIXED_SIZE struct v16i operand(const struct int_product *m, enum source source,
                                      enum kv_type type, size_t k, size_t v)
{
    size_t vector_bytes = kv_row_bytes(type, LANES), page, skip;

    if (source == HELD)
        return v16i_load(m->b + k * m->stride + v * LANES);
    if (source == KEYS) {
        struct v16 by = v16_load(m->by + v * LANES);

        skip = 2 * k * vector_bytes;
        return round_pairs(m->pages[v] + skip, vector_bytes, type, by, by, m->next[v] + skip);
    }
    page = 2 * k / KV_PAGE_TOKENS;
    skip = 2 * k % KV_PAGE_TOKENS * m->row_bytes;
    return round_pairs(m->pages[page] + skip + v * vector_bytes, m->row_bytes, type,
                       v16_all(m->by[2 * k]), v16_all(m->by[2 * k + 1]),
                       m->next[page] + skip + 2 * v * vector_bytes);
}

/* source, type, n, first and n_vectors are constants where this is called. */
static FIXED_SIZE void int_product_multiply(const struct int_product *m, enum source source,
                                            enum kv_type type, size_t n, size_t first,
                                            size_t n_vectors)
{
    struct v16i sums[TILE][MAX_VECTORS];
    const int16_t *a[TILE] = {0};
    size_t depth = m->depth;

#pragma GCC unroll 6
    for (size_t i = 0; i < n; i++) {
        a[i] = m->a[i];
#pragma GCC unroll 4
        for (size_t v = 0; v < n_vectors; v++)
            sums[i][v] = v16i_all(0);
    }
    for (size_t k = 0; k < depth; k++) {
        struct v16i x[MAX_VECTORS];

#pragma GCC unroll 4
        for (size_t v = 0; v < n_vectors; v++)
            x[v] = operand(m, source, type, k, first + v);
        if (source == HELD)
            __builtin_prefetch(m->next[0] + k * LINE_BYTES);
#pragma GCC unroll 6
        for (size_t i = 0; i < n; i++) {
            int32_t pair;
            struct v16i all;

            memcpy(&pair, a[i] + 2 * k, sizeof(pair));
            all = v16i_all(pair);
#pragma GCC unroll 4
            for (size_t v = 0; v < n_vectors; v++)
                sums[i][v] = v16i_dot(all, x[v], sums[i][v]);
        }
    }
#pragma GCC unroll 6
    for (size_t i = 0; i < n; i++)
#pragma GCC unroll 4
        for (size_t v = 0; v < n_vectors; v++) {
            float *y = m->y[i] + (first + v) * LANES;
            struct v16 sum = v16i_to_floats(sums[i][v]);

            v16_store(y, m->adds ? v16_add(v16_load(y), sum) : sum);
        }
}

/* source, type and n are constants where this is called. */
static FIXED_SIZE void multiply_rows(const struct int_product *m, enum source source,
                                     enum kv_type type, size_t n, size_t n_vectors)
{
    size_t first = 0;

    if (SUMS / n >= 4 && n_vectors == 4) {
        int_product_multiply(m, source, type, n, 0, 4);
        return;
    }
    if (SUMS / n >= 3 && n_vectors == 3) {
        int_product_multiply(m, source, type, n, 0, 3);
        return;
    }
    for (; SUMS / n >= 2 && n_vectors - first >= 2; first += 2)
        int_product_multiply(m, source, type, n, first, 2);
    for (; first < n_vectors; first++)
        int_product_multiply(m, source, type, n, first, 1);
}

/* source and type are constants where this is called. */
static FIXED_SIZE void multiply_tile(const struct int_product *m, enum source source,
                                     enum kv_type type, size_t n, size_t n_vectors)
{
    switch (n) {
    case 1:
        multiply_rows(m, source, type, 1, n_vectors);
        break;
    case 2:
        multiply_rows(m, source, type, 2, n_vectors);
        break;
    case 3:
        multiply_rows(m, source, type, 3, n_vectors);
        break;
    case 4:
        multiply_rows(m, source, type, 4, n_vectors);
        break;
    case 5:
        multiply_rows(m, source, type, 5, n_vectors);
        break;
    default:
        multiply_rows(m, source, type, TILE, n_vectors);
    }
}

/* Each is a function of its own: compilers take twice as long over one that holds them all. */
#define MULTIPLY(name, source, type)                                                  \
    static __attribute__((noinline)) void name(const struct int_product *m, size_t n, \
                                               size_t n_vectors)                      \
    {                                                                                 \
        multiply_tile(m, source, type, n, n_vectors);                                 \
    }

MULTIPLY(multiply_held, HELD, KV_F32)
MULTIPLY(multiply_keys_f16, KEYS, KV_F16)
MULTIPLY(multiply_keys_q8, KEYS, KV_Q8)
MULTIPLY(multiply_keys_f32, KEYS, KV_F32)
MULTIPLY(multiply_values_f16, VALUES, KV_F16)
MULTIPLY(multiply_values_q8, VALUES, KV_Q8)
MULTIPLY(multiply_values_f32, VALUES, KV_F32)

/* y = A B, or y += A B, for n rows and n_vectors of B, MAX_VECTORS at most. */
static void int_product_run(const struct int_product *m, enum source source, enum kv_type type,
                            size_t n, size_t n_vectors)
{
    if (source == HELD)
        multiply_held(m, n, n_vectors);
    else if (type == KV_F16)
        (source == KEYS ? multiply_keys_f16 : multiply_values_f16)(m, n, n_vectors);
    else if (type == KV_Q8)
        (source == KEYS ? multiply_keys_q8 : multiply_values_q8)(m, n, n_vectors);
    else
        (source == KEYS ? multiply_keys_f32 : multiply_values_f32)(m, n, n_vectors);
}

/* Spans. */

/* Positions of the span that a token sees. */
static size_t seen(const struct attend_token *t, size_t span)
{
    size_t left = t->n > span ? t->n - span : 0;

    return left < SPAN ? left : SPAN;
}

/* The first position that a token sees. */
static size_t first_seen(const struct attend_block *b, const struct attend_token *t)
{
    return attend_first(t->own, b->window, b->window_is_chunk);
}

/* Positions of the span that lie before those. */
static size_t unseen(const struct attend_block *b, const struct attend_token *t, size_t span)
{
    size_t first = first_seen(b, t);

    return first > span ? (first - span < SPAN ? first - span : SPAN) : 0;
}

static size_t attend_pages_for(size_t n)
{
    return (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

/* Holds page i; prefetches ahead. type is a constant where this is called. */
static FIXED_SIZE void hold_page(const struct kv_view *kv, enum kv_type type, struct span *s,
                                 size_t i, const uint8_t *ahead)
{
    size_t depth = (kv->head_dim + 1) / 2, dim = kv->padded_dim;
    size_t vector_bytes = kv_row_bytes(type, LANES), row_bytes = kv_row_bytes(type, dim);
    const uint8_t *keys = s->pages[i], *values = keys + kv->values_at;
    int32_t *to = s->keys + i / CHUNK_PAGES * depth * CHUNK + i % CHUNK_PAGES * LANES;
    struct v16 by = v16_load(s->key_by + i * LANES);

    for (size_t k = 0; k < depth; k++, to += CHUNK) {
        size_t skip = 2 * k * vector_bytes;

        v16i_store(to, round_pairs(keys + skip, vector_bytes, type, by, by, ahead + skip));
    }
    to = s->values + i * KV_PAGE_TOKENS / 2 * dim;
    ahead += kv->values_at;
    for (size_t t = 0; t < KV_PAGE_TOKENS; t += 2) {
        struct v16 by_lower = v16_all(s->value_inverses[i * LANES + t]);
        struct v16 by_upper = v16_all(s->value_inverses[i * LANES + t + 1]);
        size_t skip = t * row_bytes;

        for (size_t d = 0; d < dim; d += LANES, to += LANES)
            v16i_store(to,
                       round_pairs(values + skip + kv_row_bytes(type, d), row_bytes, type, by_lower,
                                   by_upper, ahead + skip + 2 * kv_row_bytes(type, d)));
    }
}

/* Holds the span, except pages that are held already. What is read next is prefetched at a pace
 * that memory keeps up with: this span's pages here, those after it by products, one for each
 * chunk. */
static void hold_span(const struct kv_view *kv, struct span *s, const int32_t *ids)
{
    size_t n_chunks = (s->n_pages + CHUNK_PAGES - 1) / CHUNK_PAGES;

    for (size_t i = 0; i < s->n_pages; i++) {
        bool by_products = i + CHUNK_PAGES >= s->n_pages && i + CHUNK_PAGES < s->n_pages + n_chunks;
        const uint8_t *ahead = s->pages[by_products ? i : i + CHUNK_PAGES];

        if (s->held[i] == ids[i])
            continue;
        s->held[i] = ids[i];
        take_scales(kv, s, i);
        if (kv->type == KV_F16)
            hold_page(kv, KV_F16, s, i, ahead);
        else if (kv->type == KV_Q8)
            hold_page(kv, KV_Q8, s, i, ahead);
        else
            hold_page(kv, KV_F32, s, i, ahead);
    }
}

static const uint8_t *attend_page_at(const struct kv_view *kv, size_t head, int32_t page)
{
    return kv->base + (size_t)page * kv->page_bytes + head * kv->head_bytes;
}

/* Finds the pages that t sees of the span, and those that are read next: the next span's, or the
 * next block's. */
static void attend_find_pages(const struct attend_block *b, struct span *s,
                              const struct attend_token *t)
{
    size_t first = s->first / KV_PAGE_TOKENS, n = attend_pages_for(t->n),
           n_next = attend_pages_for(b->next->n);

    s->n_pages = attend_pages_for(seen(t, s->first));
    for (size_t i = 0; i < s->n_pages + CHUNK_PAGES; i++)
        if (first + i < n)
            s->pages[i] = attend_page_at(&b->kv, b->head, t->pages[first + i]);
        else
            s->pages[i] =
                attend_page_at(&b->kv, b->next_head,
                               b->next->pages[first + i - n < n_next ? first + i - n : n_next - 1]);
}

/* Tiles. */

/* Sets the pages of the chunk that begins with page `first`, and those that are read next: the next
 * chunk's; after the last chunk's keys the span's values, and after those the pages after the
 * span. */
static void read_in_place(struct int_product *m, const struct attend_block *b, const struct span *s,
                          size_t first, bool values)
{
    size_t here = values ? b->kv.values_at : 0, there = here, next = first + CHUNK_PAGES;

    if (next >= s->n_pages) {
        next = values ? s->n_pages : 0;
        there = values ? 0 : b->kv.values_at;
    }
    for (size_t i = 0; i < CHUNK_PAGES; i++) {
        m->pages[i] = s->pages[first + i] + here;
        m->next[i] = s->pages[next + i] + there;
    }
}

/* The scores of the span's first n_pages pages. */
static void score_tile(const struct attend_block *b, struct span *s, struct query *const *tile,
                       size_t n, size_t n_pages)
{
    struct int_product m = {.depth = (b->kv.head_dim + 1) / 2, .b = s->keys, .stride = CHUNK};

    for (size_t i = 0; i < n; i++) {
        m.a[i] = tile[i]->q;
        m.y[i] = tile[i]->p;
    }
    for (size_t page = 0; page < n_pages; page += CHUNK_PAGES, m.b += m.depth * CHUNK) {
        size_t here = n_pages - page < CHUNK_PAGES ? n_pages - page : CHUNK_PAGES;

        if (s->in_place) {
            for (size_t i = page; i < page + here; i++) {
                s->held[i] = -1; /* its scales are overwritten */
                take_scales(&b->kv, s, i);
            }
            m.by = s->key_by + page * LANES;
            read_in_place(&m, b, s, page, false);
        } else {
            m.next[0] = s->pages[s->n_pages + page / CHUNK_PAGES];
        }
        int_product_run(&m, s->in_place ? KEYS : HELD, b->kv.type, n, here);
        for (size_t i = 0; i < n; i++)
            m.y[i] += CHUNK;
    }
}

/* The outputs from the same pages; positions that are not seen have weight 0. */
static void gather_tile(const struct attend_block *b, const struct span *s,
                        struct query *const *tile, size_t n, size_t n_pages)
{
    size_t dim = b->kv.padded_dim;
    struct int_product m = {.stride = dim, .row_bytes = kv_row_bytes(b->kv.type, dim)};

    for (size_t page = 0; page < n_pages; page += CHUNK_PAGES) {
        size_t first = page * KV_PAGE_TOKENS, left = n_pages - page;

        m.depth = (left < CHUNK_PAGES ? left : CHUNK_PAGES) * KV_PAGE_TOKENS / 2;
        m.adds = page > 0;
        if (s->in_place) {
            m.by = s->value_inverses + first;
            read_in_place(&m, b, s, page, true);
        } else {
            m.next[0] = s->pages[s->n_pages + page / CHUNK_PAGES] + b->kv.values_at;
        }
        for (size_t d = 0, n_vectors; d < dim; d += n_vectors * LANES) {
            n_vectors = (dim - d) / LANES;
            n_vectors = n_vectors < MAX_VECTORS ? n_vectors : MAX_VECTORS;
            m.b = s->values + first / 2 * dim + d;
            for (size_t i = 0; i < n; i++) {
                m.a[i] = tile[i]->weights + first;
                m.y[i] = tile[i]->y + d;
            }
            int_product_run(&m, s->in_place ? VALUES : HELD, b->kv.type, n, n_vectors);
            for (size_t i = 0; i < CHUNK_PAGES; i++)
                m.pages[i] += kv_row_bytes(b->kv.type, n_vectors * LANES);
        }
    }
}

/* Softmax. */

enum { ALL = ABREAST * LANES };
_Static_assert((int)SPAN % ALL == 0, "vectors abreast stay within a span");

/* Turns scores into capped z, from vector `first` on. Not inlined: most models have no cap. */
static __attribute__((noinline)) void level_capped(const struct span *s, struct query *u,
                                                   size_t first)
{
    const struct v16 unit = v16_all(u->unit), cap = v16_all(u->cap);

    for (size_t at = first; at < u->n_here; at += ALL) {
        struct v16 x[ABREAST];

        EACH_ABREAST(i)
        x[i] = v16_mul(
            v16_mul(v16_load(u->p + at + i * LANES), v16_load(s->key_units + at + i * LANES)),
            unit);
        v16_cap_tanh(x);
        EACH_ABREAST(i)
        v16_store(u->p + at + i * LANES,
                  v16_fma(x[i], cap, v16_load(s->value_exponents + at + i * LANES)));
    }
}

/* The same and the greatest, where scores are capped or the first positions are not seen. */
static __attribute__((noinline)) float level_some(const struct span *s, struct query *u)
{
    const struct v16 none = v16_all(-INFINITY), unit = v16_all(u->unit);
    size_t first = u->skip / ALL * ALL;
    struct v16 greatest = none;

    if (u->cap > 0.0f)
        level_capped(s, u, first);
    for (size_t i = first; i < u->n_here; i += LANES) {
        struct v16 z = v16_load(u->p + i);

        if (!(u->cap > 0.0f))
            z = v16_fma(v16_mul(z, v16_load(s->key_units + i)), unit,
                        v16_load(s->value_exponents + i));
        if (u->skip > i)
            z = v16_head(none, u->skip - i, z);
        v16_store(u->p + i, z);
        if (u->n_here - i < LANES)
            z = v16_head(z, u->n_here - i, none);
        greatest = v16_max(z, greatest);
    }
    return v16_greatest(greatest);
}

/* Turns scores into z; returns the greatest. */
static float level(const struct span *s, struct query *u)
{
    const struct v16 none = v16_all(-INFINITY), unit = v16_all(u->unit);
    struct v16 greatest = none;

    if (u->skip > 0 || u->cap > 0.0f)
        return level_some(s, u);

    for (size_t i = 0; i < u->n_here; i += LANES) {
        struct v16 x = v16_mul(v16_load(u->p + i), v16_load(s->key_units + i));
        struct v16 z = v16_fma(x, unit, v16_load(s->value_exponents + i));

        v16_store(u->p + i, z);
        if (u->n_here - i < LANES)
            z = v16_head(z, u->n_here - i, none);
        greatest = v16_max(z, greatest);
    }
    return v16_greatest(greatest);
}

/* Merges a span's greatest z with the spans before: sets the factors of their outputs and of this
 * span's; 1 where nothing changes. */
static void merge_greatest(struct query *u)
{
    u->before = u->here = 1.0f;
    if (u->sum > 0.0f && u->max_here > u->max) {
        u->before = scalar_exp2_below(u->max - u->max_here, 1.0f);
        u->max = u->max_here;
    } else if (u->sum > 0.0f) {
        u->here = scalar_exp2_below(u->max_here - u->max, 1.0f);
    } else {
        u->max = u->max_here;
    }
}

/* Weights 2^(z - max) of n positions from `at` on, at most ABREAST vectors of them; sums += the
 * weights over the values' powers of 2. n is ABREAST vectors where it is a constant. The first
 * `skip` of them weigh nothing. */
static FIXED_SIZE void weigh_some(const struct span *s, const struct query *u, size_t at, size_t n,
                                  size_t skip, struct v16 *sums)
{
    const struct v16 none = v16_all(0.0f), max = v16_all(u->max_here);
    struct v16 x[ABREAST];

    EACH_ABREAST(i)
    x[i] = v16_sub(v16_load(u->p + at + i * LANES), max);
    v16_exp2_below(x, 1.0f);
    EACH_ABREAST(i)
    if (i * LANES < n) {
        struct v16 inverse = v16_load(s->value_inverses + at + i * LANES);
        struct v16 most = v16_load(s->weight_most + at + i * LANES);

        if (n < (i + 1) * LANES) {
            x[i] = v16_head(x[i], n - i * LANES, none);
            inverse = v16_head(inverse, n - i * LANES, none);
            most = v16_head(most, n - i * LANES, none);
        }
        if (skip > i * LANES) {
            x[i] = v16_head(none, skip - i * LANES, x[i]);
            inverse = v16_head(none, skip - i * LANES, inverse);
            most = v16_head(none, skip - i * LANES, most);
        }
        v16_store_i16(u->weights + at + i * LANES, v16_round(x[i], most));
        *sums = v16_fma(x[i], inverse, *sums);
    }
}

/* Computes weights of the positions that u sees, then zeros up to n_all; returns their sum. */
static float span_weigh(const struct span *s, const struct query *u, size_t n_all)
{
    struct v16 sums = v16_all(0.0f);
    size_t i = 0, n = u->n_here, end = (n + LANES - 1) / LANES * LANES;

    if (u->skip > 0) {
        i = u->skip / ALL * ALL;
        memset(u->weights, 0, i * sizeof(*u->weights));
        weigh_some(s, u, i, n - i < ALL ? n - i : ALL, u->skip - i, &sums);
        i += ALL;
    }
    for (; i + ALL <= n; i += ALL)
        weigh_some(s, u, i, ALL, 0, &sums);
    if (i < n)
        weigh_some(s, u, i, n - i, 0, &sums);
    if (end < n_all)
        memset(u->weights + end, 0, (n_all - end) * sizeof(*u->weights));
    return v16_sum(sums);
}

/* Turns scores into weights, both steps for all queries: their chains of instructions are then
 * interleaved. */
static void weigh_tile(const struct span *s, struct query *const *tile, size_t n, size_t n_all)
{
    for (size_t i = 0; i < n; i++)
        tile[i]->max_here = level(s, tile[i]);
    for (size_t i = 0; i < n; i++)
        tile[i]->sum_here = span_weigh(s, tile[i], n_all);
}

/* out = y * here + out * before; after the last span that the query sees, divided by the sum. */
static void merge_outputs(const struct query *u, size_t head_dim, size_t span)
{
    bool is_first = span == u->first, is_last = u->token->n <= span + SPAN;
    struct v16 here = v16_all(u->here), before = v16_all(u->before), none = v16_all(0.0f);
    struct v16 share = v16_all(is_last ? 1.0f / (u->sum * ATTEND_WEIGHT_MOST) : 1.0f);
    size_t whole = head_dim / LANES * LANES, left = head_dim - whole;

    for (size_t d = 0; d < whole; d += LANES) {
        struct v16 sums = v16_mul(is_first ? none : v16_load(u->out + d), before);

        v16_store(u->out + d, v16_mul(v16_fma(v16_load(u->y + d), here, sums), share));
    }
    if (left > 0) {
        float *out = u->out + whole;
        struct v16 sums = v16_mul(is_first ? none : v16_load_some(out, left), before);

        v16_store_some(out, v16_mul(v16_fma(v16_load(u->y + whole), here, sums), share), left);
    }
}

/* Merges a span with those before, but for the outputs. */
static void merge_sums(struct query *const *tile, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct query *u = tile[i];

        merge_greatest(u);
        u->sum = u->sum * u->before + u->sum_here * u->here;
    }
}

/* The place of a span's results for the block's query i, if they are not merged at once. */
static float *span_of(const struct attend_block *b, size_t i, size_t span)
{
    return b->spans + (i * b->n_spans + span / SPAN) * attend_span_floats(&b->kv);
}

static void attend_tile(const struct attend_block *b, struct attend_scratch *s,
                        struct query *const *tile, size_t n)
{
    size_t most = 0, n_pages;

    for (size_t i = 0; i < n; i++) {
        struct query *u = tile[i];

        u->p = s->p[i];
        u->weights = s->weights[i];
        u->y = b->spans == NULL ? s->y + i * b->kv.padded_dim
                                : span_of(b, (size_t)(u - s->queries), s->span.first);
        most = u->n_here > most ? u->n_here : most;
    }
    n_pages = attend_pages_for(most);
    score_tile(b, &s->span, tile, n, n_pages);
    weigh_tile(&s->span, tile, n, n_pages * KV_PAGE_TOKENS);
    if (b->spans == NULL)
        merge_sums(tile, n);
    gather_tile(b, &s->span, tile, n, n_pages);
    for (size_t i = 0; i < n; i++) {
        struct query *u = tile[i];

        if (b->spans == NULL) {
            merge_outputs(u, b->kv.head_dim, s->span.first);
        } else {
            u->y[b->kv.padded_dim] = u->max_here;
            u->y[b->kv.padded_dim + 1] = u->sum_here;
        }
    }
}

/* Runs of tokens. */

/* Finds the tokens from `begin` on that see the same pages of a span, as far as each sees any:
 * returns the end, and the token that sees the most. */
static size_t run_of(const struct attend_block *b, size_t begin, size_t span,
                     const struct attend_token **ret_most)
{
    const struct attend_token *most = &b->tokens[begin];
    size_t n_most = attend_pages_for(seen(most, span)), end = begin + 1;

    for (; end < b->n_tokens; end++) {
        const struct attend_token *t = &b->tokens[end];
        size_t n = attend_pages_for(seen(t, span)), n_both = n < n_most ? n : n_most;

        if (t->pages != most->pages && n_both > 0 &&
            memcmp(t->pages + span / KV_PAGE_TOKENS, most->pages + span / KV_PAGE_TOKENS,
                   n_both * sizeof(*t->pages)) != 0)
            break;
        if (n > n_most) {
            most = t;
            n_most = n;
        }
    }
    *ret_most = most;
    return end;
}

/* Whether the run of t that ends at `end` shares the span's first page with the run before, which
 * was held, or with the next one. */
static bool shares(const struct attend_block *b, const struct span *s, const struct attend_token *t,
                   size_t end)
{
    const struct attend_token *behind = b->tokens + end;
    size_t first = s->first / KV_PAGE_TOKENS;

    return s->held[0] == t->pages[first] ||
           (end < b->n_tokens && behind->n > s->first && behind->pages[first] == t->pages[first]);
}

static void attend_run(const struct attend_block *b, struct attend_scratch *s, size_t begin,
                       size_t end)
{
    struct query *tile[TILE];
    size_t n = 0;

    for (struct query *u = s->queries + begin * b->n_sharing; u < s->queries + end * b->n_sharing;
         u++) {
        u->n_here = seen(u->token, s->span.first);
        u->skip = unseen(b, u->token, s->span.first);
        if (u->n_here > u->skip)
            tile[n++] = u;
        if (n == TILE) {
            attend_tile(b, s, tile, n);
            n = 0;
        }
    }
    if (n > 0)
        attend_tile(b, s, tile, n);
}

static void attend_span(const struct attend_block *b, struct attend_scratch *s)
{
    for (size_t i = 0; i < SPAN_PAGES; i++)
        s->span.held[i] = -1;
    for (size_t begin = 0, end; begin < b->n_tokens; begin = end) {
        const struct attend_token *most;

        end = run_of(b, begin, s->span.first, &most);
        if (seen(most, s->span.first) == 0)
            continue;
        attend_find_pages(b, &s->span, most);
        s->span.in_place = (end - begin) * b->n_sharing <= TILE && !shares(b, &s->span, most, end);
        if (!s->span.in_place)
            hold_span(&b->kv, &s->span, most->pages + s->span.first / KV_PAGE_TOKENS);
        attend_run(b, s, begin, end);
    }
}

/* Rounds a query to `to` [padded_dim]; returns its unit. */
static float round_query(const struct attend_block *b, const float *q, int16_t *to)
{
    size_t n = b->kv.head_dim;
    struct attend_query_unit u = attend_unit_of_query(greatest_magnitude(q, n), n, b->factor);

    for (size_t d = 0; d < b->kv.padded_dim; d += LANES)
        v16_store_i16(to + d,
                      v16_round(n - d < LANES ? v16_load_some(q + d, n - d) : v16_load(q + d),
                                v16_all(u.by)));
    return u.unit;
}

/* The index of the block's query i in a matrix of rows. */
static size_t query_at(const struct attend_block *b, size_t i)
{
    return b->tokens[i / b->n_sharing].row * b->stride + i % b->n_sharing * b->kv.head_dim;
}

/* Before its first span: nothing, or the sink, whose value is 0. */
static void begin_sums(const struct attend_block *b, size_t i, struct query *u)
{
    u->max = b->sinks != NULL ? b->sinks[i % b->n_sharing] * SCALAR_LOG2_E : 0.0f;
    u->sum = b->sinks != NULL ? 1.0f : 0.0f;
}

void ATTEND_NAME(attend)(const struct attend_block *b)
{
    size_t n = b->n_tokens * b->n_sharing, begin = SIZE_MAX, end = 0;
    struct attend_scratch s;

    assert(n <= ATTEND_QUERIES && b->kv.padded_dim <= KERNELS_HEAD_DIM && b->begin % SPAN == 0);
    for (size_t i = 0; i < n; i++) {
        const struct attend_token *t = &b->tokens[i / b->n_sharing];
        size_t at = query_at(b, i);
        int16_t *q = s.q + i * b->kv.padded_dim;

        s.queries[i] = (struct query){.token = t, .q = q, .out = b->out + at, .cap = b->cap};
        begin_sums(b, i, &s.queries[i]);
        s.queries[i].unit = round_query(b, b->q + at, q);
        s.queries[i].first = first_seen(b, t) / SPAN * SPAN;
        begin = s.queries[i].first < begin ? s.queries[i].first : begin;
        end = t->n > end ? t->n : end;
    }
    begin = b->begin > begin ? b->begin : begin;
    end = b->end < end ? b->end : end;
    for (s.span.first = begin; s.span.first < end; s.span.first += SPAN)
        attend_span(b, &s);
}

void ATTEND_NAME(attend_merge)(const struct attend_block *b)
{
    for (size_t i = 0; i < b->n_tokens * b->n_sharing; i++) {
        struct query u = {.token = &b->tokens[i / b->n_sharing], .out = b->out + query_at(b, i)};
        struct query *tile = &u;

        begin_sums(b, i, &u);
        u.first = first_seen(b, u.token) / SPAN * SPAN;
        for (size_t span = u.first; span < u.token->n; span += SPAN) {
            u.y = span_of(b, i, span);
            u.max_here = u.y[b->kv.padded_dim];
            u.sum_here = u.y[b->kv.padded_dim + 1];
            merge_sums(&tile, 1);
            merge_outputs(&u, b->kv.head_dim, span);
        }
    }
}
