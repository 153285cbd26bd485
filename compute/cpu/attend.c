/* Paged attention. Positions are taken in spans of 256 counted from 0. In a span: a score is one
 * chain of fma over the head's dimensions; exponentials are taken against the span's greatest score
 * and summed in sixteen lanes by position; each output is one chain of fma over positions. Spans
 * are then merged in order. So the bits of an output depend on its position alone, and not on how
 * queries are grouped or a prompt is cut. */
#include <assert.h>
#include <math.h>

#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"

enum {
    SPAN = 256,
    SPAN_PAGES = SPAN / KV_PAGE_TOKENS,
    MAX_HEAD_DIM = 256,
#if defined(__AVX512F__)
    SCORE_VECTORS = 8, /* queries that share a load of keys */
    VALUE_VECTORS = 5, /* queries that share a load of values */
    STRIP = 4 * LANES, /* dimensions of the output that are summed in registers at once */
#else
    SCORE_VECTORS = 4,
    VALUE_VECTORS = 3,
    STRIP = 2 * LANES,
#endif
};

_Static_assert((int)KV_PAGE_TOKENS == (int)LANES, "a row of a key page is one vector");

/* A query head, and what it has gathered. */
struct query {
    const float *q; /* [head_dim], scaled */
    float *out;     /* [padded_dim] */
    size_t n;       /* positions it sees, of all */
    size_t n_here;  /* of the span */
    float max, sum; /* of the spans before; sum is 0 before the first */
    float *p;       /* [SPAN] */
};

static const uint8_t *page_at(const struct attend_slice *s, size_t page)
{
    return s->kv.base + (size_t)s->pages[page] * s->kv.page_bytes + s->head * s->kv.head_bytes;
}

static inline struct v16 load(const uint8_t *from, enum kv_type type, size_t i)
{
    if (type == KV_F32)
        return v16_load((const float *)(const void *)from + i);
    return v16_load_f16((const uint16_t *)(const void *)from + i);
}

/* A line of memory that is read soon. */
static inline void fetch(const uint8_t *at)
{
    __builtin_prefetch(at);
}

/* The scores of n queries against the keys of n_pages pages (constants where this is called); on
 * the way it fetches what is read next, as many bytes as the keys have: from `next`, and the values
 * behind the keys. */
static FIXED_SIZE void score_pages(const struct attend_slice *s, enum kv_type type,
                                   const uint8_t *const *keys, size_t n_pages, const uint8_t *next,
                                   const struct query *queries, size_t n, size_t at)
{
    size_t row_bytes = KV_PAGE_TOKENS * (type == KV_F32 ? sizeof(float) : sizeof(uint16_t));
    size_t values = s->kv.head_dim * row_bytes;
    struct v16 y[2][SCORE_VECTORS];

    for (size_t p = 0; p < n_pages; p++)
        for (size_t i = 0; i < n; i++)
            y[p][i] = v16_all(0.0f);
    for (size_t d = 0; d < s->kv.head_dim; d++) {
        struct v16 k[2];

        for (size_t p = 0; p < n_pages; p++) {
            k[p] = load(keys[p], type, d * KV_PAGE_TOKENS);
            fetch(keys[p] + values + d * row_bytes);
        }
        fetch(next + d * row_bytes);
        for (size_t i = 0; i < n; i++)
            for (size_t p = 0; p < n_pages; p++)
                y[p][i] = v16_fma(k[p], v16_all(queries[i].q[d]), y[p][i]);
    }
    for (size_t p = 0; p < n_pages; p++)
        for (size_t i = 0; i < n; i++)
            v16_store(queries[i].p + at + p * KV_PAGE_TOKENS, y[p][i]);
}

/* Few queries take two pages at once, so that enough sums are under way. */
static FIXED_SIZE void score_span(const struct attend_slice *s, enum kv_type type, size_t span,
                                  const struct query *queries, size_t n, size_t n_pages)
{
    size_t page = 0, together = n * 2 <= SCORE_VECTORS ? 2 : 1;

    for (; page < n_pages; page += together) {
        const uint8_t *keys[2] = {page_at(s, span * SPAN_PAGES + page)}, *next = s->next;

        if (page + together < n_pages)
            next = page_at(s, span * SPAN_PAGES + page + together);
        if (together == 2 && page + 1 < n_pages) {
            keys[1] = page_at(s, span * SPAN_PAGES + page + 1);
            score_pages(s, type, keys, 2, next, queries, n, page * KV_PAGE_TOKENS);
        } else {
            score_pages(s, type, keys, 1, next, queries, n, page * KV_PAGE_TOKENS);
        }
    }
}

#define SCORE_CASE(n)                                   \
    case n:                                             \
        score_span(s, type, span, queries, n, n_pages); \
        break

static FIXED_SIZE void scores(const struct attend_slice *s, enum kv_type type, size_t span,
                              const struct query *queries, size_t n)
{
    while (n > 0) {
        size_t many = n < SCORE_VECTORS ? n : SCORE_VECTORS;
        size_t n_pages = /* the last one sees the most */
            (queries[many - 1].n_here + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;

        switch (many) {
            SCORE_CASE(1);
            SCORE_CASE(2);
            SCORE_CASE(3);
            SCORE_CASE(4);
#if defined(__AVX512F__)
            SCORE_CASE(5);
            SCORE_CASE(6);
            SCORE_CASE(7);
            SCORE_CASE(8);
#endif
        default:
            assert(false);
        }
        queries += many;
        n -= many;
    }
}

/* Turns the span's scores into weights. Merges the greatest score and the sum with the spans
 * before; returns what their output is to be multiplied by, and in *ret_here what the weights are:
 * 1 and 1 where nothing changes. */
static float weigh(struct query *u, float *ret_here)
{
    const struct v16 none = v16_all(-INFINITY);
    struct v16 greatest = none, sums = v16_all(0.0f), m;
    float max, sum, before = 1.0f;
    size_t i;

    for (i = 0; i < u->n_here; i += LANES)
        greatest = v16_max(v16_head(v16_load(u->p + i), u->n_here - i, none), greatest);
    max = v16_greatest(greatest);
    m = v16_all(max);
    for (i = 0; i < u->n_here; i += LANES) {
        struct v16 p = v16_exp(v16_sub(v16_load(u->p + i), m));

        p = v16_head(p, u->n_here - i, v16_all(0.0f));
        v16_store(u->p + i, p);
        sums = v16_add(sums, p);
    }
    sum = v16_sum(sums);
    *ret_here = 1.0f;
    if (u->sum > 0.0f && max > u->max) {
        before = scalar_exp(u->max - max);
        u->max = max;
    } else if (u->sum > 0.0f) {
        *ret_here = scalar_exp(max - u->max);
    } else {
        u->max = max;
    }
    u->sum = u->sum * before + sum * *ret_here;
    return before;
}

/* Adds weighted values of positions begin … end - 1 of the span to n queries' sums (n and
 * n_vectors are constants where this is called); dimension first on. */
static FIXED_SIZE void gather_values(const struct attend_slice *s, enum kv_type type, size_t span,
                                     const struct query *queries, size_t n, size_t begin,
                                     size_t end, size_t first, size_t n_vectors,
                                     struct v16 (*y)[STRIP / LANES])
{
    size_t skip = s->kv.head_dim * KV_PAGE_TOKENS, dim = s->kv.padded_dim;

    for (size_t at = begin; at < end;) {
        const uint8_t *page = page_at(s, span * SPAN_PAGES + at / KV_PAGE_TOKENS);
        size_t stop = (at / KV_PAGE_TOKENS + 1) * KV_PAGE_TOKENS;

        for (stop = stop < end ? stop : end; at < stop; at++)
            for (size_t v = 0; v < n_vectors; v++) {
                struct v16 x =
                    load(page, type, skip + at % KV_PAGE_TOKENS * dim + first + v * LANES);

                for (size_t i = 0; i < n; i++)
                    y[i][v] = v16_fma(v16_all(queries[i].p[at]), x, y[i][v]);
            }
    }
}

/* A strip of the outputs of n queries, over the span's positions: first those that all see, then
 * each alone what only it sees. */
static FIXED_SIZE void strip(const struct attend_slice *s, enum kv_type type, size_t span,
                             const struct query *queries, const float *before, const float *here,
                             size_t n, size_t first, size_t n_vectors)
{
    struct v16 y[VALUE_VECTORS][STRIP / LANES];
    size_t shared = queries[0].n_here;

    for (size_t i = 0; i < n; i++)
        for (size_t v = 0; v < n_vectors; v++)
            y[i][v] = v16_all(0.0f);
    gather_values(s, type, span, queries, n, 0, shared, first, n_vectors, y);
    for (size_t i = 1; i < n; i++)
        gather_values(s, type, span, queries + i, 1, shared, queries[i].n_here, first, n_vectors,
                      y + i);
    for (size_t i = 0; i < n; i++)
        for (size_t v = 0; v < n_vectors; v++) {
            float *out = queries[i].out + first + v * LANES;

            if (queries[i].n_here > 0)
                v16_store(out, v16_fma(y[i][v], v16_all(here[i]),
                                       v16_mul(v16_load(out), v16_all(before[i]))));
        }
}

static FIXED_SIZE void strips(const struct attend_slice *s, enum kv_type type, size_t span,
                              const struct query *queries, const float *before, const float *here,
                              size_t n)
{
    size_t first = 0;

    for (; first + STRIP <= s->kv.padded_dim; first += STRIP)
        strip(s, type, span, queries, before, here, n, first, STRIP / LANES);
    for (; first < s->kv.padded_dim; first += LANES)
        strip(s, type, span, queries, before, here, n, first, 1);
}

static FIXED_SIZE void attend_span(const struct attend_slice *s, enum kv_type type, size_t span,
                                   struct query *queries, size_t n)
{
    float before[ATTEND_VECTORS] = {0}, here[ATTEND_VECTORS] = {0};
    size_t i = 0;

    scores(s, type, span, queries, n);
    for (i = 0; i < n; i++)
        if (queries[i].n_here > 0)
            before[i] = weigh(&queries[i], &here[i]);
    for (i = 0; i + VALUE_VECTORS <= n; i += VALUE_VECTORS)
        strips(s, type, span, queries + i, before + i, here + i, VALUE_VECTORS);
    for (; i + 3 <= n; i += 3) /* what a token's heads often are */
        strips(s, type, span, queries + i, before + i, here + i, 3);
    for (; i < n; i++)
        strips(s, type, span, queries + i, before + i, here + i, 1);
}

static void set_span(struct query *queries, size_t n, size_t span)
{
    for (size_t i = 0; i < n; i++) {
        size_t left = queries[i].n > span * SPAN ? queries[i].n - span * SPAN : 0;

        queries[i].n_here = left < SPAN ? left : SPAN;
    }
}

void ISA_NAME(attend)(const struct attend_slice *s)
{
    _Alignas(64) float p[ATTEND_VECTORS][SPAN];
    _Alignas(64) float q[ATTEND_VECTORS][MAX_HEAD_DIM], out[ATTEND_VECTORS][MAX_HEAD_DIM];
    struct query queries[ATTEND_VECTORS] = {0};
    size_t n = s->n_tokens * s->n_sharing, head_dim = s->kv.head_dim;
    float scale = 1.0f / sqrtf((float)head_dim);

    assert(n <= ATTEND_VECTORS && s->kv.padded_dim <= MAX_HEAD_DIM);
    for (size_t i = 0; i < n; i++) {
        const float *from = s->q + i / s->n_sharing * s->stride + i % s->n_sharing * head_dim;

        for (size_t d = 0; d < head_dim; d++)
            q[i][d] = from[d] * scale;
        for (size_t d = 0; d < s->kv.padded_dim; d++)
            out[i][d] = 0.0f;
        queries[i] =
            (struct query){.q = q[i], .out = out[i], .n = s->pos + i / s->n_sharing + 1, .p = p[i]};
    }
    for (size_t span = 0; span * SPAN < s->pos + s->n_tokens; span++) {
        set_span(queries, n, span);
        if (s->kv.type == KV_F16)
            attend_span(s, KV_F16, span, queries, n);
        else
            attend_span(s, KV_F32, span, queries, n);
    }
    for (size_t i = 0; i < n; i++) {
        float *to = s->out + i / s->n_sharing * s->stride + i % s->n_sharing * head_dim;

        for (size_t d = 0; d < head_dim; d++)
            to[d] = out[i][d] / queries[i].sum;
    }
}

/* One row of values, and one column of keys, as f32 or f16. */
static FIXED_SIZE void store_head(uint8_t *to, enum kv_type type, size_t slot, size_t head_dim,
                                  size_t values, const float *k, const float *v)
{
    float *wide = (float *)(void *)to;
    uint16_t *narrow = (uint16_t *)(void *)to, half[LANES];

    for (size_t d = 0; d < head_dim; d += LANES) {
        size_t n = head_dim - d < LANES ? head_dim - d : LANES;

        if (type == KV_F16)
            v16_store_f16(half, n < LANES ? v16_load_some(k + d, n) : v16_load(k + d));
        for (size_t i = 0; i < n; i++)
            if (type == KV_F32)
                wide[(d + i) * KV_PAGE_TOKENS + slot] = k[d + i];
            else
                narrow[(d + i) * KV_PAGE_TOKENS + slot] = half[i];
        if (type == KV_F16)
            v16_store_f16(half, n < LANES ? v16_load_some(v + d, n) : v16_load(v + d));
        for (size_t i = 0; i < n; i++)
            if (type == KV_F32)
                wide[values + d + i] = v[d + i];
            else
                narrow[values + d + i] = half[i];
    }
}

void ISA_NAME(kv_store)(const struct kv_view *kv, int32_t page, size_t slot, size_t head,
                        const float *k, const float *v)
{
    uint8_t *to = kv->base + (size_t)page * kv->page_bytes + head * kv->head_bytes;
    size_t values = kv->head_dim * KV_PAGE_TOKENS + slot * kv->padded_dim;

    if (kv->type == KV_F32)
        store_head(to, KV_F32, slot, kv->head_dim, values, k, v);
    else
        store_head(to, KV_F16, slot, kv->head_dim, values, k, v);
}
