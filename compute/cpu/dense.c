/* Products with float weights: an output is one chain of fma over its inputs in order, sixteen
 * outputs side by side. */
#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"
#include "compute/cpu/panels.h"

/* As many sums as registers hold beside a row of weights and one input. */
#if defined(__AVX512F__)
enum { TILE_ROWS = 8, TILE_PANELS = 3 };
#else
enum { TILE_ROWS = 3, TILE_PANELS = 2 };
#endif

static inline struct v16 dense_load(const uint8_t *panel, enum dtype type, size_t k)
{
    const void *at = panel + k * PANEL_COLUMNS * (type == DTYPE_F32 ? 4 : 2);

    if (type == DTYPE_F32)
        return v16_load(at);
    return type == DTYPE_F16 ? v16_load_f16(at) : v16_load_bf16(at);
}

/* The columns of the last panel may be fewer than 16. */
static inline void dense_store(const struct dense_slice *s, size_t row, size_t panel, struct v16 y)
{
    size_t column = panel * PANEL_COLUMNS, n = s->n_columns - column;
    float *to = s->out + row * s->stride + column;

    if (n >= PANEL_COLUMNS)
        v16_store(to, s->adds ? v16_add(v16_load(to), y) : y);
    else
        v16_store_some(to, s->adds ? v16_add(v16_load_some(to, n), y) : y, n);
}

/* n_rows and n_panels are constants where this is called. */
static FIXED_SIZE void dense_tile(const struct dense_slice *s, enum dtype type, size_t row,
                                  size_t n_rows, size_t panel, size_t n_panels)
{
    size_t panel_size = s->n_inputs * PANEL_COLUMNS * (type == DTYPE_F32 ? 4 : 2);
    const uint8_t *from = s->panels + panel * panel_size;
    const float *in = s->in + row * s->n_inputs;
    struct v16 y[TILE_ROWS][TILE_PANELS];

    for (size_t r = 0; r < n_rows; r++)
        for (size_t p = 0; p < n_panels; p++)
            y[r][p] = v16_all(0.0f);
    for (size_t k = 0; k < s->n_inputs; k++) {
        struct v16 w[TILE_PANELS];

        for (size_t p = 0; p < n_panels; p++)
            w[p] = dense_load(from + p * panel_size, type, k);
        for (size_t r = 0; r < n_rows; r++) {
            struct v16 x = v16_all(in[r * s->n_inputs + k]);

            for (size_t p = 0; p < n_panels; p++)
                y[r][p] = v16_fma(w[p], x, y[r][p]);
        }
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t p = 0; p < n_panels; p++)
            dense_store(s, row + r, panel + p, y[r][p]);
}

static FIXED_SIZE void rows_by_panels(const struct dense_slice *s, enum dtype type, size_t panel,
                                      size_t n_panels)
{
    size_t row = 0;

    for (; row + TILE_ROWS <= s->n_rows; row += TILE_ROWS)
        dense_tile(s, type, row, TILE_ROWS, panel, n_panels);
    for (; row < s->n_rows; row++)
        dense_tile(s, type, row, 1, panel, n_panels);
}

static FIXED_SIZE void product(const struct dense_slice *s, enum dtype type, size_t first,
                               size_t last)
{
    for (; first + TILE_PANELS <= last; first += TILE_PANELS)
        rows_by_panels(s, type, first, TILE_PANELS);
    for (; first < last; first++)
        rows_by_panels(s, type, first, 1);
}

void FLOAT_NAME(dense_product)(const struct dense_slice *s, size_t first, size_t last)
{
    if (s->type == DTYPE_F32)
        product(s, DTYPE_F32, first, last);
    else if (s->type == DTYPE_F16)
        product(s, DTYPE_F16, first, last);
    else
        product(s, DTYPE_BF16, first, last);
}
