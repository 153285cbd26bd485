/* Products with quantised weights in plain C: the definition of their bits. */
#include <math.h>
#include <string.h>

#include "compute/cpu/acts.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/panels.h"
#include "compute/numerics/scalar.h"

/* Returns the place of the group's outlier, or ACT_NONE. */
static size_t quant_generic_quantise_group(const float *x, const struct act_slice *s,
                                           struct act_record *out)
{
    uint32_t greatest = 0, second = 0; /* magnitudes as bits: NaN is above all */
    size_t at = 0;
    int32_t sums[2] = {0};
    struct activation_scale scale;
    bool is_outlier;

    for (size_t i = 0; i < GROUP_VALUES; i++) {
        uint32_t magnitude = scalar_bits(x[i]) & 0x7fffffff;

        if (magnitude > greatest) {
            second = greatest;
            greatest = magnitude;
            at = i;
        } else if (magnitude > second) {
            second = magnitude;
        }
    }
    is_outlier = activation_is_outlier(greatest, second, s->above);
    scale = activation_scale_of(is_outlier ? second : greatest);
    for (size_t i = 0; i < GROUP_VALUES; i++) {
        out->value[i] = scale.inverse == 0.0f || (is_outlier && i == at)
                            ? 0
                            : (int8_t)rintf(x[i] * scale.inverse);
        sums[i / HALF_VALUES] += out->value[i];
    }
    act_record_finish(out, s->form, scale.scale, sums[0], sums[1]);
    return is_outlier ? at : ACT_NONE;
}

void ISA_NAME(quantise)(const struct act_slice *s)
{
    for (size_t r = 0; r < s->n_rows; r++)
        for (size_t g = 0; g < s->n_groups; g++) {
            const float *in = s->in + r * s->stride + g * GROUP_VALUES;

            act_outlier_put(s, r, g, in,
                            quant_generic_quantise_group(in, s, s->out + g * s->step + r));
        }
}

/* A group of a column, decoded. */
struct column_group {
    int value[GROUP_VALUES];
    struct panel_scales scales;
};

static void column_group_read(struct column_group *out, const struct panel_group *group,
                              const struct block_form *form, size_t column)
{
    out->scales = panel_scales_of(group, form, column);
    for (size_t i = 0; i < GROUP_VALUES; i++)
        out->value[i] = block_value(form, panel_code(group->codes, form, column, i));
}

/* y plus one group's part in one output */
static float add_group(float y, const struct block_form *form, const struct column_group *w,
                       const struct act_record *act)
{
    const struct panel_scales *s = &w->scales;
    int32_t dots[2] = {0};

    for (size_t i = 0; i < GROUP_VALUES; i++)
        dots[i / HALF_VALUES] += w->value[i] * act->value[i];
    if (form->halves) {
        y = fmaf((float)dots[0] * act->scale, s->scale[0], y);
        y = fmaf((float)dots[1] * act->scale, s->scale[1], y);
        if (!form->has_min)
            return y;
        y = fmaf(s->min[0], act->sum, y);
        return fmaf(s->min[1], act->sum_upper, y);
    }
    y = fmaf((float)(dots[0] + dots[1]) * act->scale, s->scale[0], y);
    return form->has_min ? fmaf(s->min[0], act->sum, y) : y;
}

/* A number of the weight: of input i in a column of the panel. */
static float generic_number_of(const uint8_t *panel, const struct block_form *form,
                               const struct panel_layout *l, size_t column, size_t i)
{
    struct panel_group group = panel_group_at(panel, l, i / GROUP_VALUES);
    struct panel_scales s = panel_scales_of(&group, form, column);
    size_t half = i % GROUP_VALUES / HALF_VALUES;
    int code = panel_code(group.codes, form, column, i % GROUP_VALUES);
    float number = (float)block_value(form, code) * s.scale[half];

    return form->has_min ? number + s.min[half] : number;
}

static float generic_add_outliers(float y, const struct quant_slice *s, const uint8_t *panel,
                                  const struct panel_layout *l, size_t column, size_t row)
{
    const struct act_outlier *o = s->outliers.rows + row * s->n_groups;

    for (size_t i = 0; i < s->outliers.counts->of_row[row]; i++)
        y = fmaf(o[i].value,
                 generic_number_of(panel, &s->form, l, column, s->outliers.columns[o[i].column]),
                 y);
    return y;
}

static void generic_column(const struct quant_slice *s, const uint8_t *panel, size_t column)
{
    struct panel_layout l = panel_layout(s->form, s->n_groups);
    float y[ACT_ROWS] = {0};

    for (size_t g = 0; g < s->n_groups; g++) {
        struct panel_group group = panel_group_at(panel, &l, g);
        struct column_group w;

        column_group_read(&w, &group, &s->form, column % PANEL_COLUMNS);
        for (size_t row = 0; row < s->n_rows; row++)
            y[row] = add_group(y[row], &s->form, &w, &s->acts[g * s->n_rows + row]);
    }
    for (size_t row = 0; row < s->n_rows; row++) {
        float *to = s->out + row * s->stride + column;

        y[row] = s->adds ? *to + y[row] : y[row];
        *to = generic_add_outliers(y[row], s, panel, &l, column % PANEL_COLUMNS, row);
    }
}

void ISA_NAME(quant_product)(const struct quant_slice *s, size_t first, size_t last)
{
    struct panel_layout l = panel_layout(s->form, s->n_groups);
    size_t end = last * PANEL_COLUMNS < s->n_columns ? last * PANEL_COLUMNS : s->n_columns;

    for (size_t column = first * PANEL_COLUMNS; column < end; column++)
        generic_column(s, s->panels + column / PANEL_COLUMNS * l.size_bytes, column);
}
