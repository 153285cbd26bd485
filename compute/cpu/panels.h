/* Weights as the kernels read them: panels of 16 output columns, so that a vector of 16 lanes holds
 * one value for each column, and no sum crosses lanes. Columns beyond the weight's are zeros.
 *
 * A quantised panel has, for each group of 32 inputs, 16 scales, 16 mins (where the format has
 * them) and codes. Codes: [8 quads of inputs][16 columns][4 inputs] u8; nibbles: [4][16][4] bytes,
 * whose low halves are inputs 0 … 15 and whose high ones are 16 … 31. Formats with halves have 16
 * scales for each half. Scales and mins are f16 or f32 as block_form says. Where scales and mins of
 * a group fill whole cache lines, they precede its codes; otherwise they follow the codes of all
 * groups, so that codes never straddle lines.
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
    size_t scales, scale_step; /* offset of group 0's scales, and from one group to the next */
    size_t codes, code_step;
    size_t mins;       /* from a group's scales to its mins */
    size_t size_bytes; /* of the panel, whole lines */
};

static inline struct panel_layout panel_layout(struct block_form form, size_t n_groups)
{
    size_t scale_bytes =
        PANEL_COLUMNS * (form.wide ? sizeof(float) : sizeof(uint16_t)) * (form.halves ? 2 : 1);
    size_t meta_bytes = scale_bytes * (form.has_min ? 2 : 1);
    size_t code_bytes = PANEL_COLUMNS * (size_t)GROUP_VALUES / (form.nibbles ? 2 : 1);
    struct panel_layout l = {.mins = scale_bytes};

    if (meta_bytes % LINE_BYTES == 0) {
        l.scale_step = l.code_step = meta_bytes + code_bytes;
        l.codes = meta_bytes;
        l.size_bytes = n_groups * l.code_step;
    } else {
        l.scale_step = meta_bytes;
        l.code_step = code_bytes;
        l.scales = n_groups * code_bytes;
        l.size_bytes =
            (l.scales + n_groups * meta_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    }
    return l;
}

/* Bytes of one panel of the tensor. */
size_t panel_bytes(const struct tensor *t);

/* Fills panels first … last - 1 of all from their rows; panels[] begins at panel 0, LINE_BYTES
 * aligned. */
void panels_pack(uint8_t *panels, const struct tensor *t, const uint8_t *rows, size_t first,
                 size_t last);

/* Decodes a row of the weight, to the bits of dtype_decode. */
void panels_read_row(const uint8_t *panels, const struct tensor *t, size_t row,
                     float *out /* [n_cols] */);

#endif
