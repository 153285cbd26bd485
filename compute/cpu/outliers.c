/* The part of a product's outputs that outliers make: each times the weight's numbers in its
 * column. A column is decoded once a panel for all rows of the block that have an outlier there,
 * which most do: a model's outliers keep to a few columns. */
#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"
#include "compute/cpu/panels.h"

enum {
    MAX_PLANES = 2,
    BATCH = 64, /* columns whose places are found at once, for all panels */
};

/* Where a panel has the numbers of one input, in bytes from its begin. */
struct input_place {
    size_t supers, scales;
    size_t lines[MAX_PLANES];
    unsigned shifts[MAX_PLANES]; /* of a code's bits in each four bytes of the line */
};

/* Some inputs that have outliers. */
struct input_columns {
    size_t n;
    struct input_place places[BATCH];
    const struct act_outlier *outliers[BATCH + 1]; /* each column's, in the list */
    float values[BATCH][ACT_ROWS];                 /* the same by row; 0: there is none */
};

/* The same places as panel_code's. form is a constant where this is called. */
static FIXED_SIZE struct input_place place_of(struct block_form form, const struct panel_layout *l,
                                              size_t column)
{
    size_t g = column / GROUP_VALUES, i = column % GROUP_VALUES, quad = i / 4, n = 0;
    size_t chunk = g / l->chunk_groups * l->chunk_bytes, in_chunk = g % l->chunk_groups;
    size_t codes = chunk + l->codes + in_chunk * l->code_step;
    struct input_place p = {.supers = chunk,
                            .scales = chunk + l->scales + in_chunk * l->scale_step};

    if (form.halves && i >= HALF_VALUES)
        p.scales += PANEL_COLUMNS;
#pragma GCC unroll 4
    for (unsigned plane = 8; plane > 0; codes += (form.bits & plane) * LINE_BYTES, plane /= 2) {
        size_t quads = plane == 4 ? 4 : 8 / plane; /* from one line to the next */

        if ((form.bits & plane) == 0)
            continue;
        p.lines[n] = codes + (plane == 4 ? quad % 4 : quad / quads) * LINE_BYTES;
        p.shifts[n++] = (unsigned)(i % 4 * 8 + (plane == 4 ? quad / 4 * 4 : quad % quads * plane));
    }
    return p;
}

static FIXED_SIZE struct v16 numbers_of_codes(struct block_form form, const uint8_t *panel,
                                              const struct input_place *p)
{
    typedef uint32_t codes __attribute__((vector_size(LINE_BYTES)));
    typedef int32_t integers __attribute__((vector_size(LINE_BYTES)));
    typedef float floats __attribute__((vector_size(LINE_BYTES)));
    codes line, code = {0};
    floats number;
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
    if (form.codes == CODE_LINEAR)
        number = __builtin_convertvector((integers)code - form.bias, floats);
    else
        for (size_t c = 0; c < PANEL_COLUMNS; c++)
            number[c] = (float)block_value(&form, (int)code[c]);
    memcpy(&all, &number, sizeof(all));
    return all;
}

static FIXED_SIZE struct v16 load_scales(struct block_form form, const uint8_t *from,
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
static FIXED_SIZE struct v16 input_numbers(struct block_form form, const uint8_t *panel,
                                           const struct panel_layout *l,
                                           const struct input_place *p)
{
    const uint8_t *scales = panel + p->scales, *supers = panel + p->supers;
    struct v16 w = v16_mul(numbers_of_codes(form, panel, p), load_scales(form, scales, supers));

    return form.has_min ? v16_add(w, load_scales(form, scales + l->mins, supers + SUPER_BYTES)) : w;
}

/* y += the outliers of some columns. With AVX-512 the outputs of all rows stay in registers, and
 * rows that have no outlier in a column add 0, which changes no bit: weights are finite, and no sum
 * is -0. n_rows is a constant where this is called. */
static FIXED_SIZE void add_columns(struct v16 *y, size_t n_rows, struct block_form form,
                                   const uint8_t *panel, const struct panel_layout *l,
                                   const struct input_columns *columns)
{
    for (size_t i = 0; i < columns->n; i++) {
        struct v16 w = input_numbers(form, panel, l, &columns->places[i]);
#if defined(__AVX512F__)

        for (size_t r = 0; r < n_rows; r++)
            y[r] = v16_fma(v16_all(columns->values[i][r]), w, y[r]);
#else
        const struct act_outlier *o = columns->outliers[i];

        (void)n_rows;
        for (; o < columns->outliers[i + 1]; o++)
            y[o->row] = v16_fma(v16_all(o->value), w, y[o->row]);
#endif
    }
}

/* Adds some columns' outliers to the outputs of a panel, which are copied meanwhile: rows of a
 * large output are often a multiple of 4096 bytes apart, and more of them than the L1 cache can
 * hold. */
static FIXED_SIZE void add_to_panel(const struct quant_slice *s, size_t n_rows,
                                    struct block_form form, const struct panel_layout *l,
                                    size_t panel, const struct input_columns *columns)
{
    const uint8_t *numbers = s->panels + panel * l->size_bytes;
    size_t column = panel * PANEL_COLUMNS, n_columns = s->n_columns - column;
    float *out = s->out + column;
    struct v16 y[ACT_ROWS];

    for (size_t r = 0; r < n_rows; r++) {
        const float *from = out + (r < s->n_rows ? r : 0) * s->stride;

        y[r] = n_columns < LANES ? v16_load_some(from, n_columns) : v16_load(from);
    }
    add_columns(y, n_rows, form, numbers, l, columns);
    for (size_t r = 0; r < n_rows; r++) {
        if (r < s->n_rows && n_columns < LANES)
            v16_store_some(out + r * s->stride, y[r], n_columns);
        else if (r < s->n_rows)
            v16_store(out + r * s->stride, y[r]);
    }
}

/* Finds the next columns; returns where the list goes on. */
static FIXED_SIZE const struct act_outlier *
next_columns(struct input_columns *out, const struct act_outlier *o, const struct act_outlier *end,
             struct block_form form, const struct panel_layout *l)
{
    size_t n = 0;

    for (; n < BATCH && o < end && o->column != ACT_NONE; n++) {
        uint32_t column = o->column;

        out->places[n] = place_of(form, l, column);
        out->outliers[n] = o;
        memset(out->values[n], 0, sizeof(out->values[n]));
        for (; o < end && o->column == column; o++)
            out->values[n][o->row] = o->value;
    }
    out->outliers[n] = o;
    out->n = n;
    return o;
}

static FIXED_SIZE void add_form(const struct quant_slice *s, struct block_form form, size_t first,
                                size_t last)
{
    struct panel_layout l = panel_layout(form, s->n_groups);
    const struct act_outlier *o = s->outliers, *end = o + s->n_groups * s->n_rows;
    struct input_columns columns;

    while (o < end && o->column != ACT_NONE) {
        o = next_columns(&columns, o, end, form, &l);
        for (size_t panel = first; panel < last; panel++)
#if defined(__AVX512F__)
            if (s->n_rows > 8)
                add_to_panel(s, ACT_ROWS, form, &l, panel, &columns);
            else if (s->n_rows > 1)
                add_to_panel(s, 8, form, &l, panel, &columns);
            else
                add_to_panel(s, 1, form, &l, panel, &columns);
#else
            add_to_panel(s, s->n_rows, form, &l, panel, &columns);
#endif
    }
}

/* Each is a function of its own, where the form is a constant. */
#define ADD(type, ...)                                                                          \
    static __attribute__((noinline)) void add_##type(const struct quant_slice *s, size_t first, \
                                                     size_t last)                               \
    {                                                                                           \
        add_form(s, (struct block_form){__VA_ARGS__}, first, last);                             \
    }
#define ADD_OF(type, ...) [DTYPE_##type] = add_##type,

BLOCK_FORMS(ADD)

void FLOAT_NAME(add_outliers)(const struct quant_slice *s, size_t first, size_t last)
{
    static void (*const adds[])(const struct quant_slice *s, size_t first,
                                size_t last) = {BLOCK_FORMS(ADD_OF)};

    if (s->outliers->column != ACT_NONE)
        adds[s->type](s, first, last);
}
