#include "compute/cpu/panels.h"

#include <assert.h>
#include <math.h>
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

static void put_u16(uint8_t *to, size_t column, uint16_t value)
{
    memcpy(to + column * sizeof(value), &value, sizeof(value));
}

/* Bits `shift` … of codes first, first + 4, …, n_bits each, side by side in a byte. */
static uint8_t gather_bits(const uint8_t *code, size_t first, size_t shift, size_t n_bits)
{
    uint8_t byte = 0;

    for (size_t j = 0; j < 8 / n_bits; j++)
        byte |= (uint8_t)((code[first + 4 * j] >> shift & ((1 << n_bits) - 1)) << j * n_bits);
    return byte;
}

/* Four bytes of a line: of one column. */
static void put_quad(uint8_t *to, const uint8_t byte[4], size_t line, size_t column)
{
    memcpy(to + line * LINE_BYTES + column * 4, byte, 4);
}

static void put_codes(uint8_t *to, const struct block_form *form, size_t column,
                      const uint8_t code[GROUP_VALUES])
{
    size_t planes[] = {form->bits & 4, form->bits & 2, form->bits & 1}, shift = 0;
    uint8_t byte[4];

    for (size_t line = 0; form->bits == 8 && line < 8; line++)
        put_quad(to, code + line * 4, line, column);
    for (size_t line = 0; planes[0] > 0 && line < 4; line++) {
        for (size_t i = 0; i < 4; i++)
            byte[i] = (uint8_t)((code[line * 4 + i] & 15) | code[HALF_VALUES + line * 4 + i] << 4);
        put_quad(to, byte, line, column);
    }
    for (size_t plane = 0; plane < 3; plane++) {
        to += plane > 0 ? planes[plane - 1] * LINE_BYTES : 0;
        for (size_t line = 0; plane > 0 && line < planes[plane]; line++) {
            for (size_t i = 0; i < 4; i++)
                byte[i] = gather_bits(code, line * HALF_VALUES + i, shift, planes[plane]);
            put_quad(to, byte, line, column);
        }
        shift += planes[plane];
    }
}

static void put_steps(uint8_t *scales, uint8_t *mins, const struct block_form *form, size_t column,
                      const struct block_group *group)
{
    for (size_t h = 0; h < (form->halves ? 2 : 1); h++) {
        scales[h * PANEL_COLUMNS + column] = (uint8_t)group->steps[h];
        if (form->has_min)
            mins[h * PANEL_COLUMNS + column] = (uint8_t)group->min_steps[h];
    }
}

/* The places of a group in a panel that is being packed. */
struct group_place {
    uint8_t *scales, *mins, *codes, *supers;
};

static struct group_place place_of(uint8_t *panel, const struct panel_layout *l, size_t g)
{
    struct panel_group at = panel_group_at(panel, l, g);

    return (struct group_place){panel + (at.scales - panel), panel + (at.mins - panel),
                                panel + (at.codes - panel), panel + (at.supers - panel)};
}

static void pack_group(struct group_place to, const struct block_form *form, enum dtype type,
                       const uint8_t *row, size_t g, size_t column)
{
    struct block_group group;
    bool steps = form->scale == SCALE_STEPS;

    block_group_read(&group, type, row, g);
    if (form->scale == SCALE_POWER)
        to.scales[column] = (uint8_t)group.scale;
    else
        put_u16(steps ? to.supers : to.scales, column, group.scale);
    if (form->has_min)
        put_u16(steps ? to.supers + SUPER_BYTES : to.mins, column, group.min);
    if (steps)
        put_steps(to.scales, to.mins, form, column, &group);
    put_codes(to.codes, form, column, group.code);
}

/* The formats whose bytes are only moved: four at a time. Q4_1's nibbles are in the panel's order
 * already; Q8_0's bytes lose their sign. */
static void move_group(struct group_place to, const struct tensor *t, const uint8_t *from,
                       size_t column)
{
    size_t n_quads = t->type == DTYPE_Q4_1 ? 4 : 8;
    uint32_t flip = t->type == DTYPE_Q4_1 ? 0 : 0x80808080, quad;

    memcpy(to.scales + column * 2, from, 2);
    if (t->type == DTYPE_Q4_1)
        memcpy(to.mins + column * 2, from + 2, 2);
    from += t->type == DTYPE_Q4_1 ? 4 : 2;
    for (size_t i = 0; i < n_quads; i++) {
        memcpy(&quad, from + i * 4, 4);
        quad ^= flip;
        memcpy(to.codes + i * LINE_BYTES + column * 4, &quad, 4);
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
        struct group_place to = place_of(panel, &l, g);

        for (size_t c = 0; c < n_rows; c++)
            if (moves)
                move_group(to, t, rows + c * row_bytes + g * dtype_block_bytes(t->type), c);
            else
                pack_group(to, form, t->type, rows + c * row_bytes, g, c);
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

static float take_f16(const uint8_t *from, size_t column)
{
    uint16_t half;

    memcpy(&half, from + column * sizeof(half), sizeof(half));
    return f16_to_f32(half);
}

static float take_scale(const uint8_t *from, const struct block_form *form, const uint8_t *super,
                        size_t half, size_t column)
{
    if (form->scale == SCALE_F16)
        return take_f16(from, column);
    if (form->scale == SCALE_POWER)
        return from[column] < 2 ? 0.0f : ldexpf(1.0f, from[column] - 128);
    return take_f16(super, column) *
           (float)(int8_t)from[(form->halves ? half : 0) * PANEL_COLUMNS + column];
}

struct panel_scales panel_scales_of(const struct panel_group *group, const struct block_form *form,
                                    size_t column)
{
    struct panel_scales s = {{0}, {0}};

    for (size_t h = 0; h < 2; h++) {
        s.scale[h] = take_scale(group->scales, form, group->supers, h, column);
        if (form->has_min)
            s.min[h] = take_scale(group->mins, form, group->supers + SUPER_BYTES, h, column);
    }
    return s;
}

int panel_code(const uint8_t *codes, const struct block_form *form, size_t column, size_t i)
{
    const uint8_t *at = codes + column * 4 + i % 4;
    size_t quad = i / 4, bits = 0;
    int code = 0;

    if (form->bits == 8)
        return at[quad * LINE_BYTES];
    for (size_t plane = 4; plane > 0; at += (form->bits & plane) * LINE_BYTES, plane /= 2) {
        size_t of_line = plane == 4 ? 4 : 8 / plane; /* quads from one line to the next */
        size_t line = plane == 4 ? quad % 4 : quad / of_line;
        size_t shift = plane == 4 ? quad / 4 * 4 : quad % of_line * plane;

        if ((form->bits & plane) == 0)
            continue;
        code |= (at[line * LINE_BYTES] >> shift & ((1 << plane) - 1)) << bits;
        bits += plane;
    }
    return code;
}

static void read_blocks(const uint8_t *panel, const struct tensor *t, const struct block_form *form,
                        size_t column, float *out)
{
    size_t n_groups = t->n_cols / GROUP_VALUES;
    struct panel_layout l = panel_layout(*form, n_groups);

    for (size_t g = 0; g < n_groups; g++, out += GROUP_VALUES) {
        struct panel_group group = panel_group_at(panel, &l, g);
        struct panel_scales s = panel_scales_of(&group, form, column);

        for (size_t i = 0; i < GROUP_VALUES; i++) {
            out[i] = (float)(block_value(form, panel_code(group.codes, form, column, i))) *
                     s.scale[i / HALF_VALUES];
            if (form->has_min)
                out[i] += s.min[i / HALF_VALUES];
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
