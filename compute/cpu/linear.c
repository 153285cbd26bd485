/* Layers of small networks, forward and backward. A tile of sums stays in registers; every sum is
 * the chain of net.h, whatever the tile, so a row's bits do not depend on its neighbours. */
#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"

/* The sums that registers hold: a tile's rows and outputs forward, a gradient's rows and
 * vectors. */
#if defined(__AVX512F__)
enum { TILE_ROWS = 6, TILE = 4 };
#else
enum { TILE_ROWS = 2, TILE = 2 };
#endif

enum {
    BLOCK_OUTS = LANES, /* whose sums stay in the L1 cache for a block of inputs */
    CHAIN_BLOCK = 64,   /* links of a chain at a time, so that its operands stay in the cache */
};

/* Up to LINEAR_ROWS rows of inputs: vector v of row r at x + r * row + v * vector. */
struct inputs {
    const float *x;
    size_t row, vector;
};

/* Inputs first … last - 1 of a tile, added to its sums ([n_rows][BLOCK_OUTS]). n_rows and n_outs
 * are constants where this is called. */
static FIXED_SIZE void forward_tile(const struct linear_slice *s, const struct inputs *in,
                                    size_t n_rows, size_t out, size_t n_outs, size_t first,
                                    size_t last, struct v16 *sums)
{
    size_t n_in = s->n_in, whole = last - (last - first) % LANES, rest = last - whole;
    const float *w = s->w + out * n_in, *x = in->x + first / LANES * in->vector;
    struct v16 y[TILE_ROWS][TILE], weights[TILE];

    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_outs; o++)
            y[r][o] = first > 0 ? sums[r * BLOCK_OUTS + o] : v16_all(0.0f);
    for (size_t k = first; k < whole; k += LANES, x += in->vector) {
        for (size_t o = 0; o < n_outs; o++)
            weights[o] = v16_load(w + o * n_in + k);
        for (size_t r = 0; r < n_rows; r++) {
            struct v16 a = v16_load(x + r * in->row);

            for (size_t o = 0; o < n_outs; o++)
                y[r][o] = v16_fma(a, weights[o], y[r][o]);
        }
    }
    if (rest > 0) { /* fma(0, 0, y) is y but for its sign, and no sum is -0 */
        for (size_t o = 0; o < n_outs; o++)
            weights[o] = v16_load_head(w + o * n_in + whole, rest);
        for (size_t r = 0; r < n_rows; r++) {
            struct v16 a = v16_load_head(x + r * in->row, rest);

            for (size_t o = 0; o < n_outs; o++)
                y[r][o] = v16_fma(a, weights[o], y[r][o]);
        }
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_outs; o++)
            sums[r * BLOCK_OUTS + o] = y[r][o];
}

/* n_rows rows in tiles of about the same height. */
static FIXED_SIZE void forward_tiles(const struct linear_slice *s, struct inputs in, size_t n_rows,
                                     size_t out, size_t n_outs, size_t first, size_t last,
                                     struct v16 *sums)
{
    size_t n_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    size_t height = (n_rows + n_tiles - 1) / n_tiles;

    while (n_rows > 0) {
        size_t n = n_rows < height ? n_rows : height;

        switch (n) {
        case 1:
            forward_tile(s, &in, 1, out, n_outs, first, last, sums);
            break;
        case 2:
            forward_tile(s, &in, 2, out, n_outs, first, last, sums);
            break;
#if defined(__AVX512F__)
        case 3:
            forward_tile(s, &in, 3, out, n_outs, first, last, sums);
            break;
        case 4:
            forward_tile(s, &in, 4, out, n_outs, first, last, sums);
            break;
        case 5:
            forward_tile(s, &in, 5, out, n_outs, first, last, sums);
            break;
        default:
            forward_tile(s, &in, TILE_ROWS, out, n_outs, first, last, sums);
            break;
#endif
        }
        in.x += n * in.row;
        sums += n * BLOCK_OUTS;
        n_rows -= n;
    }
}

/* Prefetches the first line of each row of a tile's weights: the processor prefetches only after
 * some accesses in one direction, and no farther than the page. */
static inline void linear_fetch(const struct linear_slice *s, size_t out, size_t first)
{
    for (size_t o = 0; o < TILE; o++)
        __builtin_prefetch(s->w + (out + o) * s->n_in + first, 0, 2);
}

/* Outputs out … end - 1, at most BLOCK_OUTS, of some rows. Inputs are processed in blocks that stay
 * in the L1 cache with the sums; weights are read once for all rows. For a single row, weights are
 * read from end to end. */
static void forward_block(const struct linear_slice *s, struct inputs in, size_t n_rows, size_t out,
                          size_t end, float *to)
{
    struct v16 sums[LINEAR_ROWS * BLOCK_OUTS]; /* [rows][BLOCK_OUTS] */
    size_t width = n_rows > 1 ? LINEAR_INS : s->n_in;

    for (size_t first = 0, last; first < s->n_in; first = last) {
        size_t o = out;

        last = s->n_in - first < width ? s->n_in : first + width;
        for (; o + TILE <= end; o += TILE) {
            if (o + TILE < end)
                linear_fetch(s, o + TILE, first);
            else if (last < s->n_in)
                linear_fetch(s, out, last);
            else
                linear_fetch(s, end, 0);
            forward_tiles(s, in, n_rows, o, TILE, first, last, sums + (o - out));
        }
        for (; o < end; o++)
            forward_tiles(s, in, n_rows, o, 1, first, last, sums + (o - out));
    }
    for (size_t r = 0; r < n_rows; r++, to += s->n_out)
        if (end - out == BLOCK_OUTS)
            v16_store(to + out, v16_add(v16_load(s->bias + out), v16_sums(sums + r * BLOCK_OUTS)));
        else
            for (size_t o = out; o < end; o++)
                to[o] = s->bias[o] + v16_sum(sums[r * BLOCK_OUTS + o - out]);
}

void FLOAT_NAME(linear)(const struct linear_slice *s, size_t first, size_t last)
{
    bool packs = linear_packs(s->n, s->n_in);
    size_t width = packs ? linear_packed_width(s->n_in) : s->n_in;

    for (; first < last; first += BLOCK_OUTS)
        for (size_t row = 0; row < s->n; row += LINEAR_ROWS) {
            size_t n_rows = s->n - row < LINEAR_ROWS ? s->n - row : LINEAR_ROWS;
            struct inputs in = {s->in + row * width, width, LANES};

            if (packs)
                in = (struct inputs){s->packed + row * width, LANES, n_rows * LANES};
            forward_block(s, in, n_rows, first,
                          last - first < BLOCK_OUTS ? last : first + BLOCK_OUTS,
                          s->out + row * s->n_out);
        }
}

void FLOAT_NAME(linear_pack)(const struct linear_slice *s, float *packed, size_t first, size_t last)
{
    size_t width = linear_packed_width(s->n_in);

    for (size_t row = 0; row < s->n; row += LINEAR_ROWS) {
        size_t n_rows = s->n - row < LINEAR_ROWS ? s->n - row : LINEAR_ROWS;
        const float *in = s->in + row * s->n_in;
        float *to = packed + row * width;

        for (size_t v = first; v < last; v++)
            for (size_t r = 0; r < n_rows; r++) {
                size_t left = s->n_in - v * LANES;

                v16_store(to + (v * n_rows + r) * LANES,
                          left < LANES ? v16_load_head(in + r * s->n_in + v * LANES, left)
                                       : v16_load(in + r * s->n_in + v * LANES));
            }
    }
}

/* A gradient: to[m][column] = fma over the chain l of a[l * a_link + m * a_row] and b[l * b_link +
 * column], from what is in to. Both gradients have this form, with different strides. */
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
            y[r][v] = rest > 0 ? v16_load_head(to + r * c->to_row, rest)
                               : v16_load(to + r * c->to_row + v * LANES);
    for (size_t l = first; l < last; l++) {
        struct v16 vectors[TILE];

        for (size_t v = 0; v < n_vectors; v++)
            vectors[v] = rest > 0 ? v16_load_head(b + l * c->b_link, rest)
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

void FLOAT_NAME(linear_to_input)(const struct linear_slice *s, size_t first, size_t last)
{
    const struct chain c = {s->dout, 1, s->n_out, s->w, s->n_in, s->out, s->n_in};

    for (size_t i = 0; i < s->n; i++)
        memset(s->out + i * s->n_in + first, 0, (last - first) * sizeof(*s->out));
    gradient(&c, s->n_out, 0, s->n, first, last);
}

void FLOAT_NAME(linear_to_weight)(const struct linear_slice *s, size_t first, size_t last)
{
    const struct chain c = {s->dout, s->n_out, 1, s->in, s->n_in, s->out, s->n_in};

    for (; first < last; first += TILE) /* the larger matrix is read in its own order */
        gradient(&c, s->n, first, last - first < TILE ? last : first + TILE, 0, s->n_in);
}
