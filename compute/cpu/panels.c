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
