/* Products with quantised weights by AVX-512 VNNI: a tile of 8 rows by two panels of 16 columns, or
 * of up to 16 rows by one. Rows are innermost, so that each step of a tile is as many independent
 * dot products as there are rows: that keeps both ports busy even where a hyperthread of the same
 * core takes half of the window. The dots of a group stay in registers, and the sums to which they
 * are added in the L1 cache. */
#include <immintrin.h>
#include <string.h>

#include "compute/cpu/acts.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/outlier_lanes.h"
#include "compute/cpu/panels.h"

enum {
    QUADS = GROUP_VALUES / 4,
    AHEAD = 4096,  /* bytes of codes that are prefetched */
    MANY_ROWS = 8, /* take longer to multiply than codes to arrive */
    PAIR_ROWS = 8, /* of a tile of two panels */
};

/* Loops over rows must be unrolled, so that their arrays stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define TILE_PART static inline __attribute__((always_inline))

typedef int32_t __attribute__((may_alias)) quad;

/* acc += the four products of each lane. Compilers load and broadcast apart, which costs a third of
 * the speed: hence the instruction itself. */
TILE_PART __m512i dot4(__m512i acc, __m512i codes, const int8_t *four)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(acc)
            : "v"(codes), "m"(*(const quad *)(const void *)four));
    return acc;
}

static inline __m512i load_line(const uint8_t *from)
{
    return _mm512_loadu_si512(from);
}

static inline __m512 quant_512_load_f16(const uint8_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

static inline __m512 quant_512_load_steps(const uint8_t *from)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
}

/* 2^(e - 128), zero where that is subnormal */
static inline __m512 quant_512_load_powers(const uint8_t *from)
{
    __m128i e = _mm_subs_epu8(_mm_loadu_si128((const __m128i *)(const void *)from),
                              _mm_set1_epi8(1)); /* the exponent's bits */

    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(e), 23));
}

/* The scales and mins of a panel's group, and what those of the groups of a super block have in
 * common. */
struct group_scales {
    __m512 super, super_min, scale, upper, min, upper_min;
};

TILE_PART void quant_512_load_supers(struct group_scales *s, struct block_form form,
                                     const uint8_t *supers)
{
    if (form.scale != SCALE_STEPS)
        return;
    s->super = quant_512_load_f16(supers);
    if (form.has_min)
        s->super_min = quant_512_load_f16(supers + SUPER_BYTES);
}

TILE_PART void quant_512_load_scales(struct group_scales *s, struct block_form form,
                                     const uint8_t *scales, size_t mins)
{
    if (form.scale == SCALE_F16) {
        s->scale = quant_512_load_f16(scales);
        if (form.has_min)
            s->min = quant_512_load_f16(scales + mins);
        return;
    }
    if (form.scale == SCALE_POWER) {
        s->scale = quant_512_load_powers(scales);
        return;
    }
    s->scale = _mm512_mul_ps(s->super, quant_512_load_steps(scales));
    if (form.halves)
        s->upper = _mm512_mul_ps(s->super, quant_512_load_steps(scales + PANEL_COLUMNS));
    if (form.has_min)
        s->min = _mm512_mul_ps(s->super_min, quant_512_load_steps(scales + mins));
    if (form.has_min && form.halves)
        s->upper_min =
            _mm512_mul_ps(s->super_min, quant_512_load_steps(scales + mins + PANEL_COLUMNS));
}

/* v | byte & mask << shift, by bytes */
TILE_PART __m512i quant_512_or_bits(__m512i v, __m512i byte, int shift, int mask)
{
    __m512i moved = shift < 0 ? _mm512_srli_epi16(byte, (unsigned)-shift)
                              : _mm512_slli_epi16(byte, (unsigned)shift);

    /* 0xf8: a | b & c */
    return _mm512_ternarylogic_epi32(v, moved, _mm512_set1_epi8((char)mask), 0xf8);
}

/* The numbers of codes below 16, plus the bias. */
static inline __m512i quant_512_table(struct block_form form)
{
    const int8_t *values = form.codes == CODE_IQ4 ? dtype_iq4_values : dtype_e2m1_values;
    __m128i table = _mm_loadu_si128((const __m128i *)(const void *)values);

    return _mm512_broadcast_i32x4(_mm_add_epi8(table, _mm_set1_epi8((char)form.bias)));
}

/* Codes of more than three bits, of whose quad i v is the lower four: with those of the planes
 * behind; see panels.h. */
TILE_PART __m512i add_upper_bits(__m512i v, struct block_form form, const uint8_t *codes, size_t i)
{
    const uint8_t *planes = codes + QUADS / 2 * LINE_BYTES;

    if (form.bits == 5)
        return quant_512_or_bits(v, load_line(planes), 4 - (int)i, 0x10);
    if (form.bits == 6)
        return quant_512_or_bits(v, load_line(planes + i / 4 * LINE_BYTES), 4 - 2 * (int)(i % 4),
                                 0x30);
    if (form.codes != CODE_LINEAR)
        return _mm512_shuffle_epi8(quant_512_table(form), v);
    return v;
}

/* Quad i of codes of 2 or 3 bits. */
TILE_PART __m512i quant_512_load_few_bits(struct block_form form, const uint8_t *codes, size_t i)
{
    __m512i v = quant_512_or_bits(_mm512_setzero_si512(), load_line(codes + i / 4 * LINE_BYTES),
                                  -2 * (int)(i % 4), 3);

    return form.bits == 2 ? v
                          : quant_512_or_bits(v, load_line(codes + 2 * LINE_BYTES), 2 - (int)i, 4);
}

/* dot[r] += codes of quad i · the inputs of row r */
TILE_PART void add_quad(__m512i dot[ACT_ROWS], __m512i codes, const struct act_record *act,
                        size_t i, size_t n)
{
    UNROLL
    for (size_t r = 0; r < n; r++)
        dot[r] = dot4(dot[r], codes, act[r].value + 4 * i);
}

/* dot[r] from its start: row r's, of the upper half if so */
TILE_PART void start_dots(__m512i *dot, struct block_form form, const struct act_record *act,
                          size_t n, bool upper)
{
    UNROLL
    for (size_t r = 0; r < n; r++)
        dot[r] = _mm512_set1_epi32(form.bias == 0 ? ACT_START
                                   : upper        ? act[r].start_upper
                                                  : act[r].start);
}

/* dot[r] of a group with row r, from its start; with halves, dot[n + r] is that of its upper
 * half. */
TILE_PART void quant_512_dots(__m512i dot[ACT_ROWS], struct block_form form, const uint8_t *codes,
                              const struct act_record *act, size_t n)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i *upper = form.halves ? dot + n : dot; /* quads 4 … 7 */

    start_dots(dot, form, act, n, false);
    if (form.halves)
        start_dots(upper, form, act, n, true);
    if (form.bits == 8 || form.bits < 4) {
        UNROLL
        for (size_t i = 0; i < QUADS; i++)
            add_quad(i < QUADS / 2 ? dot : upper,
                     form.bits == 8 ? load_line(codes + i * LINE_BYTES)
                                    : quant_512_load_few_bits(form, codes, i),
                     act, i, n);
        return;
    }
    UNROLL
    for (size_t i = 0; i < QUADS / 2; i++) {
        __m512i both = load_line(codes + i * LINE_BYTES);
        __m512i lower_codes = _mm512_and_si512(both, low);
        __m512i upper_codes = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);

        add_quad(dot, add_upper_bits(lower_codes, form, codes, i), act, i, n);
        add_quad(upper, add_upper_bits(upper_codes, form, codes, QUADS / 2 + i), act, QUADS / 2 + i,
                 n);
    }
}

/* dot * scale of the activations, in one rounding; see ACT_START */
TILE_PART __m512 scaled(__m512i dot, const struct act_record *act)
{
    return _mm512_fmadd_ps(_mm512_castsi512_ps(dot), _mm512_set1_ps(act->scale),
                           _mm512_set1_ps(act->back));
}

/* Adds group g, whose scales are given, to y; with halves, dot[n + r] is row r's upper half. */
TILE_PART void quant_512_add_dots(float y[ACT_ROWS][PANEL_COLUMNS], const __m512i dot[ACT_ROWS],
                                  struct block_form form, const struct group_scales *s,
                                  const struct act_record *act, size_t n)
{
    UNROLL
    for (size_t r = 0; r < n; r++) {
        __m512 sum = _mm512_fmadd_ps(scaled(dot[r], &act[r]), s->scale, _mm512_load_ps(y[r]));

        if (form.halves)
            sum = _mm512_fmadd_ps(scaled(dot[n + r], &act[r]), s->upper, sum);
        if (form.has_min)
            sum = _mm512_fmadd_ps(s->min, _mm512_set1_ps(act[r].sum), sum);
        if (form.has_min && form.halves)
            sum = _mm512_fmadd_ps(s->upper_min, _mm512_set1_ps(act[r].sum_upper), sum);
        _mm512_store_ps(y[r], sum);
    }
}

/* Where reading is the bottleneck, prefetches to the L2 cache, which has more lines in flight than
 * L1: one row reads codes of eight bits 1.2 times as fast (Zen 4), nibbles no faster.
 * through_second is a constant where this is called. */
TILE_PART void fetch_ahead(const uint8_t *codes, size_t size_bytes, bool through_second)
{
    for (size_t i = 0; i < size_bytes; i += LINE_BYTES)
        if (through_second)
            _mm_prefetch((const char *)codes + AHEAD + i, _MM_HINT_T1);
        else
            _mm_prefetch((const char *)codes + AHEAD + i, _MM_HINT_T0);
}

/* A tile: n rows (a constant where functions are called, as is form) of the slice from row on, one
 * panel. */
struct tile_512 {
    const struct quant_slice *s;
    struct panel_layout layout;
    const struct act_record *act; /* of the next group */
    size_t n;
};

/* y += n_groups groups of a chunk */
TILE_PART void quant_512_chunk(float y[ACT_ROWS][PANEL_COLUMNS], struct tile_512 *t,
                               struct block_form form, const uint8_t *chunk, size_t n_groups)
{
    const struct panel_layout l = t->layout;
    struct group_scales group;

    quant_512_load_supers(&group, form, chunk);
    fetch_ahead(chunk, l.codes, form.bits == 8 && t->n < MANY_ROWS);
    for (size_t g = 0; g < n_groups; g++, t->act += t->s->n_rows) {
        const uint8_t *codes = chunk + l.codes + g * l.code_step;
        __m512i dot[ACT_ROWS];

        fetch_ahead(codes, l.code_step, form.bits == 8 && t->n < MANY_ROWS);
        quant_512_dots(dot, form, codes, t->act, t->n);
        quant_512_load_scales(&group, form, chunk + l.scales + g * l.scale_step, l.mins);
        quant_512_add_dots(y, dot, form, &group, t->act, t->n);
    }
}

/* Stores the sums of n rows by a panel, or adds them. */
TILE_PART void quant_512_put(const struct quant_slice *s, size_t panel, size_t row, size_t n,
                             float (*y)[PANEL_COLUMNS])
{
    size_t column = panel * PANEL_COLUMNS, n_columns = s->n_columns - column;
    __mmask16 mask = n_columns < PANEL_COLUMNS ? (__mmask16)((1u << n_columns) - 1) : 0xffff;

    UNROLL
    for (size_t r = 0; r < n; r++) {
        float *to = s->out + (row + r) * s->stride + column;
        __m512 sum = _mm512_load_ps(y[r]);

        if (s->adds)
            sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sum);
        _mm512_mask_storeu_ps(to, mask, sum);
    }
}

TILE_PART void quant_512_tile(const struct quant_slice *s, struct block_form form, size_t panel,
                              size_t row, size_t n)
{
    struct tile_512 t = {s, panel_layout(form, s->n_groups), s->acts + row, n};
    const uint8_t *chunk = s->panels + panel * t.layout.size_bytes;
    _Alignas(64) float y[ACT_ROWS][PANEL_COLUMNS];

    UNROLL
    for (size_t r = 0; r < n; r++) {
        _mm512_store_ps(y[r], _mm512_setzero_ps());
        /* rows of a large output are in no cache: prefetch them now */
        _mm_prefetch((const char *)(s->out + (row + r) * s->stride + panel * PANEL_COLUMNS),
                     _MM_HINT_T0);
    }
    for (size_t left = s->n_groups; left > 0; chunk += t.layout.chunk_bytes) {
        size_t n_groups = left < t.layout.chunk_groups ? left : t.layout.chunk_groups;

        quant_512_chunk(y, &t, form, chunk, n_groups);
        left -= n_groups;
    }
    quant_512_put(s, panel, row, n, y);
}

/* Four bytes, or a float, of a record in all lanes, for both panels: compilers would load them
 * twice, since that costs no instruction. */
TILE_PART __m512i broadcast_four(const int8_t *four)
{
    __m512i all;

    __asm__("vpbroadcastd %1, %0" : "=v"(all) : "m"(*(const quad *)(const void *)four));
    return all;
}

TILE_PART __m512 broadcast_float(const float *x)
{
    __m512 all;

    __asm__("vbroadcastss %1, %0" : "=v"(all) : "m"(*x));
    return all;
}

TILE_PART __m512i dot4_all(__m512i acc, __m512i codes, __m512i four)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(four));
    return acc;
}

/* Quad i of codes. */
TILE_PART __m512i load_quad(struct block_form form, const uint8_t *codes, size_t i)
{
    __m512i both;

    if (form.bits == 8)
        return load_line(codes + i * LINE_BYTES);
    if (form.bits < 4)
        return quant_512_load_few_bits(form, codes, i);
    both = load_line(codes + i % (QUADS / 2) * LINE_BYTES);
    if (i >= QUADS / 2)
        both = _mm512_srli_epi16(both, 4);
    return add_upper_bits(_mm512_and_si512(both, _mm512_set1_epi8(15)), form, codes, i);
}

/* Sums of a tile of two panels. */
typedef float pair_sums[2][PAIR_ROWS][PANEL_COLUMNS];

/* Rows of a tile of two panels: with halves, half of its dots are those of the upper ones. */
TILE_PART size_t pair_rows(struct block_form form)
{
    return form.halves ? PAIR_ROWS / 2 : PAIR_ROWS;
}

/* y += a group, in the order of quant_512_add_dots. Codes of the second panel begin panel_bytes
 * behind; with halves, dot[p][n + r] is row r's upper half. */
TILE_PART void add_pair_group(pair_sums y, struct block_form form, const uint8_t *codes,
                              size_t panel_bytes, const struct act_record *act,
                              const struct group_scales s[2])
{
    const size_t n = pair_rows(form);
    __m512i dot[2][PAIR_ROWS];

    __asm__("" : "+r"(act)); /* compilers would keep a pointer to each number, and spill them */
    start_dots(dot[0], form, act, n, false);
    if (form.halves)
        start_dots(dot[0] + n, form, act, n, true);
    UNROLL
    for (size_t r = 0; r < PAIR_ROWS; r++)
        dot[1][r] = dot[0][r];
    UNROLL
    for (size_t i = 0; i < QUADS; i++) {
        __m512i one = load_quad(form, codes, i), other = load_quad(form, codes + panel_bytes, i);
        size_t half = form.halves && i >= QUADS / 2 ? n : 0;

        UNROLL
        for (size_t r = 0; r < n; r++) {
            __m512i four = broadcast_four(act[r].value + 4 * i);

            dot[0][half + r] = dot4_all(dot[0][half + r], one, four);
            dot[1][half + r] = dot4_all(dot[1][half + r], other, four);
        }
    }
    UNROLL
    for (size_t r = 0; r < n; r++) {
        __m512 scale = broadcast_float(&act[r].scale), back = broadcast_float(&act[r].back);
        __m512 sum = broadcast_float(&act[r].sum), sum_upper = broadcast_float(&act[r].sum_upper);

        UNROLL
        for (size_t p = 0; p < 2; p++) {
            __m512 t = _mm512_fmadd_ps(_mm512_castsi512_ps(dot[p][r]), scale, back);

            t = _mm512_fmadd_ps(t, s[p].scale, _mm512_load_ps(y[p][r]));
            if (form.halves)
                t = _mm512_fmadd_ps(
                    _mm512_fmadd_ps(_mm512_castsi512_ps(dot[p][n + r]), scale, back), s[p].upper,
                    t);
            if (form.has_min)
                t = _mm512_fmadd_ps(s[p].min, sum, t);
            if (form.has_min && form.halves)
                t = _mm512_fmadd_ps(s[p].upper_min, sum_upper, t);
            _mm512_store_ps(y[p][r], t);
        }
    }
}

/* pair_rows from row on, by this panel and the next, of a format without halves: each number
 * of an activation is loaded for two panels, where loads are the bottleneck of a tile of one. */
TILE_PART void quant_512_pair(const struct quant_slice *s, struct block_form form, size_t panel,
                              size_t row)
{
    const struct panel_layout l = panel_layout(form, s->n_groups);
    const uint8_t *chunk = s->panels + panel * l.size_bytes;
    const struct act_record *act = s->acts + row;
    _Alignas(64) pair_sums y = {0};

    for (size_t left = s->n_groups; left > 0; chunk += l.chunk_bytes) {
        size_t n_groups = left < l.chunk_groups ? left : l.chunk_groups;
        struct group_scales scales[2];

        for (size_t p = 0; p < 2; p++) {
            quant_512_load_supers(&scales[p], form, chunk + p * l.size_bytes);
            fetch_ahead(chunk + p * l.size_bytes, row == 0 ? l.codes : 0, false);
        }
        for (size_t g = 0; g < n_groups; g++, act += s->n_rows) {
            const uint8_t *at = chunk + l.scales + g * l.scale_step;
            const uint8_t *codes = chunk + l.codes + g * l.code_step;

            for (size_t p = 0; p < 2; p++) {
                quant_512_load_scales(&scales[p], form, at + p * l.size_bytes, l.mins);
                fetch_ahead(codes + p * l.size_bytes, row == 0 ? l.code_step : 0, false);
            }
            add_pair_group(y, form, codes, l.size_bytes, act, scales);
        }
        left -= n_groups;
    }
    for (size_t p = 0; p < 2; p++)
        quant_512_put(s, panel + p, row, pair_rows(form), y[p]);
}

/* Rows from row on, by one panel. */
TILE_PART void quant_512_rest(const struct quant_slice *s, struct block_form form, size_t panel,
                              size_t row)
{
    if (s->n_rows - row == ACT_ROWS && !form.halves) {
        quant_512_tile(s, form, panel, row, ACT_ROWS);
        return;
    }
    if (s->n_rows - row >= 12 && !form.halves) {
        quant_512_tile(s, form, panel, row, 12);
        row += 12;
    }
    for (; s->n_rows - row >= 8; row += 8)
        quant_512_tile(s, form, panel, row, 8);
    if (s->n_rows - row >= 4) {
        quant_512_tile(s, form, panel, row, 4);
        row += 4;
    }
    if (s->n_rows - row == 3)
        quant_512_tile(s, form, panel, row, 3);
    else if (s->n_rows - row == 2)
        quant_512_tile(s, form, panel, row, 2);
    else if (s->n_rows - row == 1)
        quant_512_tile(s, form, panel, row, 1);
}

TILE_PART void quant_512_product(const struct quant_slice *s, struct block_form form, size_t first,
                                 size_t last)
{
    const size_t n_rows = pair_rows(form);

    for (size_t n_panels; first < last; first += n_panels) {
        size_t row = 0;

        n_panels = last - first >= 2 && s->n_rows >= PAIR_ROWS ? 2 : 1;
        for (; n_panels == 2 && s->n_rows - row >= n_rows; row += n_rows)
            quant_512_pair(s, form, first, row);
        for (size_t p = 0; p < n_panels; p++)
            quant_512_rest(s, form, first + p, row);
    }
}

TILE_PART void product(const struct quant_slice *s, struct block_form form, size_t first,
                       size_t last)
{
    for (size_t next; first < last; first = next) {
        next = last - first < OUTLIER_PANELS ? last : first + OUTLIER_PANELS;
        quant_512_product(s, form, first, next);
        outliers_add(s, form, first, next);
    }
}

#include "compute/cpu/forms.h"

/* Lane i: v[i] folded by the operation, over all lanes. */
#define FOLD(name, operation, operation_256, operation_128)                                    \
    static inline __m128i name(const __m512i v[4])                                             \
    {                                                                                          \
        __m512i a =                                                                            \
            operation(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));   \
        __m512i b =                                                                            \
            operation(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));   \
        __m256i half;                                                                          \
                                                                                               \
        a = operation(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));               \
        half = operation_256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));      \
        return operation_128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)); \
    }

FOLD(fold_add, _mm512_add_epi32, _mm256_add_epi32, _mm_add_epi32)

/* The greatest and the second greatest number of each lane. */
#define TWO(name, type, width)                                                              \
    struct name {                                                                           \
        type greatest, second;                                                              \
    };                                                                                      \
    static inline struct name name##_of(struct name a, struct name b)                       \
    {                                                                                       \
        return (struct name){width##_max_epu32(a.greatest, b.greatest),                     \
                             width##_max_epu32(width##_max_epu32(a.second, b.second),       \
                                               width##_min_epu32(a.greatest, b.greatest))}; \
    }

TWO(two_512, __m512i, _mm512)
TWO(two_256, __m256i, _mm256)
TWO(two_128, __m128i, _mm)

/* Of two pairs of vectors, by 32 or 64 bits: those of the first in even places. */
#define TWO_UNPACK(a, b, bits)                                                     \
    two_512_of((struct two_512){_mm512_unpacklo_epi##bits(a.greatest, b.greatest), \
                                _mm512_unpacklo_epi##bits(a.second, b.second)},    \
               (struct two_512){_mm512_unpackhi_epi##bits(a.greatest, b.greatest), \
                                _mm512_unpackhi_epi##bits(a.second, b.second)})

/* Lane i: those of v[i], of all lanes. */
static inline struct two_128 fold_two(const struct two_512 v[4])
{
    struct two_512 a = TWO_UNPACK(v[0], v[1], 32), b = TWO_UNPACK(v[2], v[3], 32);
    struct two_256 half;

    a = TWO_UNPACK(a, b, 64);
    half = two_256_of(
        (struct two_256){_mm512_castsi512_si256(a.greatest), _mm512_castsi512_si256(a.second)},
        (struct two_256){_mm512_extracti64x4_epi64(a.greatest, 1),
                         _mm512_extracti64x4_epi64(a.second, 1)});
    return two_128_of((struct two_128){_mm256_castsi256_si128(half.greatest),
                                       _mm256_castsi256_si128(half.second)},
                      (struct two_128){_mm256_extracti128_si256(half.greatest, 1),
                                       _mm256_extracti128_si256(half.second, 1)});
}

/* Some groups of a row that are rounded together. */
enum { SOME = 4 };

struct some_groups {
    const float *in;
    struct act_record *out;
    uint8_t *places;
    struct act_outlier *outliers;
    size_t n;
};

/* The state of some groups. Each step is done for SOMES of them before the next, because the
 * dependency chain of one group, with two divisions in it, takes a hundred cycles. */
enum { SOMES = 16 };

struct rounding {
    _Alignas(16) float amax[SOME], second[SOME], scale[SOME], inverse[SOME];
    _Alignas(16) int32_t outlier[SOME]; /* its magnitude's bits; < 0: there is none */
    unsigned ok;                        /* bit i: the inverse of group i is not 0 */
};

static inline void load_group(const struct some_groups *s, size_t i, __m512 *low, __m512 *high)
{
    *low = i < s->n ? _mm512_loadu_ps(s->in + i * GROUP_VALUES) : _mm512_setzero_ps();
    *high = i < s->n ? _mm512_loadu_ps(s->in + i * GROUP_VALUES + HALF_VALUES) : *low;
}

static inline __m512i magnitudes_of(__m512 x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

TILE_PART void find_greatest(const struct some_groups *s, struct rounding *r)
{
    struct two_512 fold[SOME];
    struct two_128 two;

    UNROLL
    for (size_t i = 0; i < SOME; i++) {
        __m512 low, high;

        load_group(s, i, &low, &high);
        fold[i] = (struct two_512){_mm512_max_epu32(magnitudes_of(low), magnitudes_of(high)),
                                   _mm512_min_epu32(magnitudes_of(low), magnitudes_of(high))};
    }
    two = fold_two(fold);
    _mm_store_ps(r->amax, _mm_castsi128_ps(two.greatest));
    _mm_store_ps(r->second, _mm_castsi128_ps(two.second));
}

/* activation_is_outlier, activation_scale_of */
static inline void find_scales(struct rounding *r, float above)
{
    __m128 a = _mm_load_ps(r->amax), second = _mm_load_ps(r->second), s;
    __mmask8 not_tiny = _mm_cmp_ps_mask(a, _mm_set1_ps(0x1p-100f), _CMP_NLT_UQ);
    __mmask8 ok = not_tiny & _mm_cmp_ps_mask(a, _mm_set1_ps(0x1p100f), _CMP_LT_OQ), outliers;
    __m128i up, bits;

    outliers = ok & _mm_cmp_ps_mask(a, _mm_mul_ps(_mm_set1_ps(above), second), _CMP_GT_OQ);
    _mm_store_si128((__m128i *)(void *)r->outlier,
                    _mm_mask_mov_epi32(_mm_set1_epi32(-1), outliers, _mm_castps_si128(a)));
    a = _mm_mask_mov_ps(a, outliers, second);
    not_tiny = _mm_cmp_ps_mask(a, _mm_set1_ps(0x1p-100f), _CMP_NLT_UQ);
    ok &= not_tiny;
    bits = _mm_maskz_set1_epi32(not_tiny, 0x7fc00000);
    up = _mm_add_epi32(_mm_castps_si128(_mm_div_ps(a, _mm_set1_ps(127.0f))), _mm_set1_epi32(0xff));
    s = _mm_castsi128_ps(_mm_mask_and_epi32(bits, ok, up, _mm_set1_epi32(~0xff)));
    _mm_store_ps(r->scale, s);
    _mm_store_ps(r->inverse, _mm_maskz_div_ps(ok, _mm_set1_ps(1.0f), s));
    r->ok = ok;
}

/* Rounds the values of a group but the one whose magnitude has the bits `outlier`; returns its
 * place, or ACT_NONE. Branches on what activations are would be mispredicted. */
TILE_PART size_t round_but(__m512i *a, __m512i *b, __m512 low, __m512 high, float inverse,
                           int32_t outlier)
{
    __m512i bits = _mm512_set1_epi32(outlier);
    __mmask16 in_low = _mm512_cmpneq_epi32_mask(magnitudes_of(low), bits);
    __mmask16 in_high = _mm512_cmpneq_epi32_mask(magnitudes_of(high), bits);
    uint32_t is = ~(in_low | (uint32_t)in_high << HALF_VALUES);

    *a = _mm512_maskz_cvtps_epi32(in_low, _mm512_mul_ps(low, _mm512_set1_ps(inverse)));
    *b = _mm512_maskz_cvtps_epi32(in_high, _mm512_mul_ps(high, _mm512_set1_ps(inverse)));
    return is == 0 ? ACT_NONE : (size_t)__builtin_ctz(is);
}

/* The values of two groups, each of two vectors of 16, as bytes in order. */
static inline __m512i bytes_of(const __m512i *low, const __m512i *high)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(_mm512_packs_epi32(low[0], high[0]),
                                                              _mm512_packs_epi32(low[1], high[1])));
}

/* act_record_finish of n records: a row of a 4 × 4 transpose each. */
static inline void quant_512_finish(struct act_record *out, size_t step, size_t n,
                                    struct act_form form, __m128 scale, __m128i sum)
{
    __m128 back = _mm_mul_ps(scale, _mm_set1_ps(-ACT_MAGIC));
    __m128 start = _mm_castsi128_ps(
        _mm_sub_epi32(_mm_set1_epi32(ACT_START), _mm_mullo_epi32(sum, _mm_set1_epi32(form.bias))));
    __m128 tail[SOME] = {scale, back, _mm_mul_ps(scale, _mm_cvtepi32_ps(sum)), start};

    _MM_TRANSPOSE4_PS(tail[0], tail[1], tail[2], tail[3]);
    for (size_t i = 0; i < n; i++)
        _mm_storeu_ps(&out[i * step].scale, tail[i]);
}

TILE_PART void round_some(const struct some_groups *s, const struct rounding *r,
                          struct act_form form, size_t step)
{
    __m512i a[SOME], b[SOME], fold[SOME];

    UNROLL
    for (size_t i = 0; i < SOME; i++) {
        __m512 low, high;
        size_t place;

        load_group(s, i, &low, &high);
        place = round_but(&a[i], &b[i], low, high, r->inverse[i], r->outlier[i]);
        if (i < s->n) {
            s->places[i * step] = (uint8_t)place;
            s->outliers[i].value = s->in[i * GROUP_VALUES + place % GROUP_VALUES];
        }
    }
    if (r->ok != (1 << SOME) - 1) /* values with an inverse of 0 may have been infinite */
        for (size_t i = 0; i < SOME; i++)
            if ((r->ok >> i & 1) == 0)
                a[i] = b[i] = _mm512_setzero_si512();
    UNROLL
    for (size_t i = 0; i < SOME; i++)
        fold[i] = _mm512_add_epi32(a[i], b[i]);
    UNROLL
    for (size_t i = 0; i < SOME; i += 2) {
        __m512i bytes = bytes_of(a + i, b + i);

        if (i < s->n)
            _mm256_storeu_si256((__m256i *)(void *)s->out[i * step].value,
                                _mm512_castsi512_si256(bytes));
        if (i + 1 < s->n)
            _mm256_storeu_si256((__m256i *)(void *)s->out[(i + 1) * step].value,
                                _mm512_extracti64x4_epi64(bytes, 1));
    }
    quant_512_finish(s->out, step, s->n, form, _mm_load_ps(r->scale), fold_add(fold));
}

static void round_all(const struct some_groups *some, size_t n, const struct act_slice *s)
{
    struct rounding r[SOMES];

    for (size_t i = 0; i < n; i++) {
        struct some_groups all = some[i];

        all.n = SOME; /* a constant */
        if (some[i].n == SOME)
            find_greatest(&all, &r[i]);
        else
            find_greatest(&some[i], &r[i]);
    }
    for (size_t i = 0; i < n; i++)
        find_scales(&r[i], s->above);
    for (size_t i = 0; i < n; i++) {
        struct some_groups all = some[i];

        all.n = SOME;
        if (some[i].n == SOME)
            round_some(&all, &r[i], s->form, s->step);
        else
            round_some(&some[i], &r[i], s->form, s->step);
    }
}

/* A group of a format with halves. Returns the place of its outlier, or ACT_NONE. */
static size_t quantise_halves(const float *in, const struct act_slice *s, struct act_record *out)
{
    __m512 low = _mm512_loadu_ps(in), high = _mm512_loadu_ps(in + HALF_VALUES);
    __m512i a = magnitudes_of(low), b = magnitudes_of(high);
    __m512i of_lanes = _mm512_max_epu32(a, b);
    uint32_t greatest = _mm512_reduce_max_epu32(of_lanes), second;
    __mmask16 is = _mm512_cmpeq_epi32_mask(of_lanes, _mm512_set1_epi32((int)greatest));
    struct activation_scale scale;
    bool is_outlier;
    size_t place;

    /* of one lane with the greatest, the lesser number counts; if there are more, the greatest */
    second =
        _mm512_reduce_max_epu32(_mm512_mask_min_epu32(of_lanes, is & (__mmask16)(0u - is), a, b));
    is_outlier = activation_is_outlier(greatest, second, s->above);
    scale = activation_scale_of(is_outlier ? second : greatest);
    place = round_but(&a, &b, low, high, scale.inverse, is_outlier ? (int32_t)greatest : -1);
    if (scale.inverse == 0.0f) /* the values may have been infinite */
        a = b = _mm512_setzero_si512();
    _mm_storeu_si128((__m128i *)(void *)out->value, _mm512_cvtepi32_epi8(a));
    _mm_storeu_si128((__m128i *)(void *)(out->value + HALF_VALUES), _mm512_cvtepi32_epi8(b));
    act_record_finish(out, s->form, scale.scale, _mm512_reduce_add_epi32(a),
                      _mm512_reduce_add_epi32(b));
    return place;
}

void ISA_NAME(quantise)(const struct act_slice *s)
{
    struct some_groups some[SOMES];
    size_t n = 0;

    for (size_t r = 0; r < s->n_rows; r++) {
        const float *in = s->in + r * s->stride;
        struct act_record *out = s->out + r;

        for (size_t g = 0; s->form.halves && g < s->n_groups; g++)
            act_outlier_put(s, r, g, in + g * GROUP_VALUES,
                            quantise_halves(in + g * GROUP_VALUES, s, out + g * s->step));
        for (size_t g = 0; !s->form.halves && g < s->n_groups; g += SOME) {
            size_t left = s->n_groups - g;

            some[n++] = (struct some_groups){
                in + g * GROUP_VALUES, out + g * s->step, s->places + g * s->step + r,
                s->outliers + r * s->outlier_stride + g, left < SOME ? left : SOME};
            if (n == SOMES) {
                round_all(some, n, s);
                n = 0;
            }
        }
    }
    round_all(some, n, s);
}
