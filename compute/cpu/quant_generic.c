/* Products with quantised weights in plain C: the definition of their bits. */
#include <math.h>
#include <string.h>

#include "compute/cpu/acts.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/panels.h"
#include "compute/numerics/scalar.h"

static void quant_generic_quantise_group(const float *x, struct act_form form,
                                         struct act_record *out)
{
    uint32_t greatest = 0; /* magnitudes as bits: NaN is above all */
    int32_t sums[2] = {0};
    struct activation_scale scale;

    for (size_t i = 0; i < GROUP_VALUES; i++) {
        uint32_t magnitude = scalar_bits(x[i]) & 0x7fffffff;

        greatest = magnitude > greatest ? magnitude : greatest;
    }
    scale = activation_scale_of(greatest);
    for (size_t i = 0; i < GROUP_VALUES; i++) {
        out->value[i] = scale.inverse == 0.0f ? 0 : (int8_t)rintf(x[i] * scale.inverse);
        sums[i / HALF_VALUES] += out->value[i];
    }
    act_record_finish(out, form, scale.scale, sums[0], sums[1]);
}

void ISA_NAME(quantise)(const struct act_slice *s)
{
    for (size_t r = 0; r < s->n_rows; r++)
        for (size_t g = 0; g < s->n_groups; g++)
            quant_generic_quantise_group(s->in + r * s->stride + g * GROUP_VALUES, s->form,
                                         s->out + g * s->step + r);
}

static int code_at(const uint8_t *codes, bool nibbles, size_t column, size_t i)
{
    if (!nibbles)
        return codes[i / 4 * LINE_BYTES + column * 4 + i % 4];
    codes += i % HALF_VALUES / 4 * LINE_BYTES + column * 4 + i % 4;
    return *codes >> (i < HALF_VALUES ? 0 : 4) & 15;
}

static float scale_at(const uint8_t *scales, bool wide, size_t column)
{
    uint16_t narrow;
    float f;

    if (wide) {
        memcpy(&f, scales + column * sizeof f, sizeof f);
        return f;
    }
    memcpy(&narrow, scales + column * sizeof narrow, sizeof narrow);
    return f16_to_f32(narrow);
}

/* y plus one group's part in one output */
static float add_group(float y, const struct block_form *form, const uint8_t *scales,
                       const uint8_t *mins, const uint8_t *codes, size_t column,
                       const struct act_record *act)
{
    int32_t dots[2] = {0};

    for (size_t i = 0; i < GROUP_VALUES; i++)
        dots[i / HALF_VALUES] +=
            (code_at(codes, form->nibbles, column, i) - form->bias) * act->value[i];
    if (form->halves) {
        y = fmaf((float)dots[0] * act->scale, scale_at(scales, true, column), y);
        scales += PANEL_COLUMNS * sizeof(float);
        return fmaf((float)dots[1] * act->scale, scale_at(scales, true, column), y);
    }
    y = fmaf((float)(dots[0] + dots[1]) * act->scale, scale_at(scales, form->wide, column), y);
    return form->has_min ? fmaf(scale_at(mins, form->wide, column), act->sum, y) : y;
}

void ISA_NAME(quant_product)(const struct quant_slice *s, size_t first, size_t last)
{
    struct panel_layout l = panel_layout(s->form, s->n_groups);
    size_t end = last * PANEL_COLUMNS < s->n_columns ? last * PANEL_COLUMNS : s->n_columns;

    for (size_t column = first * PANEL_COLUMNS; column < end; column++) {
        const uint8_t *panel = s->panels + column / PANEL_COLUMNS * l.size_bytes;

        for (size_t row = 0; row < s->n_rows; row++) {
            float *to = s->out + row * s->stride + column, y = 0.0f;

            for (size_t g = 0; g < s->n_groups; g++) {
                const uint8_t *scales = panel + l.scales + g * l.scale_step;

                y = add_group(y, &s->form, scales, scales + l.mins,
                              panel + l.codes + g * l.code_step, column % PANEL_COLUMNS,
                              &s->acts[g * s->n_rows + row]);
            }
            *to = s->adds ? *to + y : y;
        }
    }
}
