/* Products with quantised weights by AVX-512 VNNI: a tile of up to 16 rows by one panel of 16
 * columns, weights unpacked once in registers, activations broadcast from memory. */
#include <immintrin.h>
#include <string.h>

#include "compute/cpu/acts.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/panels.h"

enum {
    QUADS = GROUP_VALUES / 4,
    TOGETHER = 4, /* rows whose dots are in flight at once: as many as registers allow */
    AHEAD = 4096, /* bytes of codes that are fetched before they are needed */
};

typedef int32_t __attribute__((may_alias)) quad;

/* acc += the four products of each lane. Compilers load and broadcast apart, which costs a third of
 * the speed: hence the instruction itself. */
static inline __attribute__((always_inline)) __m512i dot4(__m512i acc, __m512i codes,
                                                          const int8_t *four)
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

static inline __attribute__((always_inline)) void load_codes(__m512i w[QUADS], bool nibbles,
                                                             const uint8_t *codes)
{
    const __m512i low = _mm512_set1_epi8(15);

    if (!nibbles) {
        for (size_t i = 0; i < QUADS; i++)
            w[i] = load_line(codes + i * LINE_BYTES);
        return;
    }
    for (size_t i = 0; i < QUADS / 2; i++) {
        __m512i both = load_line(codes + i * LINE_BYTES);

        w[i] = _mm512_and_si512(both, low);
        w[QUADS / 2 + i] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
}

static inline __m512 load_scales(const uint8_t *from, bool wide)
{
    if (wide)
        return _mm512_loadu_ps(from);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

/* dot * scale, in one rounding; see ACT_START */
static inline __attribute__((always_inline)) __m512 scaled(__m512i dot,
                                                           const struct act_record *act)
{
    return _mm512_fmadd_ps(_mm512_castsi512_ps(dot), _mm512_set1_ps(act->scale),
                           _mm512_set1_ps(act->back));
}

/* Adds group g of up to TOGETHER rows to y. */
static inline __attribute__((always_inline)) void add_group(__m512 *y, const __m512i w[QUADS],
                                                            struct block_form form, __m512 scale,
                                                            __m512 upper, __m512 min,
                                                            const struct act_record *act, size_t n)
{
    __m512i dot[TOGETHER], dot_upper[TOGETHER];

    for (size_t r = 0; r < n; r++) {
        dot[r] = _mm512_set1_epi32(form.bias == 0 ? ACT_START : act[r].start);
        dot_upper[r] = _mm512_set1_epi32(form.halves ? act[r].start_upper : 0);
    }
    for (size_t i = 0; i < QUADS; i++)
        for (size_t r = 0; r < n; r++) {
            if (form.halves && i >= QUADS / 2)
                dot_upper[r] = dot4(dot_upper[r], w[i], act[r].value + 4 * i);
            else
                dot[r] = dot4(dot[r], w[i], act[r].value + 4 * i);
        }
    for (size_t r = 0; r < n; r++) {
        y[r] = _mm512_fmadd_ps(scaled(dot[r], &act[r]), scale, y[r]);
        if (form.halves)
            y[r] = _mm512_fmadd_ps(scaled(dot_upper[r], &act[r]), upper, y[r]);
        if (form.has_min)
            y[r] = _mm512_fmadd_ps(min, _mm512_set1_ps(act[r].sum), y[r]);
    }
}

/* n rows (a constant where this is called, as is form) of the slice from row on, one panel. */
static inline __attribute__((always_inline)) void
tile(const struct quant_slice *s, struct block_form form, size_t panel, size_t row, size_t n)
{
    struct panel_layout l = panel_layout(form, s->n_groups);
    const uint8_t *codes = s->panels + panel * l.size_bytes + l.codes;
    const uint8_t *scales = s->panels + panel * l.size_bytes + l.scales;
    const struct act_record *act = s->acts + row;
    size_t column = panel * PANEL_COLUMNS, n_columns = s->n_columns - column;
    __mmask16 mask = n_columns < PANEL_COLUMNS ? (__mmask16)((1u << n_columns) - 1) : 0xffff;
    __m512 y[ACT_ROWS];

    for (size_t r = 0; r < n; r++) {
        y[r] = _mm512_setzero_ps();
        /* rows of a large output lie in lines that no cache has: ask for them now */
        _mm_prefetch((const char *)(s->out + (row + r) * s->stride + column), _MM_HINT_T0);
    }
    for (size_t g = 0; g < s->n_groups; g++, act += s->n_rows) {
        __m512 scale = load_scales(scales, form.wide), upper = scale, min = scale;
        __m512i w[QUADS];

        for (size_t i = 0; i < l.code_step; i += LINE_BYTES)
            _mm_prefetch((const char *)codes + AHEAD + i, _MM_HINT_T0);
        load_codes(w, form.nibbles, codes);
        if (form.halves)
            upper = load_scales(scales + PANEL_COLUMNS * sizeof(float), form.wide);
        if (form.has_min)
            min = load_scales(scales + l.mins, form.wide);
        /* a loop, written out: left to itself, the compiler keeps y in memory */
        add_group(y, w, form, scale, upper, min, act, n < 4 ? n : 4);
        if (n > 4)
            add_group(y + 4, w, form, scale, upper, min, act + 4, n < 8 ? n - 4 : 4);
        if (n > 8)
            add_group(y + 8, w, form, scale, upper, min, act + 8, n < 12 ? n - 8 : 4);
        if (n > 12)
            add_group(y + 12, w, form, scale, upper, min, act + 12, n - 12);
        codes += l.code_step;
        scales += l.scale_step;
    }
    for (size_t r = 0; r < n; r++)
        _mm512_mask_storeu_ps(s->out + (row + r) * s->stride + column, mask, y[r]);
}

static inline __attribute__((always_inline)) void
product(const struct quant_slice *s, struct block_form form, size_t first, size_t last)
{
    for (size_t panel = first; panel < last; panel++) {
        size_t row = 0, left = s->n_rows;

        if (left == ACT_ROWS) {
            tile(s, form, panel, 0, ACT_ROWS);
            continue;
        }
        if (left >= 8) {
            tile(s, form, panel, row, 8);
            row += 8;
            left -= 8;
        }
        if (left >= 4) {
            tile(s, form, panel, row, 4);
            row += 4;
            left -= 4;
        }
        if (left == 3)
            tile(s, form, panel, row, 3);
        else if (left == 2)
            tile(s, form, panel, row, 2);
        else if (left == 1)
            tile(s, form, panel, row, 1);
    }
}

#include "compute/cpu/forms.h"

/* One row. */
void ISA_NAME(quantise)(const float *in, size_t n_groups, struct act_form form,
                        struct act_record *out, size_t n_rows)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);

    for (size_t g = 0; g < n_groups; g++, in += GROUP_VALUES, out += n_rows) {
        __m512 low = _mm512_loadu_ps(in), high = _mm512_loadu_ps(in + HALF_VALUES), inverse;
        __m512i a = _mm512_and_si512(_mm512_castps_si512(low), magnitude);
        __m512i b = _mm512_and_si512(_mm512_castps_si512(high), magnitude);
        uint32_t greatest = _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
        struct act_scale scale = act_scale_of(greatest);
        int32_t sum_low, sum_high;

        inverse = _mm512_set1_ps(scale.inverse);
        a = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
        b = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
        if (scale.inverse == 0.0f) /* what it multiplied may have been infinite */
            a = b = _mm512_setzero_si512();
        _mm_storeu_si128((__m128i *)(void *)out->value, _mm512_cvtepi32_epi8(a));
        _mm_storeu_si128((__m128i *)(void *)(out->value + HALF_VALUES), _mm512_cvtepi32_epi8(b));
        sum_low = _mm512_reduce_add_epi32(a);
        sum_high = _mm512_reduce_add_epi32(b);
        act_record_finish(out, form, scale.scale, sum_low, sum_high);
    }
}
