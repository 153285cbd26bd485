/* The part of a product's outputs that outliers make: each times the weight's numbers in its
 * column. A column is decoded once a panel for all rows of the block that have an outlier there,
 * which most do: a model's outliers keep to a few columns. Some panels are done at once, while what
 * the product has read of them is in the L1 cache: where a column lies is found once for all. */
#ifndef COMPUTE_CPU_OUTLIER_LANES_H
#define COMPUTE_CPU_OUTLIER_LANES_H

#include "compute/cpu/kernels.h"
#include "compute/cpu/lanes.h"
#include "compute/cpu/panels.h"

enum {
    OUTLIER_PLANES = 2,
    OUTLIER_COLUMNS = 32, /* that are decoded before they are multiplied with many rows */
#if defined(__AVX512F__)
    OUTLIER_PANELS = 4, /* that are done at once */
#else
    OUTLIER_PANELS = 2,
#endif
};

typedef uint32_t outlier_codes __attribute__((vector_size(LINE_BYTES)));
typedef int32_t outlier_integers __attribute__((vector_size(LINE_BYTES)));
typedef float outlier_numbers __attribute__((vector_size(LINE_BYTES)));

/* Where a panel has the numbers of one input, in bytes from its begin. */
struct outlier_place {
    size_t supers, scales;
    size_t lines[OUTLIER_PLANES];
    unsigned shifts[OUTLIER_PLANES]; /* of a code's bits in each four bytes of the line */
};

/* The same places as panel_code's. form is a constant where this is called. */
static FIXED_SIZE struct outlier_place
outlier_place_of(struct block_form form, const struct panel_layout *l, uint32_t column)
{
    size_t g = column / GROUP_VALUES, i = column % GROUP_VALUES, quad = i / 4, n = 0;
    size_t chunk = g / l->chunk_groups * l->chunk_bytes, in_chunk = g % l->chunk_groups;
    size_t codes = chunk + l->codes + in_chunk * l->code_step;
    struct outlier_place p = {.supers = chunk,
                              .scales = chunk + l->scales + in_chunk * l->scale_step};

    if (form.halves)
        p.scales += i / HALF_VALUES * PANEL_COLUMNS;
#pragma GCC unroll 4
    for (unsigned plane = 8; plane > 0; codes += (form.bits & plane) * LINE_BYTES, plane /= 2) {
        size_t quads = plane == 4 ? 4 : 8 / plane; /* from one line to the next */
        size_t shift = i % 4 * 8 + (plane == 4 ? quad / 4 * 4 : quad % quads * plane);

        if ((form.bits & plane) == 0)
            continue;
        p.lines[n] = codes + (plane == 4 ? quad % 4 : quad / quads) * LINE_BYTES;
        p.shifts[n++] = (unsigned)shift;
    }
    return p;
}

static FIXED_SIZE struct v16 outlier_numbers_of(struct block_form form, const uint8_t *panel,
                                                const struct outlier_place *p)
{
    outlier_codes line, code = {0};
    outlier_numbers number;
    struct v16 all;
    unsigned at = 0, n = 0;

#pragma GCC unroll 4
    for (unsigned plane = 8; plane > 0; plane /= 2) {
        if ((form.bits & plane) == 0)
            continue;
        memcpy(&line, panel + p->lines[n], sizeof(line));
        code |= (line >> p->shifts[n] & ((1u << plane) - 1)) << at;
        at += plane;
        n++;
    }
    if (form.codes != CODE_LINEAR)
        return v16_lookup(form.codes == CODE_IQ4 ? dtype_iq4_values : dtype_e2m1_values, &code);
    number = __builtin_convertvector((outlier_integers)code - form.bias, outlier_numbers);
    memcpy(&all, &number, sizeof(all));
    return all;
}

static FIXED_SIZE struct v16 outlier_scales(struct block_form form, const uint8_t *from,
                                            const uint8_t *supers)
{
    float power[PANEL_COLUMNS];

    if (form.scale == SCALE_F16)
        return v16_load_f16((const uint16_t *)(const void *)from);
    if (form.scale == SCALE_STEPS)
        return v16_mul(v16_load_f16((const uint16_t *)(const void *)supers),
                       v16_load_i8((const int8_t *)from));
    for (size_t c = 0; c < PANEL_COLUMNS; c++)
        power[c] = scalar_from_bits((from[c] < 1 ? 0u : from[c] - 1u) << 23);
    return v16_load(power);
}

/* The weight's numbers in 16 columns, of one input: the bits of panels_read_row. */
static FIXED_SIZE struct v16 outlier_input(struct block_form form, const uint8_t *panel,
                                           const struct panel_layout *l,
                                           const struct outlier_place *p)
{
    const uint8_t *scales = panel + p->scales, *supers = panel + p->supers;
    struct v16 w =
        v16_mul(outlier_numbers_of(form, panel, p), outlier_scales(form, scales, supers));

    return form.has_min ? v16_add(w, outlier_scales(form, scales + l->mins, supers + SUPER_BYTES))
                        : w;
}

/* Loops over panels must be unrolled, so that their outputs stay in registers. */
#if defined(__clang__)
#define OUTLIER_EACH(p, n) _Pragma("unroll") for (size_t p = 0; p < n; p++)
#else
#define OUTLIER_EACH(p, n) _Pragma("GCC unroll 4") for (size_t p = 0; p < n; p++)
#endif

/* A row's outputs in some panels, of which only one may have fewer columns than lanes. */
static FIXED_SIZE void outlier_load(struct v16 *y, const float *out, size_t n_columns,
                                    size_t n_panels)
{
    if (n_panels == 1 && n_columns < LANES)
        y[0] = v16_load_some(out, n_columns);
    else
        OUTLIER_EACH(p, n_panels)
    y[p] = v16_load(out + p * PANEL_COLUMNS);
}

static FIXED_SIZE void outlier_store(float *out, const struct v16 *y, size_t n_columns,
                                     size_t n_panels)
{
    if (n_panels == 1 && n_columns < LANES)
        v16_store_some(out, y[0], n_columns);
    else
        OUTLIER_EACH(p, n_panels)
    v16_store(out + p * PANEL_COLUMNS, y[p]);
}

/* One row. n_panels is a constant where this is called. */
static FIXED_SIZE void outliers_add_to_row(const struct quant_slice *s, struct block_form form,
                                           size_t panel, size_t n_panels)
{
    const struct panel_layout l = panel_layout(form, s->n_groups);
    const uint8_t *from = s->panels + panel * l.size_bytes;
    const struct act_outliers all = s->outliers;
    size_t column = panel * PANEL_COLUMNS, n = all.counts->n_columns;
    struct v16 y[OUTLIER_PANELS];

    outlier_load(y, s->out + column, s->n_columns - column, n_panels);
    for (size_t k = 0; k < n; k++) {
        struct outlier_place place = outlier_place_of(form, &l, all.columns[k]);
        struct v16 value = v16_all(all.rows[k].value);

        OUTLIER_EACH(p, n_panels)
        y[p] = v16_fma(value, outlier_input(form, from + p * l.size_bytes, &l, &place), y[p]);
    }
    outlier_store(s->out + column, y, s->n_columns - column, n_panels);
}

/* The numbers of some columns in some panels. */
typedef float outlier_scratch[OUTLIER_COLUMNS][OUTLIER_PANELS][PANEL_COLUMNS];

/* Adds the outliers o … end - 1 of a row as long as they are of columns before `last`, from `first`
 * on; returns where they go on. */
static FIXED_SIZE const struct act_outlier *
outliers_add_some(float *out, size_t n_columns, size_t n_panels, outlier_scratch numbers,
                  const struct act_outlier *o, const struct act_outlier *end, size_t first,
                  size_t last)
{
    struct v16 y[OUTLIER_PANELS];

    outlier_load(y, out, n_columns, n_panels);
    for (; o < end && o->column < last; o++) {
        struct v16 value = v16_all(o->value);

        OUTLIER_EACH(p, n_panels)
        y[p] = v16_fma(value, v16_load(numbers[o->column - first][p]), y[p]);
    }
    outlier_store(out, y, n_columns, n_panels);
    return o;
}

/* Any number of rows. */
static FIXED_SIZE void outliers_add_to_rows(const struct quant_slice *s, struct block_form form,
                                            size_t panel, size_t n_panels)
{
    const struct panel_layout l = panel_layout(form, s->n_groups);
    const uint8_t *from = s->panels + panel * l.size_bytes;
    const struct act_outliers all = s->outliers;
    size_t column = panel * PANEL_COLUMNS, n = all.counts->n_columns, last;
    const struct act_outlier *next[ACT_ROWS];
    _Alignas(LINE_BYTES) outlier_scratch numbers;

    for (size_t r = 0; r < s->n_rows; r++)
        next[r] = all.rows + r * s->n_groups;
    for (size_t first = 0; first < n; first = last) {
        last = n - first < OUTLIER_COLUMNS ? n : first + OUTLIER_COLUMNS;
        for (size_t k = first; k < last; k++) {
            struct outlier_place place = outlier_place_of(form, &l, all.columns[k]);

            OUTLIER_EACH(p, n_panels)
            v16_store(numbers[k - first][p],
                      outlier_input(form, from + p * l.size_bytes, &l, &place));
        }
        for (size_t r = 0; r < s->n_rows; r++)
            next[r] = outliers_add_some(
                s->out + r * s->stride + column, s->n_columns - column, n_panels, numbers, next[r],
                all.rows + r * s->n_groups + all.counts->of_row[r], first, last);
    }
}

/* Adds the outliers' part to panels first … last - 1 of the outputs. form is a constant where this
 * is called. */
static FIXED_SIZE void outliers_add(const struct quant_slice *s, struct block_form form,
                                    size_t first, size_t last)
{
    if (s->outliers.counts->n_columns == 0)
        return;
    for (size_t n; first < last; first += n) {
        bool some = last - first >= OUTLIER_PANELS &&
                    s->n_columns - first * PANEL_COLUMNS >= OUTLIER_PANELS * PANEL_COLUMNS;

        n = some ? OUTLIER_PANELS : 1;
        if (s->n_rows == 1 && some)
            outliers_add_to_row(s, form, first, OUTLIER_PANELS);
        else if (s->n_rows == 1)
            outliers_add_to_row(s, form, first, 1);
        else if (some)
            outliers_add_to_rows(s, form, first, OUTLIER_PANELS);
        else
            outliers_add_to_rows(s, form, first, 1);
    }
}

#endif
