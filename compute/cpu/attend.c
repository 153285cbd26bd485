/* Paged attention. Positions are taken in spans of 256 counted from 0. In a span: a score is one
 * chain of fma over the head's dimensions; exponentials are taken against the span's greatest score
 * and summed in sixteen lanes by position; each output is one chain of fma over positions. Spans
 * are then merged in order. So the bits of an output depend on its position alone, and not on how
 * queries are grouped or a prompt is cut.
 *
 * A block's keys and values of a span are widened to f32 once for all queries that see them, by
 * chunks of 64 positions; then few queries at a time go through all of the span, so that their
 * scores and weights stay in the first cache. Both products, of queries with keys and of weights
 * with values, are the same: rows of A, [depth], with B [depth][columns]. */
#include <assert.h>
#include <math.h>

#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"

enum {
    SPAN = 256,
    CHUNK = 64,
    CHUNK_PAGES = CHUNK / KV_PAGE_TOKENS,
    SPAN_CHUNKS = SPAN / CHUNK,
    SPAN_PAGES = SPAN / KV_PAGE_TOKENS,
    MAX_HEAD_DIM = 256,
    TILE = 6,        /* rows of A that share a load of B */
    MAX_VECTORS = 4, /* of B, side by side */
#if defined(__AVX512F__)
    SUMS = TILE * MAX_VECTORS, /* that registers hold, beside what is read */
#else
    SUMS = TILE,
#endif
};

_Static_assert((int)KV_PAGE_TOKENS == (int)LANES, "a row of a key page is one vector");

/* One head of a token, and what it has gathered. */
struct query {
    const struct attend_token *token;
    const float *q;     /* [head_dim] */
    float *p;           /* [SPAN] scores, then weights; while it is in a tile */
    float *y;           /* [padded_dim] of this span; the same */
    float *out;         /* [head_dim] of the spans before */
    size_t n_here;      /* positions of this span that it sees */
    float max_here;     /* of them */
    float max, sum;     /* of the spans before; sum is 0 before the first */
    float before, here; /* what the outputs of both are multiplied by */
};

/* Products. */

struct gemm {
    const float *a[TILE];             /* [depth] */
    float *y[TILE];                   /* [n_vectors * LANES] */
    const uint8_t *b[MAX_VECTORS];    /* a row's vectors: of type, step bytes from row to row */
    const uint8_t *next[MAX_VECTORS]; /* what is read next, laid out alike */
    size_t depth, step;
    size_t n_blocks, block_step; /* of B, [depth][MAX_VECTORS * LANES] each, bytes from one to the
                                    next; of y's columns likewise. One where vectors are fewer */
    bool adds;                   /* to what is in y */
};

static inline struct v16 load(const uint8_t *from, enum kv_type type)
{
    if (type == KV_F32)
        return v16_load((const float *)(const void *)from);
    if (type == KV_F16)
        return v16_load_f16((const uint16_t *)(const void *)from);
    return v16_load_i8((const int8_t *)from);
}

/* type, n, first and n_vectors are constants where this is called. */
static FIXED_SIZE void multiply_block(const struct gemm *m, size_t block, enum kv_type type,
                                      size_t n, size_t first, size_t n_vectors)
{
    struct v16 y[TILE][MAX_VECTORS];
    const uint8_t *b[MAX_VECTORS] = {0}, *next[MAX_VECTORS] = {0};
    const float *a[TILE] = {0};
    size_t depth = m->depth, step = m->step, skip = (block * MAX_VECTORS + first) * LANES;

#pragma GCC unroll 4
    for (size_t v = 0; v < n_vectors; v++) {
        b[v] = m->b[first + v] + block * m->block_step;
        next[v] = m->next[first + v];
    }
#pragma GCC unroll 6
    for (size_t i = 0; i < n; i++) {
        a[i] = m->a[i];
#pragma GCC unroll 4
        for (size_t v = 0; v < n_vectors; v++)
            y[i][v] = m->adds ? v16_load(m->y[i] + skip + v * LANES) : v16_all(0.0f);
    }
    for (size_t k = 0, at = 0; k < depth; k++, at += step) {
        struct v16 x[MAX_VECTORS];

#pragma GCC unroll 4
        for (size_t v = 0; v < n_vectors; v++) {
            x[v] = load(b[v] + at, type);
            if (type != KV_F32)
                __builtin_prefetch(next[v] + at);
        }
#pragma GCC unroll 6
        for (size_t i = 0; i < n; i++) {
            struct v16 all = v16_all(a[i][k]);

#pragma GCC unroll 4
            for (size_t v = 0; v < n_vectors; v++)
                y[i][v] = v16_fma(all, x[v], y[i][v]);
        }
    }
#pragma GCC unroll 6
    for (size_t i = 0; i < n; i++)
#pragma GCC unroll 4
        for (size_t v = 0; v < n_vectors; v++)
            v16_store(m->y[i] + skip + v * LANES, y[i][v]);
}

/* type, n, first and n_vectors are constants where this is called. */
static FIXED_SIZE void multiply(const struct gemm *m, enum kv_type type, size_t n, size_t first,
                                size_t n_vectors)
{
    if (type != KV_F32) /* in pages there is one, and a loop about it slows decode by 4 % */
        multiply_block(m, 0, type, n, first, n_vectors);
    else
        for (size_t block = 0; block < m->n_blocks; block++)
            multiply_block(m, block, type, n, first, n_vectors);
}

/* type and n are constants where this is called. */
static FIXED_SIZE void multiply_rows(const struct gemm *m, enum kv_type type, size_t n,
                                     size_t n_vectors)
{
    enum { ALL = MAX_VECTORS };

    if (SUMS / n >= ALL && n_vectors == ALL)
        multiply(m, type, n, 0, ALL);
    else if (SUMS / n >= 3 && n_vectors == 3)
        multiply(m, type, n, 0, 3);
    else if (SUMS / n >= 2 && n_vectors == 2)
        multiply(m, type, n, 0, 2);
    else
        for (size_t first = 0; first < n_vectors; first++)
            multiply(m, type, n, first, 1);
}

/* type is a constant where this is called. */
static FIXED_SIZE void multiply_tile(const struct gemm *m, enum kv_type type, size_t n,
                                     size_t n_vectors)
{
    switch (n) {
    case 1:
        multiply_rows(m, type, 1, n_vectors);
        break;
    case 2:
        multiply_rows(m, type, 2, n_vectors);
        break;
    case 3:
        multiply_rows(m, type, 3, n_vectors);
        break;
    case 4:
        multiply_rows(m, type, 4, n_vectors);
        break;
    case 5:
        multiply_rows(m, type, 5, n_vectors);
        break;
    default:
        multiply_rows(m, type, TILE, n_vectors);
    }
}

static void run(const struct gemm *m, enum kv_type type, size_t n, size_t n_vectors)
{
    if (type == KV_F16)
        multiply_tile(m, KV_F16, n, n_vectors);
    else if (type == KV_Q8)
        multiply_tile(m, KV_Q8, n, n_vectors);
    else
        multiply_tile(m, KV_F32, n, n_vectors);
}

/* Chunks. */

/* Positions of the chunk that begins at `first` which a token sees. */
static size_t seen(const struct attend_token *t, size_t first)
{
    size_t left = t->n > first ? t->n - first : 0;

    return left < CHUNK ? left : CHUNK;
}

static size_t pages_for(size_t n)
{
    return (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

/* Keys or values of some pages in a row, in their head. */
struct pages {
    const int32_t *ids;
    size_t n;
    size_t skip; /* bytes of a page before them */
};

static struct pages pages_of(const struct kv_view *kv, size_t head, const struct attend_token *t,
                             size_t first, bool values)
{
    return (struct pages){
        .ids = t->pages + first / KV_PAGE_TOKENS,
        .n = pages_for(seen(t, first)),
        .skip = head * kv->head_bytes + (values ? kv->values_at : 0),
    };
}

static const uint8_t *page_at(const struct kv_view *kv, const struct pages *p, size_t i)
{
    return kv->base + (size_t)p->ids[i] * kv->page_bytes + p->skip;
}

/* Keys or values as a product reads them: of a chunk in their pages, or widened, and then of one
 * chunk or several, that lie in a row. */
struct operand {
    enum kv_type type;
    bool values, wide;
    const uint8_t *pages[CHUNK_PAGES]; /* of the first chunk; wide values: [0] alone */
    const uint8_t *next[CHUNK_PAGES];  /* what is read next */
    const float *scales[SPAN_PAGES];   /* [n_pages] of q8, else NULL */
    size_t n_pages, row_step, chunk_step;
};

/* Tokens of a block that see the same pages of some positions, as far as each sees any; they begin
 * where those before them end. */
struct sharers {
    size_t end;
    struct operand keys, values;
};

/* A chunk of a span, or several that all the block's tokens share. */
struct piece {
    size_t first, n; /* positions */
    struct sharers sharers[ATTEND_QUERIES];
};

struct scratch {
    struct query queries[ATTEND_QUERIES];
    struct piece pieces[SPAN_CHUNKS]; /* of the span */
    size_t n_pieces;
    _Alignas(64) float keys[SPAN * MAX_HEAD_DIM], values[SPAN * MAX_HEAD_DIM]; /* widened */
    _Alignas(64) float p[TILE][SPAN], y[TILE * MAX_HEAD_DIM];
    float scale; /* of scores: the weights are 2^(scale * score) */
};

static void in_place(struct operand *ret, const struct kv_view *kv, const struct pages *here,
                     const struct pages *next, bool values)
{
    size_t scales_at =
        kv_row_bytes(kv->type, KV_PAGE_TOKENS) * (values ? kv->padded_dim : kv->head_dim);

    ret->type = kv->type;
    ret->values = values;
    ret->wide = false;
    ret->n_pages = here->n;
    ret->row_step = kv_row_bytes(kv->type, values ? kv->padded_dim : KV_PAGE_TOKENS);
    ret->chunk_step = 0;
    for (size_t i = 0; i < here->n; i++) {
        ret->pages[i] = page_at(kv, here, i);
        ret->next[i] = i < next->n ? page_at(kv, next, i) : ret->pages[i];
        ret->scales[i] =
            kv->type == KV_Q8 ? (const float *)(const void *)(ret->pages[i] + scales_at) : NULL;
    }
}

/* n vectors, each `step` floats from the one before; on the way it fetches as much of what is read
 * next. */
static FIXED_SIZE void widen(const uint8_t *from, enum kv_type type, size_t n, float *to,
                             size_t step, const uint8_t *next)
{
    size_t vector_bytes = kv_row_bytes(type, LANES);

    for (size_t i = 0; i < n; i++) {
        __builtin_prefetch(next + i * vector_bytes);
        v16_store(to + i * step, load(from + i * vector_bytes, type));
    }
}

/* Keys become [head_dim][CHUNK], values [CHUNK][padded_dim]. */
static struct operand widened(const struct kv_view *kv, const struct operand *o, float *chunk)
{
    size_t n = o->values ? kv->padded_dim : kv->head_dim; /* vectors of a page */
    size_t step = o->values ? LANES : CHUNK, page_step = o->values ? LANES * kv->padded_dim : LANES;
    struct operand wide = *o;

    wide.type = KV_F32;
    wide.wide = true;
    for (size_t i = 0; i < o->n_pages; i++) {
        if (o->type == KV_F16)
            widen(o->pages[i], KV_F16, n, chunk + i * page_step, step, o->next[i]);
        else if (o->type == KV_Q8)
            widen(o->pages[i], KV_Q8, n, chunk + i * page_step, step, o->next[i]);
        else
            widen(o->pages[i], KV_F32, n, chunk + i * page_step, step, o->next[i]);
        wide.pages[i] = wide.next[i] = (const uint8_t *)(chunk + i * page_step);
    }
    wide.row_step = (o->values ? kv->padded_dim : CHUNK) * sizeof *chunk;
    wide.chunk_step = CHUNK * (o->values ? kv->padded_dim : kv->head_dim) * sizeof *chunk;
    return wide;
}

/* The tokens from `begin` on that see the same pages of a chunk, as far as each sees any: returns
 * the end, and the token that sees the most. */
static size_t run_of(const struct attend_block *b, size_t begin, size_t first,
                     const struct attend_token **ret_most)
{
    const struct attend_token *most = &b->tokens[begin];
    size_t n_most = pages_for(seen(most, first)), end = begin + 1;

    for (; end < b->n_tokens; end++) {
        const struct attend_token *t = &b->tokens[end];
        size_t n = pages_for(seen(t, first)), n_both = n < n_most ? n : n_most;

        if (t->pages != most->pages && n_both > 0 &&
            memcmp(t->pages + first / KV_PAGE_TOKENS, most->pages + first / KV_PAGE_TOKENS,
                   n_both * sizeof *t->pages) != 0)
            break;
        if (n > n_most) {
            most = t;
            n_most = n;
        }
    }
    *ret_most = most;
    return end;
}

static void score_tile(const struct attend_block *b, struct query *const *tile, size_t n,
                       const struct operand *keys, size_t at, size_t n_pages)
{
    struct gemm m = {.depth = b->kv.head_dim, .step = keys->row_step};
    size_t n_chunks = n_pages / CHUNK_PAGES, left = n_pages % CHUNK_PAGES;

    for (size_t i = 0; i < n; i++) {
        m.a[i] = tile[i]->q;
        m.y[i] = tile[i]->p + at;
    }
    for (size_t i = 0; i < CHUNK_PAGES && i < n_pages; i++) {
        m.b[i] = keys->pages[i];
        m.next[i] = keys->next[i];
    }
    m.n_blocks = n_chunks;
    m.block_step = keys->chunk_step;
    if (n_chunks > 0)
        run(&m, keys->type, n, CHUNK_PAGES);
    if (left == 0)
        return;
    m.n_blocks = 1;
    for (size_t i = 0; i < n; i++)
        m.y[i] += n_chunks * CHUNK;
    for (size_t i = 0; i < left; i++)
        m.b[i] += n_chunks * m.block_step;
    run(&m, keys->type, n, left);
}

/* Adds the values of positions begin … end - 1 of a page to the sums of n queries. */
static void gather_rows(const struct attend_block *b, struct query *const *tile, size_t n,
                        const struct operand *values, size_t page, size_t at, size_t begin,
                        size_t end)
{
    struct gemm m = {.depth = end - begin, .step = values->row_step, .n_blocks = 1, .adds = true};
    size_t vector_bytes = kv_row_bytes(values->type, LANES), skip = begin * m.step, n_vectors;

    for (size_t first = 0; first < b->kv.padded_dim / LANES; first += n_vectors) {
        n_vectors = b->kv.padded_dim / LANES - first;
        n_vectors = n_vectors < MAX_VECTORS ? n_vectors : MAX_VECTORS;
        for (size_t i = 0; i < n; i++) {
            m.a[i] = tile[i]->p + at + begin;
            m.y[i] = tile[i]->y + first * LANES;
        }
        for (size_t v = 0; v < n_vectors; v++) {
            m.b[v] = values->pages[page] + skip + (first + v) * vector_bytes;
            m.next[v] = values->next[page] + skip + (first + v) * vector_bytes;
        }
        run(&m, values->type, n, n_vectors);
    }
}

/* First the positions that all see, then what only some see. Widened values lie together as if they
 * were one page. */
static void gather_tile(const struct attend_block *b, struct query *const *tile,
                        const size_t *n_seen, size_t n, const struct operand *values, size_t at)
{
    size_t n_rows = values->wide ? SPAN : KV_PAGE_TOKENS, n_all = n_seen[0], n_most = n_all;

    for (size_t i = 1; i < n; i++) {
        n_all = n_seen[i] < n_all ? n_seen[i] : n_all;
        n_most = n_seen[i] > n_most ? n_seen[i] : n_most;
    }
    for (size_t first = 0; first < n_most; first += n_rows) {
        size_t all = n_all > first ? n_all - first : 0;

        all = all < n_rows ? all : n_rows;
        if (all > 0)
            gather_rows(b, tile, n, values, first / n_rows, at + first, 0, all);
        for (size_t i = 0, alike; i < n; i += alike) {
            size_t own = n_seen[i] > first ? n_seen[i] - first : 0;

            for (alike = 1; i + alike < n && n_seen[i + alike] == n_seen[i]; alike++)
                ;
            own = own < n_rows ? own : n_rows;
            if (own > all)
                gather_rows(b, tile + i, alike, values, first / n_rows, at + first, all, own);
        }
    }
}

/* Scores or weights of n queries and what is at `at`, times the scales of what they meet. */
static void scale_tile(struct query *const *tile, size_t n, const struct operand *o, size_t at)
{
    for (size_t page = 0; page < o->n_pages && o->scales[page] != NULL; page++) {
        struct v16 scales = v16_load(o->scales[page]);

        for (size_t i = 0; i < n; i++) {
            float *p = tile[i]->p + at + page * LANES;

            v16_store(p, v16_mul(v16_load(p), scales));
        }
    }
}

/* Softmax. */

static float greatest_of(const float *p, size_t n)
{
    const struct v16 none = v16_all(-INFINITY);
    struct v16 greatest = none;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        greatest = v16_max(v16_load(p + i), greatest);
    if (i < n)
        greatest = v16_max(v16_head(v16_load(p + i), n - i, none), greatest);
    return v16_greatest(greatest);
}

/* Merges a span's greatest score with the spans before: says what their output, and this span's,
 * are to be multiplied by; 1 where nothing changes. */
static void merge_greatest(struct query *u, float scale)
{
    u->before = u->here = 1.0f;
    if (u->sum > 0.0f && u->max_here > u->max) {
        u->before = scalar_exp2_below(u->max - u->max_here, scale);
        u->max = u->max_here;
    } else if (u->sum > 0.0f) {
        u->here = scalar_exp2_below(u->max_here - u->max, scale);
    } else {
        u->max = u->max_here;
    }
}

/* p[i] = 2^((p[i] - max) * scale) of n positions at most ABREAST vectors, sums += them. n is
 * ABREAST vectors where it is a constant. */
static FIXED_SIZE void exponentials_of(float *p, size_t n, struct v16 max, float scale,
                                       struct v16 *sums)
{
    struct v16 x[ABREAST];

    EACH_ABREAST(i)
    x[i] = v16_sub(v16_load(p + i * LANES), max);
    v16_exp2_below(x, scale);
    EACH_ABREAST(i)
    if (i * LANES < n) {
        if (n < (i + 1) * LANES)
            x[i] = v16_head(x[i], n - i * LANES, v16_all(0.0f));
        v16_store(p + i * LANES, x[i]);
        *sums = v16_add(*sums, x[i]);
    }
}

/* p[i] = 2^((p[i] - max) * scale); returns the sum. p has room for whole spans. */
static float exponentials(float *p, size_t n, float max, float scale)
{
    enum { ALL = ABREAST * LANES };
    struct v16 sums = v16_all(0.0f), m = v16_all(max);
    size_t i;

    _Static_assert((int)SPAN % ALL == 0, "vectors abreast stay within a span");
    for (i = 0; i + ALL <= n; i += ALL)
        exponentials_of(p + i, ALL, m, scale, &sums);
    if (i < n)
        exponentials_of(p + i, n - i, m, scale, &sums);
    return v16_sum(sums);
}

/* Turns scores into weights: each of the three is a chain that others fill the gaps of. */
static void weigh(struct query *const *tile, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        tile[i]->max_here = greatest_of(tile[i]->p, tile[i]->n_here);
    for (size_t i = 0; i < n; i++)
        merge_greatest(tile[i], scale);
    for (size_t i = 0; i < n; i++) {
        struct query *u = tile[i];

        u->sum = u->sum * u->before + exponentials(u->p, u->n_here, u->max_here, scale) * u->here;
    }
}

/* A span. */

/* What is read behind the keys or values of a chunk that lie in their pages: the span's chunks in
 * order, keys and then values; then the next span's, or the next block's. */
static struct pages next_of(const struct attend_block *b, const struct attend_token *t, size_t span,
                            size_t first, bool values)
{
    if (first + CHUNK < span + SPAN && first + CHUNK < t->n)
        return pages_of(&b->kv, b->head, t, first + CHUNK, values);
    if (!values)
        return pages_of(&b->kv, b->head, t, span, true);
    if (span + SPAN < t->n)
        return pages_of(&b->kv, b->head, t, span + SPAN, false);
    return pages_of(&b->kv, b->next_head, b->next, 0, false);
}

/* Finds who shares the pages of the chunk at `first`, and widens what more than a tile reads, as
 * far as there is room: of one group, which is then most often all. */
static void plan_chunk(const struct attend_block *b, struct scratch *s, size_t span, size_t first,
                       struct piece *ret_piece)
{
    struct sharers *g = ret_piece->sharers;
    bool has_room = true;

    ret_piece->first = first;
    ret_piece->n = CHUNK;
    for (size_t begin = 0; begin < b->n_tokens; begin = g++->end) {
        const struct attend_token *most;
        struct pages here[2], next[2];

        g->end = run_of(b, begin, first, &most);
        for (int values = 0; values < 2; values++) {
            here[values] = pages_of(&b->kv, b->head, most, first, values);
            next[values] = next_of(b, most, span, first, values);
        }
        in_place(&g->keys, &b->kv, &here[0], &next[0], false);
        in_place(&g->values, &b->kv, &here[1], &next[1], true);
        if (!has_room || (g->end - begin) * b->n_sharing <= TILE || here[0].n == 0)
            continue;
        g->keys = widened(&b->kv, &g->keys, s->keys + (first - span) * b->kv.head_dim);
        g->values = widened(&b->kv, &g->values, s->values + (first - span) * b->kv.padded_dim);
        has_room = false;
    }
}

static bool all_share(const struct attend_block *b, const struct piece *p)
{
    return p->sharers[0].end == b->n_tokens && p->sharers[0].keys.wide;
}

static void append(struct operand *to, const struct operand *o)
{
    memcpy(to->scales + to->n_pages, o->scales, o->n_pages * sizeof *o->scales);
    to->n_pages += o->n_pages;
}

static void plan_span(const struct attend_block *b, struct scratch *s, size_t span, size_t end)
{
    s->n_pieces = 0;
    for (size_t first = span; first < span + SPAN && first < end; first += CHUNK) {
        struct piece *p = &s->pieces[s->n_pieces];

        plan_chunk(b, s, span, first, p);
        if (s->n_pieces == 0 || !all_share(b, p) || !all_share(b, p - 1)) {
            s->n_pieces++;
            continue;
        }
        p[-1].n += CHUNK;
        append(&p[-1].sharers->keys, &p->sharers->keys);
        append(&p[-1].sharers->values, &p->sharers->values);
    }
}

/* The scores of a tile, or its outputs by its weights: piece by piece, and in each by those who
 * share it. */
static void run_pieces(const struct attend_block *b, const struct scratch *s,
                       struct query *const *tile, size_t n, bool values)
{
    const struct attend_token *t = b->tokens;

    for (const struct piece *p = s->pieces; p < s->pieces + s->n_pieces; p++) {
        const struct sharers *g = p->sharers;
        size_t n_seen[TILE], at = p->first % SPAN, end;

        for (size_t i = 0; i < n; i = end) {
            const struct operand *o;
            size_t most = 0;

            while (t + g->end <= tile[i]->token)
                g++;
            o = values ? &g->values : &g->keys;
            for (end = i; end < n && tile[end]->token < t + g->end; end++) {
                size_t left = tile[end]->n_here > at ? tile[end]->n_here - at : 0;

                n_seen[end] = left < p->n ? left : p->n;
                most = n_seen[end] > most ? n_seen[end] : most;
            }
            if (most == 0)
                continue;
            if (!values)
                score_tile(b, tile + i, end - i, o, at, pages_for(most));
            scale_tile(tile + i, end - i, o, at);
            if (values)
                gather_tile(b, tile + i, n_seen + i, end - i, o, at);
        }
    }
}

/* out = y * here + out * before; behind the last span that the query sees, over the sum. */
static void merge_outputs(const struct query *u, size_t head_dim, size_t span)
{
    bool is_first = span == 0, is_last = u->token->n <= span + SPAN;
    struct v16 here = v16_all(u->here), before = v16_all(u->before), none = v16_all(0.0f);
    struct v16 share = v16_all(is_last ? 1.0f / u->sum : 1.0f);
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

static void attend_tile(const struct attend_block *b, struct scratch *s, struct query *const *tile,
                        size_t n, size_t span)
{
    size_t dim = b->kv.padded_dim;

    for (size_t i = 0; i < n; i++) {
        tile[i]->p = s->p[i];
        tile[i]->y = s->y + i * dim;
    }
    memset(s->y, 0, n * dim * sizeof *s->y);
    run_pieces(b, s, tile, n, false);
    weigh(tile, n, s->scale);
    run_pieces(b, s, tile, n, true);
    for (size_t i = 0; i < n; i++)
        merge_outputs(tile[i], b->kv.head_dim, span);
}

static void attend_span(const struct attend_block *b, struct scratch *s, size_t span, size_t end)
{
    struct query *tile[TILE];
    size_t n = 0;

    plan_span(b, s, span, end);
    for (struct query *u = s->queries; u < s->queries + b->n_tokens * b->n_sharing; u++) {
        size_t left = u->token->n > span ? u->token->n - span : 0;

        u->n_here = left < SPAN ? left : SPAN;
        if (left > 0)
            tile[n++] = u;
        if (n == TILE) {
            attend_tile(b, s, tile, n, span);
            n = 0;
        }
    }
    if (n > 0)
        attend_tile(b, s, tile, n, span);
}

void ISA_NAME(attend)(const struct attend_block *b)
{
    size_t n = b->n_tokens * b->n_sharing, head_dim = b->kv.head_dim, end = 0;
    struct scratch s;

    assert(n <= ATTEND_QUERIES && b->kv.padded_dim <= MAX_HEAD_DIM);
    s.scale = SCALAR_LOG2_E / sqrtf((float)head_dim);
    for (size_t i = 0; i < n; i++) {
        const struct attend_token *t = &b->tokens[i / b->n_sharing];
        size_t at = t->row * b->stride + i % b->n_sharing * head_dim;

        s.queries[i] = (struct query){.token = t, .q = b->q + at, .out = b->out + at};
        end = t->n > end ? t->n : end;
    }
    for (size_t span = 0; span < end; span += SPAN)
        attend_span(b, &s, span, end);
}
