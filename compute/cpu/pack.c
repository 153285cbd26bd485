/* Packs rows of a weight into panels. The loops over groups and columns are compiled once for each
 * block format, with its form as a constant. */
#include <assert.h>
#include <string.h>

#include "compute/cpu/block_read.h"
#include "compute/cpu/panels.h"

/* The places of a group in a panel that is being packed. */
struct group_place {
    uint8_t *scales, *mins, *codes, *supers;
};

BLOCK_INLINE struct group_place place_of(uint8_t *panel, const struct panel_layout *l, size_t g)
{
    struct panel_group at = panel_group_at(panel, l, g);

    return (struct group_place){panel + (at.scales - panel), panel + (at.mins - panel),
                                panel + (at.codes - panel), panel + (at.supers - panel)};
}

static inline void put_u16(uint8_t *to, size_t column, uint16_t value)
{
    memcpy(to + column * sizeof(value), &value, sizeof(value));
}

/* Four bytes of a line: of one column. */
static inline void put_quad(uint8_t *to, size_t line, size_t column, uint32_t quad)
{
    memcpy(to + line * LINE_BYTES + column * sizeof(quad), &quad, sizeof(quad));
}

/* Bits `shift` … of the codes of 8 / n_bits quads, `step` quads apart, side by side in each of the
 * four bytes. */
BLOCK_INLINE uint32_t gather_bits(const uint32_t *quad, size_t step, unsigned shift,
                                  unsigned n_bits)
{
    uint32_t mask = ((1u << n_bits) - 1) * (uint32_t)BLOCK_EACH_BYTE, gathered = 0;

    for (unsigned j = 0; j < 8 / n_bits; j++)
        gathered |= (quad[j * step] >> shift & mask) << j * n_bits;
    return gathered;
}

/* Codes of at most six bits, as planes. */
BLOCK_INLINE void put_codes(uint8_t *to, struct block_form form, size_t column,
                            const uint8_t code[GROUP_VALUES])
{
    uint32_t quad[GROUP_VALUES / 4];
    unsigned shift = form.bits & 4;

    memcpy(quad, code, sizeof(quad));
    for (size_t line = 0; line < (form.bits & 4); line++)
        put_quad(to, line, column, gather_bits(quad + line, 4, 0, 4));
    to += (size_t)(form.bits & 4) * LINE_BYTES;
    for (size_t line = 0; line < (form.bits & 2); line++)
        put_quad(to, line, column, gather_bits(quad + line * 4, 1, shift, 2));
    to += (size_t)(form.bits & 2) * LINE_BYTES;
    if ((form.bits & 1) != 0)
        put_quad(to, 0, column, gather_bits(quad, 1, shift + (form.bits & 2), 1));
}

BLOCK_INLINE void put_steps(struct group_place to, struct block_form form, size_t column,
                            const struct block_group *group)
{
    for (size_t h = 0; h < (form.halves ? 2 : 1); h++) {
        to.scales[h * PANEL_COLUMNS + column] = (uint8_t)group->steps[h];
        if (form.has_min)
            to.mins[h * PANEL_COLUMNS + column] = (uint8_t)group->min_steps[h];
    }
}

BLOCK_INLINE void put_group(struct group_place to, struct block_form form,
                            const struct block_group *group, size_t column)
{
    bool steps = form.scale == SCALE_STEPS;

    put_u16(steps ? to.supers : to.scales, column, group->scale);
    if (form.has_min)
        put_u16(steps ? to.supers + SUPER_BYTES : to.mins, column, group->min);
    if (steps)
        put_steps(to, form, column, group);
    put_codes(to.codes, form, column, group->code);
}

/* Formats whose blocks are a scale, perhaps a min, and codes in the panel's order: bytes are only
 * moved, four at a time. Those of eight bits lose their sign. */
BLOCK_INLINE bool only_moves(struct block_form form)
{
    return form.scale != SCALE_STEPS && (form.bits == 4 || form.bits == 8);
}

BLOCK_INLINE void move_group(struct group_place to, struct block_form form, const uint8_t *from,
                             size_t column)
{
    size_t scale_bytes = form.scale == SCALE_POWER ? sizeof(uint8_t) : sizeof(uint16_t);
    uint32_t flip = form.bits == 8 ? 0x80808080 : 0, quad;

    memcpy(to.scales + column * scale_bytes, from, scale_bytes);
    from += scale_bytes;
    if (form.has_min) {
        memcpy(to.mins + column * scale_bytes, from, scale_bytes);
        from += scale_bytes;
    }
    for (size_t line = 0; line < form.bits; line++) {
        memcpy(&quad, from + line * sizeof(quad), sizeof(quad));
        put_quad(to.codes, line, column, quad ^ flip);
    }
}

/* type and form are constants where this is called; rows: the panel's own. */
BLOCK_INLINE void pack_blocks(uint8_t *panel, const struct tensor *t, enum dtype type,
                              struct block_form form, const uint8_t *rows, size_t n_rows)
{
    size_t n_groups = t->n_cols / GROUP_VALUES, row_bytes = dtype_row_bytes(type, t->n_cols);
    size_t block_groups = form.scale == SCALE_STEPS ? SUPER_GROUPS : 1;
    size_t block_bytes = dtype_block_bytes(type);
    struct panel_layout l = panel_layout(form, n_groups);

    if (n_rows < PANEL_COLUMNS)
        memset(panel, 0, l.size_bytes);
    for (size_t g = 0; g < n_groups; g++) {
        struct group_place to = place_of(panel, &l, g);
        const uint8_t *block = rows + g / block_groups * block_bytes;

        for (size_t c = 0; c < n_rows; c++, block += row_bytes) {
            struct block_group group;

            if (only_moves(form)) {
                move_group(to, form, block, c);
                continue;
            }
            block_group_read(&group, type, block, g % block_groups);
            put_group(to, form, &group, c);
        }
    }
}

typedef void (*pack_fn)(uint8_t *panel, const struct tensor *t, const uint8_t *rows, size_t n_rows);

#define PACK_BLOCKS(type, ...)                                                               \
    static void pack_##type(uint8_t *panel, const struct tensor *t, const uint8_t *rows,     \
                            size_t n_rows)                                                   \
    {                                                                                        \
        pack_blocks(panel, t, DTYPE_##type, (struct block_form){__VA_ARGS__}, rows, n_rows); \
    }

BLOCK_FORMS(PACK_BLOCKS)

enum { FLOATS_AT_ONCE = 64 }; /* inputs: the lines that they fill stay in the L1 cache */

/* size is a constant where this is called. */
BLOCK_INLINE void pack_floats(uint8_t *panel, const struct tensor *t, size_t size,
                              const uint8_t *rows, size_t n_rows)
{
    if (n_rows < PANEL_COLUMNS)
        memset(panel, 0, t->n_cols * PANEL_COLUMNS * size);
    for (size_t first = 0; first < t->n_cols; first += FLOATS_AT_ONCE) {
        size_t left = t->n_cols - first,
               last = first + (left < FLOATS_AT_ONCE ? left : FLOATS_AT_ONCE);

        for (size_t c = 0; c < n_rows; c++)
            for (size_t k = first; k < last; k++)
                memcpy(panel + (k * PANEL_COLUMNS + c) * size, rows + (c * t->n_cols + k) * size,
                       size);
    }
}

static void pack_f32(uint8_t *panel, const struct tensor *t, const uint8_t *rows, size_t n_rows)
{
    pack_floats(panel, t, sizeof(float), rows, n_rows);
}

static void pack_f16(uint8_t *panel, const struct tensor *t, const uint8_t *rows, size_t n_rows)
{
    pack_floats(panel, t, sizeof(uint16_t), rows, n_rows);
}

#define PACKS(type, ...) [DTYPE_##type] = pack_##type,

void panels_pack(uint8_t *panels, const struct tensor *t, const uint8_t *rows, size_t first,
                 size_t last)
{
    static const pack_fn packs[] = {[DTYPE_F32] = pack_f32,
                                    [DTYPE_F16] = pack_f16,
                                    [DTYPE_BF16] = pack_f16,
                                    BLOCK_FORMS(PACKS)};
    size_t step = panel_bytes(t), row_bytes = dtype_row_bytes(t->type, t->n_cols);

    assert(last <= (t->n_rows + PANEL_COLUMNS - 1) / PANEL_COLUMNS);
    for (size_t p = first; p < last; p++) {
        size_t n_rows = t->n_rows - p * PANEL_COLUMNS;

        packs[t->type](panels + p * step, t, rows + (p - first) * PANEL_COLUMNS * row_bytes,
                       n_rows < PANEL_COLUMNS ? n_rows : PANEL_COLUMNS);
    }
}
