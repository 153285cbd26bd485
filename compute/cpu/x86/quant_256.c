/* Products with quantised weights in 256-bit registers, by AVX-VNNI where the set has it, else by
 * AVX2: a tile of up to 4 rows by half a panel. */
#include <immintrin.h>
#include <string.h>

#include "compute/cpu/acts.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/outlier_lanes.h"
#include "compute/cpu/panels.h"

enum {
    QUADS = GROUP_VALUES / 4,
    HALF_LINE = LINE_BYTES / 2,
    HALF_COLUMNS = PANEL_COLUMNS / 2,
    TILE_ROWS = 4,
    AHEAD = 2048, /* bytes of codes that are prefetched */
};

static inline __m256i load_half_line(const uint8_t *from)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

/* v | byte & mask << shift, by bytes */
static inline __m256i quant_256_or_bits(__m256i v, __m256i byte, int shift, int mask)
{
    __m256i moved = shift < 0 ? _mm256_srli_epi16(byte, -shift) : _mm256_slli_epi16(byte, shift);

    return _mm256_or_si256(v, _mm256_and_si256(moved, _mm256_set1_epi8((char)mask)));
}

/* The numbers of codes below 16, plus the bias. */
static inline __m256i quant_256_table(struct block_form form)
{
    const int8_t *values = form.codes == CODE_IQ4 ? dtype_iq4_values : dtype_e2m1_values;
    __m128i table = _mm_loadu_si128((const __m128i *)(const void *)values);

    return _mm256_broadcastsi128_si256(_mm_add_epi8(table, _mm_set1_epi8((char)form.bias)));
}

/* Quad i of codes of 2 or 3 bits. */
static inline __attribute__((always_inline)) __m256i
quant_256_load_few_bits(const uint8_t *codes, struct block_form form, size_t i)
{
    __m256i v = quant_256_or_bits(_mm256_setzero_si256(),
                                  load_half_line(codes + i / 4 * LINE_BYTES), -2 * (int)(i % 4), 3);

    return form.bits == 2
               ? v
               : quant_256_or_bits(v, load_half_line(codes + 2 * LINE_BYTES), 2 - (int)i, 4);
}

/* The codes of quad i, 4 inputs for each of 8 columns; see panels.h. */
static inline __attribute__((always_inline)) __m256i load_codes(const uint8_t *codes,
                                                                struct block_form form, size_t i)
{
    const uint8_t *planes = codes + QUADS / 2 * LINE_BYTES;
    __m256i w;

    if (form.bits == 8)
        return load_half_line(codes + i * LINE_BYTES);
    if (form.bits < 4)
        return quant_256_load_few_bits(codes, form, i);
    w = load_half_line(codes + i % (QUADS / 2) * LINE_BYTES);
    w = _mm256_and_si256(i < QUADS / 2 ? w : _mm256_srli_epi16(w, 4), _mm256_set1_epi8(15));
    if (form.bits == 5)
        w = quant_256_or_bits(w, load_half_line(planes), 4 - (int)i, 0x10);
    if (form.bits == 6)
        w = quant_256_or_bits(w, load_half_line(planes + i / 4 * LINE_BYTES), 4 - 2 * (int)(i % 4),
                              0x30);
    if (form.codes != CODE_LINEAR)
        w = _mm256_shuffle_epi8(quant_256_table(form), w);
    return w;
}

static inline __m256i broadcast(const int8_t *four)
{
    int32_t quad;

    memcpy(&quad, four, sizeof(quad));
    return _mm256_set1_epi32(quad);
}

static inline __m256 quant_256_load_f16(const uint8_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

/* 2^(e - 128), zero where that is subnormal */
static inline __m256 quant_256_load_powers(const uint8_t *from)
{
    __m128i e = _mm_subs_epu8(_mm_loadl_epi64((const __m128i *)(const void *)from),
                              _mm_set1_epi8(1)); /* the exponent's bits */

    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(e), 23));
}

/* Scales, or mins: f16, powers, or steps that the f16 of the super block multiply. */
static inline __m256 quant_256_load_scales(const uint8_t *from, struct block_form form,
                                           const uint8_t *supers)
{
    if (form.scale == SCALE_F16)
        return quant_256_load_f16(from);
    if (form.scale == SCALE_POWER)
        return quant_256_load_powers(from);
    return _mm256_mul_ps(quant_256_load_f16(supers),
                         _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(
                             _mm_loadl_epi64((const __m128i *)(const void *)from))));
}

static inline __m256i start_of(struct block_form form, const struct act_record *act, bool upper)
{
    if (form.bias == 0)
        return _mm256_set1_epi32(ACT_START);
    return _mm256_set1_epi32(upper ? act->start_upper : act->start);
}

#if defined(__AVXVNNI__)

/* dot[r]: of quads first … last - 1 with row r, from its start. */
static inline __attribute__((always_inline)) void
quant_256_dots(__m256i *dot, struct block_form form, const uint8_t *codes, size_t first,
               size_t last, const struct act_record *act, size_t n)
{
    for (size_t r = 0; r < n; r++)
        dot[r] = start_of(form, &act[r], first > 0);
    for (size_t i = first; i < last; i++) {
        __m256i w = load_codes(codes, form, i);

        for (size_t r = 0; r < n; r++)
            dot[r] = _mm256_dpbusd_avx_epi32(dot[r], w, broadcast(act[r].value + 4 * i));
    }
}

#else

/* Compilers add up in another order, and then keep all of a group's products in memory. */
static inline __m256i keep_order(__m256i sum)
{
    __asm__("" : "+x"(sum));
    return sum;
}

/* The codes of quad i less their bias, which is 128. */
static inline __attribute__((always_inline)) __m256i load_signed(const uint8_t *codes,
                                                                 struct block_form form, size_t i)
{
    if (form.codes == CODE_LINEAR)
        return _mm256_xor_si256(load_codes(codes, form, i), _mm256_set1_epi8((char)-128));
    form.bias = 0;
    return load_codes(codes, form, i);
}

/* Codes of all eight bits: pairs of products of u8 and s8 could overflow 16 bits; those of |code|
 * and the activation with the code's sign cannot. */
static inline __attribute__((always_inline)) void dots_signed(__m256i *dot, struct block_form form,
                                                              const uint8_t *codes,
                                                              const struct act_record *act,
                                                              size_t n)
{
    const __m256i ones = _mm256_set1_epi16(1);

    for (size_t r = 0; r < n; r++)
        dot[r] = _mm256_set1_epi32(ACT_START);
    for (size_t i = 0; i < QUADS; i++) {
        __m256i w = load_signed(codes, form, i), magnitude = _mm256_abs_epi8(w);

        for (size_t r = 0; r < n; r++) {
            __m256i a = _mm256_sign_epi8(broadcast(act[r].value + 4 * i), w);
            __m256i pairs = _mm256_maddubs_epi16(magnitude, a);

            dot[r] = keep_order(_mm256_add_epi32(dot[r], _mm256_madd_epi16(pairs, ones)));
        }
    }
}

/* Small codes: sums of pairs stay within 16 bits for all eight quads of four-bit codes (8 * 2 * 15
 * * 127), for four of five bits (which numbers of E2M1 have with their bias), two of six. */
static inline __attribute__((always_inline)) void
quant_256_dots(__m256i *dot, struct block_form form, const uint8_t *codes, size_t first,
               size_t last, const struct act_record *act, size_t n)
{
    const __m256i ones = _mm256_set1_epi16(1);
    size_t run = form.bits < 4                                 ? 4
                 : form.bits == 6                              ? 2
                 : form.bits == 5 || form.codes != CODE_LINEAR ? 4
                                                               : 8;

    if (form.bias == 128) {
        dots_signed(dot, form, codes, act, n);
        return;
    }
    for (size_t r = 0; r < n; r++)
        dot[r] = start_of(form, &act[r], first > 0);
    for (size_t i = first; i < last; i += run) {
        __m256i pairs[TILE_ROWS], w = load_codes(codes, form, i);

        for (size_t r = 0; r < n; r++)
            pairs[r] = _mm256_maddubs_epi16(w, broadcast(act[r].value + 4 * i));
        for (size_t j = i + 1; j < i + run; j++) {
            w = load_codes(codes, form, j);
            for (size_t r = 0; r < n; r++)
                pairs[r] = keep_order(_mm256_add_epi16(
                    pairs[r], _mm256_maddubs_epi16(w, broadcast(act[r].value + 4 * j))));
        }
        for (size_t r = 0; r < n; r++)
            dot[r] = _mm256_add_epi32(dot[r], _mm256_madd_epi16(pairs[r], ones));
    }
}

#endif

/* y += dot * scale of the activations * scale of the weights; see ACT_START */
static inline __attribute__((always_inline)) void quant_256_add_dots(__m256 *y, const __m256i *dot,
                                                                     __m256 scale,
                                                                     const struct act_record *act,
                                                                     size_t n)
{
    for (size_t r = 0; r < n; r++) {
        __m256 t = _mm256_fmadd_ps(_mm256_castsi256_ps(dot[r]), _mm256_set1_ps(act[r].scale),
                                   _mm256_set1_ps(act[r].back));

        y[r] = _mm256_fmadd_ps(t, scale, y[r]);
    }
}

/* n rows (a constant where this is called, as is form) of the slice from row on, 8 columns. */
static inline __attribute__((always_inline)) void
quant_256_tile(const struct quant_slice *s, struct block_form form, size_t panel, size_t half,
               size_t row, size_t n, float out[TILE_ROWS][HALF_COLUMNS])
{
    struct panel_layout l = panel_layout(form, s->n_groups);
    size_t scale_bytes = form.scale == SCALE_F16 ? sizeof(uint16_t) : sizeof(int8_t);
    size_t scale_at = half * HALF_COLUMNS * scale_bytes;
    size_t super_at = half * HALF_COLUMNS * sizeof(uint16_t);
    const struct act_record *act = s->acts + row;
    __m256 y[TILE_ROWS];

    for (size_t r = 0; r < n; r++)
        y[r] = _mm256_setzero_ps();
    for (size_t g = 0; g < s->n_groups; g++, act += s->n_rows) {
        struct panel_group at = panel_group_at(s->panels + panel * l.size_bytes, &l, g);
        const uint8_t *codes = at.codes + half * HALF_LINE, *scales = at.scales + scale_at;
        const uint8_t *supers = at.supers + super_at;
        __m256i dot[TILE_ROWS];

        if (half == 0)
            for (size_t i = 0; i < l.chunk_bytes / l.chunk_groups; i += LINE_BYTES)
                _mm_prefetch((const char *)codes + AHEAD + i, _MM_HINT_T0);
        quant_256_dots(dot, form, codes, 0, form.halves ? QUADS / 2 : QUADS, act, n);
        quant_256_add_dots(y, dot, quant_256_load_scales(scales, form, supers), act, n);
        if (form.halves) {
            quant_256_dots(dot, form, codes, QUADS / 2, QUADS, act, n);
            quant_256_add_dots(
                y, dot, quant_256_load_scales(scales + PANEL_COLUMNS * scale_bytes, form, supers),
                act, n);
        }
        if (form.has_min) {
            __m256 min = quant_256_load_scales(scales + l.mins, form, supers + SUPER_BYTES);

            for (size_t r = 0; r < n; r++)
                y[r] = _mm256_fmadd_ps(min, _mm256_set1_ps(act[r].sum), y[r]);
        }
        if (form.has_min && form.halves) {
            __m256 min =
                quant_256_load_scales(scales + l.mins + PANEL_COLUMNS, form, supers + SUPER_BYTES);

            for (size_t r = 0; r < n; r++)
                y[r] = _mm256_fmadd_ps(min, _mm256_set1_ps(act[r].sum_upper), y[r]);
        }
    }
    for (size_t r = 0; r < n; r++)
        _mm256_storeu_ps(out[r], y[r]);
}

static inline void quant_256_put(const struct quant_slice *s, size_t row, size_t column,
                                 const float sums[HALF_COLUMNS], size_t n)
{
    float *to = s->out + row * s->stride + column;

    for (size_t i = 0; i < n; i++)
        to[i] = s->adds ? to[i] + sums[i] : sums[i];
}

static inline __attribute__((always_inline)) void
quant_256_product(const struct quant_slice *s, struct block_form form, size_t first, size_t last)
{
    for (size_t i = first * 2; i < last * 2 && i * HALF_COLUMNS < s->n_columns; i++) {
        size_t column = i * HALF_COLUMNS, n_columns = s->n_columns - column;

        n_columns = n_columns < HALF_COLUMNS ? n_columns : HALF_COLUMNS;
        for (size_t row = 0; row < s->n_rows;) {
            size_t n = s->n_rows - row < TILE_ROWS ? s->n_rows - row : TILE_ROWS;
            float out[TILE_ROWS][HALF_COLUMNS];

            if (n == 4)
                quant_256_tile(s, form, i / 2, i % 2, row, 4, out);
            else if (n == 3)
                quant_256_tile(s, form, i / 2, i % 2, row, 3, out);
            else if (n == 2)
                quant_256_tile(s, form, i / 2, i % 2, row, 2, out);
            else
                quant_256_tile(s, form, i / 2, i % 2, row, 1, out);
            for (size_t r = 0; r < n; r++, row++)
                quant_256_put(s, row, column, out[r], n_columns);
        }
    }
}

static inline __attribute__((always_inline)) void
product(const struct quant_slice *s, struct block_form form, size_t first, size_t last)
{
    for (size_t next; first < last; first = next) {
        next = last - first < OUTLIER_PANELS ? last : first + OUTLIER_PANELS;
        quant_256_product(s, form, first, next);
        outliers_add(s, form, first, next);
    }
}

#include "compute/cpu/forms.h"

/* The greatest and the second greatest number of each lane. */
struct two_256 {
    __m256i greatest, second;
};

/* Of both. */
static inline struct two_256 two_of(struct two_256 a, struct two_256 b)
{
    return (struct two_256){_mm256_max_epu32(a.greatest, b.greatest),
                            _mm256_max_epu32(_mm256_max_epu32(a.second, b.second),
                                             _mm256_min_epu32(a.greatest, b.greatest))};
}

/* Of all lanes, in each. */
static inline struct two_256 two_of_lanes(struct two_256 a)
{
    a = two_of(a, (struct two_256){_mm256_permute2x128_si256(a.greatest, a.greatest, 1),
                                   _mm256_permute2x128_si256(a.second, a.second, 1)});
    a = two_of(a, (struct two_256){_mm256_shuffle_epi32(a.greatest, 0x4e),
                                   _mm256_shuffle_epi32(a.second, 0x4e)});
    return two_of(a, (struct two_256){_mm256_shuffle_epi32(a.greatest, 0xb1),
                                      _mm256_shuffle_epi32(a.second, 0xb1)});
}

static inline int32_t sum_of(__m128i values)
{
    __m256i pairs = _mm256_cvtepi8_epi16(values);
    int32_t lanes[8], sum = 0;

    _mm256_storeu_si256((__m256i *)(void *)lanes, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    for (size_t i = 0; i < 8; i++)
        sum += lanes[i];
    return sum;
}

/* Leaves out the value whose magnitude is given; returns its place. */
static inline size_t quant_256_leave_out(__m256i whole[4], const __m256i bits[4], __m256i greatest)
{
    uint32_t at = 0;

    for (size_t i = 0; i < 4; i++) {
        __m256i is = _mm256_cmpeq_epi32(bits[i], greatest);

        whole[i] = _mm256_andnot_si256(is, whole[i]);
        at |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is)) << 8 * i;
    }
    return (size_t)__builtin_ctz(at);
}

/* Returns the place of the group's outlier, or ACT_NONE. */
static size_t quant_256_quantise_group(const float *in, const struct act_slice *s,
                                       struct act_record *out)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    struct two_256 two = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i bits[4], whole[4], bytes;
    struct activation_scale scale;
    uint32_t greatest, second;
    size_t place = ACT_NONE;
    __m256 inverse;
    bool is_outlier;

    for (size_t i = 0; i < 4; i++) {
        bits[i] = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(in + 8 * i)), magnitude);
        two = two_of(two, (struct two_256){bits[i], _mm256_setzero_si256()});
    }
    two = two_of_lanes(two);
    greatest = (uint32_t)_mm256_cvtsi256_si32(two.greatest);
    second = (uint32_t)_mm256_cvtsi256_si32(two.second);
    is_outlier = activation_is_outlier(greatest, second, s->above);
    scale = activation_scale_of(is_outlier ? second : greatest);
    inverse = _mm256_set1_ps(scale.inverse);
    for (size_t i = 0; i < 4; i++)
        whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(in + 8 * i), inverse));
    if (is_outlier)
        place = quant_256_leave_out(whole, bits, two.greatest);
    bytes = _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]),
                               _mm256_packs_epi32(whole[2], whole[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, order);
    if (scale.inverse == 0.0f) /* the values may have been infinite */
        bytes = _mm256_setzero_si256();
    _mm256_storeu_si256((__m256i *)(void *)out->value, bytes);
    act_record_finish(out, s->form, scale.scale, sum_of(_mm256_castsi256_si128(bytes)),
                      sum_of(_mm256_extracti128_si256(bytes, 1)));
    return place;
}

void ISA_NAME(quantise)(const struct act_slice *s)
{
    for (size_t r = 0; r < s->n_rows; r++)
        for (size_t g = 0; g < s->n_groups; g++) {
            const float *in = s->in + r * s->stride + g * GROUP_VALUES;

            act_outlier_put(s, r, g, in, quant_256_quantise_group(in, s, s->out + g * s->step + r));
        }
}
