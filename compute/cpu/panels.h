/* Weights as the kernels read them: panels of 16 output columns, so that a vector of 16 lanes holds
 * one value for each column, and no sum crosses lanes. Columns beyond the weight's are zeros.
 *
 * A quantised panel has, for each group of 32 inputs, 16 scales, 16 mins (where the format has
 * them) and codes. Formats with halves have 16 scales and mins for each half. With steps they are
 * i8, and each 256 inputs have 16 f16, and 16 for the mins, that multiply them; powers are bytes.
 *
 * Codes are planes of 4, 2 and 1 bits, the lower bits of a code first: 2, 2 + 1, 4, 4 + 1, 4 + 2;
 * or bytes. Byte 4c + i of a line of 64 bytes belongs to inputs 4q + i of column c, for each quad q
 * of the eight that the line holds: of a plane of 4 bits, line l has quad l in the low half and l +
 * 4 in the high one; of 2 bits, line l has quads 4l … 4l + 3 from the lowest bits up; of 1 bit, the
 * only line has quad q in bit q; line l of bytes is quad l.
 *
 * Groups lie in chunks: what multiplies steps, the scales and mins of all groups of the chunk, then
 * their codes, so that codes never straddle lines and a panel is read from front to back: apart,
 * the scales take as long again where reading is the bottleneck.
 *
 * A float panel is [inputs][16 columns] in the file's type. */
#ifndef COMPUTE_CPU_PANELS_H
#define COMPUTE_CPU_PANELS_H

#include <stddef.h>
#include <stdint.h>

#include "compute/cpu/blocks.h"
#include "compute/gguf/gguf.h"

enum { PANEL_COLUMNS = 16, LINE_BYTES = 64 };

/* The offsets in a quantised panel of n_groups, in bytes. */
struct panel_layout {
    size_t chunk_groups, chunk_bytes; /* the last chunk may have fewer groups */
    size_t scales, scale_step; /* in a chunk: of group 0's scales; from one group to the next */
    size_t codes, code_step;
    size_t mins;       /* from a group's scales to its mins */
    size_t size_bytes; /* of the panel, whole lines */
};

enum { SUPER_BYTES = PANEL_COLUMNS * sizeof(uint16_t) /* of f16 that multiply steps */ };

static inline struct panel_layout panel_layout(struct block_form form, size_t n_groups)
{
    bool steps = form.scale == SCALE_STEPS;
    size_t size = form.scale == SCALE_F16 ? sizeof(uint16_t) : sizeof(int8_t), left;
    struct panel_layout l = {.mins = PANEL_COLUMNS * size * (form.halves ? 2 : 1)};

    l.scale_step = l.mins * (form.has_min ? 2 : 1);
    l.chunk_groups = steps                       ? SUPER_GROUPS
                     : l.scale_step < LINE_BYTES ? LINE_BYTES / l.scale_step
                                                 : 1;
    l.scales = !steps ? 0 : form.has_min ? 2 * SUPER_BYTES : SUPER_BYTES;
    l.codes = l.scales + l.chunk_groups * l.scale_step;
    l.codes = (l.codes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    l.code_step = (size_t)LINE_BYTES * form.bits;
    l.chunk_bytes = l.codes + l.chunk_groups * l.code_step;
    left = n_groups % l.chunk_groups;
    l.size_bytes =
        n_groups / l.chunk_groups * l.chunk_bytes + (left > 0 ? l.codes + left * l.code_step : 0);
    return l;
}

/* The places of a group. */
struct panel_group {
    const uint8_t *supers, *scales, *mins, *codes;
};

static inline struct panel_group panel_group_at(const uint8_t *panel, const struct panel_layout *l,
                                                size_t g)
{
    const uint8_t *chunk = panel + g / l->chunk_groups * l->chunk_bytes;
    const uint8_t *scales = chunk + l->scales + g % l->chunk_groups * l->scale_step;

    return (struct panel_group){chunk, scales, scales + l->mins,
                                chunk + l->codes + g % l->chunk_groups * l->code_step};
}

/* Bytes of one panel of the tensor. */
size_t panel_bytes(const struct tensor *t);

/* A group's scales and mins in one column, by halves. */
struct panel_scales {
    float scale[2], min[2];
};

struct panel_scales panel_scales_of(const struct panel_group *group, const struct block_form *form,
                                    size_t column);

/* Code i of a group, whose codes begin at `codes`. */
int panel_code(const uint8_t *codes, const struct block_form *form, size_t column, size_t i);

/* Fills panels first … last - 1 of all from their rows; panels[] begins at panel 0, LINE_BYTES
 * aligned. */
void panels_pack(uint8_t *panels, const struct tensor *t, const uint8_t *rows, size_t first,
                 size_t last);

/* Decodes a row of the weight, to the bits of dtype_decode. */
void panels_read_row(const uint8_t *panels, const struct tensor *t, size_t row,
                     float *out /* [n_cols] */);

#endif
