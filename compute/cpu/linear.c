/* Layers of small networks, forward and backward. A tile of sums stays in registers; every sum is
 * the chain of net.h, whatever the tile, so a row's bits do not depend on its neighbours. */
#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"

/* A tile's rows and columns, in vectors: what the registers hold. */
#if defined(__AVX512F__)
enum { TILE = 4 };
#else
enum { TILE = 2 };
#endif

enum {
    BLOCK_ROWS = 16,  /* rows that share a visit of the weights */
    BLOCK_INS = 512,  /* inputs, whole vectors of them */
    CHAIN_BLOCK = 64, /* links of a chain between two visits of memory: keeps it in the cache */
};

/* v16_load_some in a register. */
static inline struct v16 load_some(const float *p, size_t n)
{
#if defined(__AVX512F__)
    return (struct v16){_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p)};
#elif defined(__AVX2__)
    __m256i count = _mm256_set1_epi32((int)n);
    __m256i first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i second = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);

    return V16_BOTH(_mm256_maskload_ps(p, _mm256_cmpgt_epi32(count, first)),
                    _mm256_maskload_ps(p + 8, _mm256_cmpgt_epi32(count, second)));
#else
    return v16_load_some(p, n);
#endif
}

/* Inputs first … last - 1 of a tile, added to its sums; sums NULL: these are all there are, and the
 * outputs are done. n_rows and n_outs are constants where this is called, as in the other tiles. */
static FIXED_SIZE void forward_tile(const struct linear_slice *s, size_t row, size_t n_rows,
                                    size_t out, size_t n_outs, size_t first, size_t last,
                                    struct v16 sums[][TILE])
{
    size_t n_in = s->n_in, whole = last - (last - first) % LANES, rest = last - whole;
    const float *in = s->in + row * n_in, *w = s->w + out * n_in;
    /* from a weight to the one that the next visit reads in its place */
    size_t ahead = last < n_in ? BLOCK_INS : n_outs * n_in - first;
    struct v16 y[TILE][TILE], weights[TILE];

    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_outs; o++)
            y[r][o] = sums != NULL ? sums[r][o] : v16_all(0.0f);
    for (size_t k = first; k < whole; k += LANES) {
        for (size_t o = 0; o < n_outs; o++) {
            weights[o] = v16_load(w + o * n_in + k);
            if (sums != NULL)
                __builtin_prefetch(w + o * n_in + k + ahead);
        }
        for (size_t r = 0; r < n_rows; r++) {
            struct v16 x = v16_load(in + r * n_in + k);

            for (size_t o = 0; o < n_outs; o++)
                y[r][o] = v16_fma(x, weights[o], y[r][o]);
        }
    }
    if (rest > 0) { /* fma(0, 0, y) is y but for its sign, and no sum is -0 */
        for (size_t o = 0; o < n_outs; o++)
            weights[o] = load_some(w + o * n_in + whole, rest);
        for (size_t r = 0; r < n_rows; r++) {
            struct v16 x = load_some(in + r * n_in + whole, rest);

            for (size_t o = 0; o < n_outs; o++)
                y[r][o] = v16_fma(x, weights[o], y[r][o]);
        }
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_outs; o++)
            if (sums != NULL)
                sums[r][o] = y[r][o];
            else
                s->out[(row + r) * s->n_out + out + o] = s->bias[out + o] + v16_sum(y[r][o]);
}

/* n_rows rows from row on, in tiles; sums [n_rows] or NULL. */
static FIXED_SIZE void forward_tiles(const struct linear_slice *s, size_t row, size_t n_rows,
                                     size_t out, size_t n_outs, size_t first, size_t last,
                                     struct v16 sums[][TILE])
{
    size_t r = 0;

    for (; r + TILE <= n_rows; r += TILE)
        forward_tile(s, row + r, TILE, out, n_outs, first, last, sums != NULL ? sums + r : NULL);
#if defined(__AVX512F__)
    if (r + 3 == n_rows)
        forward_tile(s, row + r, 3, out, n_outs, first, last, sums != NULL ? sums + r : NULL);
    if (r + 2 == n_rows)
        forward_tile(s, row + r, 2, out, n_outs, first, last, sums != NULL ? sums + r : NULL);
#endif
    if (r + 1 == n_rows)
        forward_tile(s, row + r, 1, out, n_outs, first, last, sums != NULL ? sums + r : NULL);
}

/* Up to BLOCK_ROWS rows. Long inputs go by in blocks that stay in the first cache with the weights
 * of the tile, which so are read from memory once for all rows. */
static FIXED_SIZE void forward_block(const struct linear_slice *s, size_t row, size_t n_rows,
                                     size_t out, size_t n_outs)
{
    struct v16 sums[BLOCK_ROWS][TILE];

    if (s->n_in <= BLOCK_INS) {
        forward_tiles(s, row, n_rows, out, n_outs, 0, s->n_in, NULL);
        return;
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_outs; o++)
            sums[r][o] = v16_all(0.0f);
    for (size_t first = 0; first < s->n_in; first += BLOCK_INS)
        forward_tiles(s, row, n_rows, out, n_outs, first,
                      s->n_in - first < BLOCK_INS ? s->n_in : first + BLOCK_INS, sums);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_outs; o++)
            s->out[(row + r) * s->n_out + out + o] = s->bias[out + o] + v16_sum(sums[r][o]);
}

static FIXED_SIZE void forward_rows(const struct linear_slice *s, size_t out, size_t n_outs)
{
    for (size_t row = 0; row < s->n; row += BLOCK_ROWS)
        forward_block(s, row, s->n - row < BLOCK_ROWS ? s->n - row : BLOCK_ROWS, out, n_outs);
}

void ISA_NAME(linear)(const struct linear_slice *s, size_t first, size_t last)
{
    for (; first + TILE <= last; first += TILE)
        forward_rows(s, first, TILE);
    for (; first < last; first++)
        forward_rows(s, first, 1);
}

/* A gradient: to[m][column] = fma over the chain l of a[l * a_link + m * a_row] and
 * b[l * b_link + column], from what is in to. Both kinds are this, with their own strides. */
struct chain {
    const float *a;
    size_t a_link, a_row;
    const float *b;
    size_t b_link;
    float *to;
    size_t to_row;
};

/* Rows row …, columns from column on; n_vectors of them, or the first rest numbers of one. */
static FIXED_SIZE void gradient_tile(const struct chain *c, size_t first, size_t last, size_t row,
                                     size_t n_rows, size_t column, size_t n_vectors, size_t rest)
{
    const float *a = c->a + row * c->a_row, *b = c->b + column;
    float *to = c->to + row * c->to_row + column;
    struct v16 y[TILE][TILE];

    for (size_t r = 0; r < n_rows; r++)
        for (size_t v = 0; v < n_vectors; v++)
            y[r][v] = rest > 0 ? load_some(to + r * c->to_row, rest)
                               : v16_load(to + r * c->to_row + v * LANES);
    for (size_t l = first; l < last; l++) {
        struct v16 vectors[TILE];

        for (size_t v = 0; v < n_vectors; v++)
            vectors[v] = rest > 0 ? load_some(b + l * c->b_link, rest)
                                  : v16_load(b + l * c->b_link + v * LANES);
        for (size_t r = 0; r < n_rows; r++) {
            struct v16 x = v16_all(a[l * c->a_link + r * c->a_row]);

            for (size_t v = 0; v < n_vectors; v++)
                y[r][v] = v16_fma(x, vectors[v], y[r][v]);
        }
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t v = 0; v < n_vectors; v++)
            if (rest > 0)
                v16_store_some(to + r * c->to_row, y[r][v], rest);
            else
                v16_store(to + r * c->to_row + v * LANES, y[r][v]);
}

static FIXED_SIZE void gradient_rows(const struct chain *c, size_t first, size_t last, size_t row,
                                     size_t end_row, size_t column, size_t n_vectors, size_t rest)
{
    for (; row + TILE <= end_row; row += TILE)
        gradient_tile(c, first, last, row, TILE, column, n_vectors, rest);
#if defined(__AVX512F__)
    if (row + 3 == end_row) {
        gradient_tile(c, first, last, row, 3, column, n_vectors, rest);
        return;
    }
#endif
    for (; row < end_row; row++)
        gradient_tile(c, first, last, row, 1, column, n_vectors, rest);
}

static void gradient(const struct chain *c, size_t n_links, size_t row, size_t end_row,
                     size_t column, size_t end_column)
{
    for (size_t first = 0; first < n_links; first += CHAIN_BLOCK) {
        size_t last = n_links - first < CHAIN_BLOCK ? n_links : first + CHAIN_BLOCK, k = column;

        for (; k + TILE * LANES <= end_column; k += TILE * LANES)
            gradient_rows(c, first, last, row, end_row, k, TILE, 0);
        for (; k + LANES <= end_column; k += LANES)
            gradient_rows(c, first, last, row, end_row, k, 1, 0);
        if (k < end_column)
            gradient_rows(c, first, last, row, end_row, k, 1, end_column - k);
    }
}

void ISA_NAME(linear_to_input)(const struct linear_slice *s, size_t first, size_t last)
{
    const struct chain c = {s->dout, 1, s->n_out, s->w, s->n_in, s->out, s->n_in};

    for (size_t i = 0; i < s->n; i++)
        memset(s->out + i * s->n_in + first, 0, (last - first) * sizeof *s->out);
    gradient(&c, s->n_out, 0, s->n, first, last);
}

void ISA_NAME(linear_to_weight)(const struct linear_slice *s, size_t first, size_t last)
{
    const struct chain c = {s->dout, s->n_out, 1, s->in, s->n_in, s->out, s->n_in};

    for (; first < last; first += TILE) /* the longer matrix is visited in its own order */
        gradient(&c, s->n, first, last - first < TILE ? last : first + TILE, 0, s->n_in);
}
