#include "compute/cpu/panels.h"

#include <assert.h>
#include <string.h>

static bool is_block(const struct tensor *t, struct block_form *ret_form)
{
    return block_form_of(ret_form, t->type);
}

static size_t value_bytes(enum dtype t)
{
    return dtype_block_bytes(t);
}

size_t panel_bytes(const struct tensor *t)
{
    struct block_form form;

    if (is_block(t, &form))
        return panel_layout(form, t->n_cols / GROUP_VALUES).size_bytes;
    return t->n_cols * PANEL_COLUMNS * value_bytes(t->type);
}

static void put_scale(uint8_t *to, const struct block_form *form, size_t column, float wide,
                      uint16_t narrow)
{
    if (form->wide)
        memcpy(to + column * sizeof wide, &wide, sizeof wide);
    else
        memcpy(to + column * sizeof narrow, &narrow, sizeof narrow);
}

static void put_codes(uint8_t *to, const struct block_form *form, size_t column,
                      const uint8_t code[GROUP_VALUES])
{
    size_t i;

    if (form->nibbles) {
        for (i = 0; i < HALF_VALUES; i++)
            to[i / 4 * LINE_BYTES + column * 4 + i % 4] =
                (uint8_t)(code[i] | code[HALF_VALUES + i] << 4);
        return;
    }
    for (i = 0; i < GROUP_VALUES; i++)
        to[i / 4 * LINE_BYTES + column * 4 + i % 4] = code[i];
}

static void pack_group(uint8_t *scales, uint8_t *mins, uint8_t *codes,
                       const struct block_form *form, enum dtype type, const uint8_t *row, size_t g,
                       size_t column)
{
    struct block_group group;

    block_group_read(&group, type, row, g);
    put_scale(scales, form, column, group.scale[0], group.scale_f16);
    if (form->halves)
        put_scale(scales + PANEL_COLUMNS * sizeof(float), form, column, group.scale[1], 0);
    if (form->has_min)
        put_scale(mins, form, column, group.min, group.min_f16);
    put_codes(codes, form, column, group.code);
}

/* The formats whose bytes are only moved: four at a time. Q4_1's nibbles are in the panel's order
 * already; Q8_0's bytes lose their sign. */
static void move_group(uint8_t *scales, uint8_t *mins, uint8_t *codes, const struct tensor *t,
                       const uint8_t *from, size_t column)
{
    size_t n_quads = t->type == DTYPE_Q4_1 ? 4 : 8;
    uint32_t flip = t->type == DTYPE_Q4_1 ? 0 : 0x80808080, quad;

    memcpy(scales + column * 2, from, 2);
    if (t->type == DTYPE_Q4_1)
        memcpy(mins + column * 2, from + 2, 2);
    from += t->type == DTYPE_Q4_1 ? 4 : 2;
    for (size_t i = 0; i < n_quads; i++) {
        memcpy(&quad, from + i * 4, 4);
        quad ^= flip;
        memcpy(codes + i * LINE_BYTES + column * 4, &quad, 4);
    }
}

/* rows: the panel's own. */
static void pack_blocks(uint8_t *panel, const struct tensor *t, const struct block_form *form,
                        const uint8_t *rows, size_t n_rows)
{
    size_t n_groups = t->n_cols / GROUP_VALUES, row_bytes = dtype_row_bytes(t->type, t->n_cols);
    struct panel_layout l = panel_layout(*form, n_groups);
    bool moves = t->type == DTYPE_Q4_1 || t->type == DTYPE_Q8_0;

    if (n_rows < PANEL_COLUMNS)
        memset(panel, 0, l.size_bytes);
    for (size_t g = 0; g < n_groups; g++) {
        uint8_t *scales = panel + l.scales + g * l.scale_step;
        uint8_t *codes = panel + l.codes + g * l.code_step;

        for (size_t c = 0; c < n_rows; c++)
            if (moves)
                move_group(scales, scales + l.mins, codes, t,
                           rows + c * row_bytes + g * dtype_block_bytes(t->type), c);
            else
                pack_group(scales, scales + l.mins, codes, form, t->type, rows + c * row_bytes, g,
                           c);
    }
}

static void pack_floats(uint8_t *panel, const struct tensor *t, const uint8_t *rows, size_t n_rows)
{
    size_t size = value_bytes(t->type);

    if (n_rows < PANEL_COLUMNS)
        memset(panel, 0, t->n_cols * PANEL_COLUMNS * size);
    for (size_t c = 0; c < n_rows; c++) {
        const uint8_t *from = rows + c * t->n_cols * size;

        for (size_t k = 0; k < t->n_cols; k++)
            memcpy(panel + (k * PANEL_COLUMNS + c) * size, from + k * size, size);
    }
}

void panels_pack(uint8_t *panels, const struct tensor *t, const uint8_t *rows, size_t first,
                 size_t last)
{
    size_t step = panel_bytes(t), row_bytes = dtype_row_bytes(t->type, t->n_cols);
    struct block_form form;
    bool blocks = is_block(t, &form);

    assert(last <= (t->n_rows + PANEL_COLUMNS - 1) / PANEL_COLUMNS);
    for (size_t p = first; p < last; p++) {
        const uint8_t *from = rows + (p - first) * PANEL_COLUMNS * row_bytes;
        size_t n_rows = t->n_rows - p * PANEL_COLUMNS;

        if (n_rows > PANEL_COLUMNS)
            n_rows = PANEL_COLUMNS;
        if (blocks)
            pack_blocks(panels + p * step, t, &form, from, n_rows);
        else
            pack_floats(panels + p * step, t, from, n_rows);
    }
}

static float take_scale(const uint8_t *from, const struct block_form *form, size_t column)
{
    uint16_t narrow;
    float wide;

    if (form->wide) {
        memcpy(&wide, from + column * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, from + column * sizeof narrow, sizeof narrow);
    return f16_to_f32(narrow);
}

static int take_code(const uint8_t *codes, const struct block_form *form, size_t column, size_t i)
{
    size_t at = form->nibbles ? i % HALF_VALUES : i;
    int code = codes[at / 4 * LINE_BYTES + column * 4 + at % 4];

    return form->nibbles ? code >> (i < HALF_VALUES ? 0 : 4) & 15 : code;
}

static void read_blocks(const uint8_t *panel, const struct tensor *t, const struct block_form *form,
                        size_t column, float *out)
{
    size_t n_groups = t->n_cols / GROUP_VALUES;
    struct panel_layout l = panel_layout(*form, n_groups);

    for (size_t g = 0; g < n_groups; g++, out += GROUP_VALUES) {
        const uint8_t *scales = panel + l.scales + g * l.scale_step;
        const uint8_t *codes = panel + l.codes + g * l.code_step;
        float scale[2], min = form->has_min ? take_scale(scales + l.mins, form, column) : 0;

        scale[0] = scale[1] = take_scale(scales, form, column);
        if (form->halves)
            scale[1] = take_scale(scales + PANEL_COLUMNS * sizeof(float), form, column);
        for (size_t i = 0; i < GROUP_VALUES; i++) {
            out[i] =
                (float)(take_code(codes, form, column, i) - form->bias) * scale[i / HALF_VALUES];
            if (form->has_min)
                out[i] += min;
        }
    }
}

void panels_read_row(const uint8_t *panels, const struct tensor *t, size_t row, float *out)
{
    const uint8_t *panel = panels + row / PANEL_COLUMNS * panel_bytes(t);
    size_t column = row % PANEL_COLUMNS, size = value_bytes(t->type);
    struct block_form form;

    assert(row < t->n_rows);
    if (is_block(t, &form)) {
        read_blocks(panel, t, &form, column, out);
        return;
    }
    for (size_t k = 0; k < t->n_cols; k++)
        dtype_decode(t->type, panel + (k * PANEL_COLUMNS + column) * size, 1, out + k);
}
