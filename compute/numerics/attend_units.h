/* The arithmetic of attention, which has the same bits on all backends but ref.
 *
 * Each key, value and query is rounded to int16 multiples of a unit. The unit of a key or a value
 * is a power of 2 such that its greatest magnitude is below 2^ATTEND_KEY_BITS or
 * 2^ATTEND_VALUE_BITS units; that of a query is its greatest magnitude over ATTEND_QUERY_MOST, or
 * over less where heads are long. q8 has its integers already, and its scales are the units.
 * Products of int16 are exact, so they have the same bits in any order, and processors that
 * multiply pairs of them do so at twice the rate of floats.
 *
 * With x the integer product of a query and a key, z = x * (key's unit) * (query's unit * log2 e *
 * scale) + e is the logarithm (base 2) of the weight of the value's integers, where 2^e is
 * the value's unit (for q8 the power of 2 above it; the weight is then multiplied by their ratio).
 * In a span of ATTEND_SPAN positions, counted from 0, weights 2^(z - greatest z) are rounded to
 * multiples of 1 / ATTEND_WEIGHT_MOST; outputs are summed over ATTEND_CHUNK positions in int32, and
 * these sums in f32. The divisor of softmax is summed from weights that are not rounded, times
 * 2^-e, in sixteen lanes by position, by fma. Spans are then merged in order. Where scores are
 * capped, z = (cap * log2 e) * tanh(x * (key's unit) * (query's unit * scale / cap)) + e. With a
 * window, positions before it count for nothing, and spans before it are left out. So the bits of
 * an output depend on its position alone, and not on how queries are grouped or a prompt is cut. */
#ifndef COMPUTE_NUMERICS_ATTEND_UNITS_H
#define COMPUTE_NUMERICS_ATTEND_UNITS_H

#include "compute/numerics/scalar.h"

enum {
    ATTEND_SPAN = 256,
    ATTEND_CHUNK = 64,
    ATTEND_KEY_BITS = 12,
    ATTEND_VALUE_BITS = 11,
    ATTEND_QUERY_MOST = 8191,
    ATTEND_WEIGHT_MOST = 16383,
    ATTEND_LEAST_EXPONENT = -40, /* of a unit; magnitudes far below it count as 0 */
};

/* Adding it to a float below 2^22 rounds that to nearest, even, and leaves the integer in the low
 * bits. */
#define ATTEND_MAGIC 12582912.0f

/* x * by, rounded; any int16 where that is not finite. */
SCALAR_FN int16_t attend_round(float x, float by)
{
    return (int16_t)(scalar_bits(fmaf(x, by, ATTEND_MAGIC)) & 0xffff);
}

/* log2 of the unit in which a greatest magnitude is below 2^bits; NaN where the magnitude is not
 * finite. */
SCALAR_FN float attend_unit_exponent(float greatest, int bits)
{
    float e = (float)(scalar_bits(greatest) >> 23) - 127.0f - (float)(bits - 1);

    e = scalar_choose(e < (float)ATTEND_LEAST_EXPONENT, (float)ATTEND_LEAST_EXPONENT, e);
    return e + (greatest - greatest);
}

/* 2^e of an integer from -126 to 127 */
SCALAR_FN float attend_power(float e)
{
    return scalar_from_bits(scalar_bits(e + (ATTEND_MAGIC + 127.0f)) << 23);
}

struct attend_query_unit {
    float by;   /* what numbers are multiplied by to become integers */
    float unit; /* times the factor; NaN where a number is not finite */
};

/* What a score's unit is multiplied by; scale 0 is 1/sqrt(head_dim), cap 0 is none. */
SCALAR_FN float attend_factor(size_t head_dim, float scale, float cap)
{
    if (cap > 0.0f)
        return (scale > 0.0f ? scale : 1.0f / sqrtf((float)head_dim)) / cap;
    return scale > 0.0f ? SCALAR_LOG2_E * scale : SCALAR_LOG2_E / sqrtf((float)head_dim);
}

/* Of a query of this greatest magnitude, where NaN is above all. Its product with a key stays
 * within int32. factor: attend_factor */
SCALAR_FN struct attend_query_unit attend_unit_of_query(float greatest, size_t head_dim,
                                                        float factor)
{
    size_t padded = (head_dim + SCALAR_LANES - 1) / SCALAR_LANES * SCALAR_LANES;
    size_t held = (size_t)INT32_MAX / padded >> ATTEND_KEY_BITS;
    float most = held < ATTEND_QUERY_MOST ? (float)held : (float)ATTEND_QUERY_MOST;
    struct attend_query_unit u = {0.0f, 0.0f};

    if (greatest >= 0x1p-100f && greatest < 0x1p100f) {
        u.by = most / greatest;
        u.unit = greatest / most * factor;
    } else if (!(greatest < 0x1p-100f)) {
        u.unit = scalar_from_bits(0x7fc00000);
    }
    return u;
}

#endif
