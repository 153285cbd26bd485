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
    CHAIN_BLOCK = 64
}; /* links of a chain between two visits of memory: keeps it in the cache */

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

/* Forward. n_rows and n_outs are constants where this is called, as in the other tiles. */
static FIXED_SIZE void forward_tile(const struct linear_slice *s, size_t row, size_t n_rows,
                                    size_t out, size_t n_outs)
{
    size_t n_in = s->n_in, whole = n_in / LANES * LANES, rest = n_in % LANES;
    const float *in = s->in + row * n_in, *w = s->w + out * n_in;
    struct v16 y[TILE][TILE], weights[TILE];

    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_outs; o++)
            y[r][o] = v16_all(0.0f);
    for (size_t k = 0; k < whole; k += LANES) {
        for (size_t o = 0; o < n_outs; o++)
            weights[o] = v16_load(w + o * n_in + k);
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
            s->out[(row + r) * s->n_out + out + o] = s->bias[out + o] + v16_sum(y[r][o]);
}

static FIXED_SIZE void forward_rows(const struct linear_slice *s, size_t out, size_t n_outs)
{
    size_t row = 0;

    for (; row + TILE <= s->n; row += TILE)
        forward_tile(s, row, TILE, out, n_outs);
#if defined(__AVX512F__)
    if (row + 3 == s->n) {
        forward_tile(s, row, 3, out, n_outs);
        return;
    }
    if (row + 2 == s->n) {
        forward_tile(s, row, 2, out, n_outs);
        return;
    }
#endif
    if (row < s->n)
        forward_tile(s, row, 1, out, n_outs);
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

    gradient(&c, s->n, first, last, 0, s->n_in);
}
