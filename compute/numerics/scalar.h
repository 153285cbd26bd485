/* Scalar functions and reductions whose bits are part of the contract: the CPU backends compute
 * exactly these, whatever the width of their registers, so that a reply is the same bytes on every
 * machine. All operations are single f32 multiplications and additions in the order written, fused
 * where fmaf is written and nowhere else (the project is compiled with -ffp-contract=off; a vector
 * version uses mul and add, and fma for fmaf), and there is no branch. */
#ifndef COMPUTE_NUMERICS_SCALAR_H
#define COMPUTE_NUMERICS_SCALAR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Functions that a device's kernels share with the host. */
#if defined(__CUDACC__)
#define SCALAR_FN static __host__ __device__ inline
#else
#define SCALAR_FN static inline
#endif

/* Virtual lanes of a float reduction: element i goes into lane i % 16, in rising order of i. */
enum { SCALAR_LANES = 16 };

#define SCALAR_LOG2_E 1.44269504088896341f

SCALAR_FN uint32_t scalar_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

SCALAR_FN float scalar_from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* yes or no by bits, so that a compiler does not make branches of it, which it could not vectorise.
 */
SCALAR_FN float scalar_choose(int condition, float yes, float no)
{
    uint32_t mask = 0u - (uint32_t)condition; /* of 0 or 1 */

    return scalar_from_bits((scalar_bits(yes) & mask) | (scalar_bits(no) & ~mask));
}

/* e^x within 1 ulp; the argument is clamped to [-87, 88], so the result is always a normal, finite
 * number; NaN stays NaN. Cephes' expf: x = n ln 2 + r, then a polynomial in r. Adding 1.5 * 2^23
 * rounds to the nearest integer, which is then found in the low bits. */
SCALAR_FN float scalar_exp(float x)
{
    const float magic = 12582912.0f;
    float t, n, r, p;

    x = scalar_choose(x < -87.0f, -87.0f, x);
    x = scalar_choose(x > 88.0f, 88.0f, x);
    t = x * SCALAR_LOG2_E + magic;
    n = t - magic;
    r = x - n * 0.693359375f; /* exact: ln 2 in two parts, the first of 9 bits */
    r = r - n * -2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r;
    p = p + 1.0f;
    /* the bits of magic vanish at the top of the shift: what is left is (n + 127) << 23, 2^n */
    return p * scalar_from_bits((scalar_bits(t) + 127u) << 23);
}

/* 2^(x * scale) within a relative 2e-7, by fma, for processors that have it. x * scale is between
 * -125 and 125, or NaN. As scalar_exp, but the bias 127 of a float's exponent is added with magic,
 * and the product is rounded only once. */
SCALAR_FN float scalar_exp2(float x, float scale)
{
    const float magic = 12582912.0f + 127.0f;
    float t = fmaf(x, scale, magic), r = fmaf(x, scale, magic - t), p;

    p = fmaf(1.326472731e-3f, r, 9.671512991e-3f);
    p = fmaf(p, r, 5.550733581e-2f);
    p = fmaf(p, r, 2.402224243e-1f);
    p = fmaf(p, r, 6.931470037e-1f);
    p = fmaf(p, r, 1.0f);
    return p * scalar_from_bits(scalar_bits(t) << 23);
}

/* The same for any x <= 0 or NaN and scale > 0, as attention's scores are: the power is clamped to
 * -125 or above, so the result is a normal number; NaN stays NaN. */
SCALAR_FN float scalar_exp2_below(float x, float scale)
{
    float lowest = -125.0f / scale;

    return scalar_exp2(scalar_choose(x < lowest, lowest, x), scale);
}

/* x * sigmoid(x), as gated networks have it. The exponent is clamped to [-86, 86]; NaN stays
 * NaN. */
SCALAR_FN float scalar_silu(float x)
{
    float held = -x;

    held = scalar_choose(held < -86.0f, -86.0f, held);
    held = scalar_choose(held > 86.0f, 86.0f, held);
    return x * (1.0f / (1.0f + scalar_exp2(held, SCALAR_LOG2_E)));
}

/* x * sigmoid(2 y), y = sqrt(2 / pi) * (x + 0.044715 x^3): GELU in its approximation by tanh. The
 * exponent is clamped as silu's. */
SCALAR_FN float scalar_gelu(float x)
{
    float held = x * fmaf(x * x, -0.0713548162726f, -1.59576912161f); /* -2 y */

    held = scalar_choose(held < -86.0f, -86.0f, held);
    held = scalar_choose(held > 86.0f, 86.0f, held);
    return x * (1.0f / (1.0f + scalar_exp2(held, SCALAR_LOG2_E)));
}

/* x * (1 + erf(x / sqrt 2)) / 2; erf within 2e-7, by formula 7.1.26 of Abramowitz and Stegun. The
 * exponent is clamped to [-86, 0]. */
SCALAR_FN float scalar_gelu_erf(float x)
{
    float z = fabsf(x) * 0.70710678f, t = 1.0f / fmaf(0.3275911f, z, 1.0f), held = -z * z, p, e;

    held = scalar_choose(held < -86.0f, -86.0f, held);
    p = fmaf(1.061405429f, t, -1.453152027f);
    p = fmaf(p, t, 1.421413741f);
    p = fmaf(p, t, -0.284496736f);
    p = fmaf(p, t, 0.254829592f);
    e = p * t * scalar_exp2(held, SCALAR_LOG2_E); /* 1 - erf(z) */
    return x * scalar_choose(x < 0.0f, 0.5f * e, fmaf(-0.5f, e, 1.0f));
}

/* tanh(x) within 1e-7, for caps: 1 - 2 / (1 + e^2x). The exponent is clamped to [-86, 86]. */
SCALAR_FN float scalar_cap_tanh(float x)
{
    float held = x * 2.0f;

    held = scalar_choose(held < -86.0f, -86.0f, held);
    held = scalar_choose(held > 86.0f, 86.0f, held);
    return fmaf(-2.0f, 1.0f / (1.0f + scalar_exp2(held, SCALAR_LOG2_E)), 1.0f);
}

/* x * factor, softly capped: inverse is 1 / cap; cap 0: not capped. */
SCALAR_FN float scalar_scaled(float x, float factor, float cap, float inverse)
{
    return cap > 0.0f ? cap * scalar_cap_tanh(x * factor * inverse) : x * factor;
}

SCALAR_FN float scalar_sigmoid(float x)
{
    return 1.0f / (1.0f + scalar_exp(-x));
}

/* The lanes' sum: halves folded onto one another, 8 + 8, 4 + 4, 2 + 2, 1 + 1. */
SCALAR_FN float scalar_sum_lanes(const float lanes[SCALAR_LANES])
{
    float s[SCALAR_LANES];
    size_t half, i;

    memcpy(s, lanes, sizeof(s));
    for (half = SCALAR_LANES / 2; half > 0; half /= 2)
        for (i = 0; i < half; i++)
            s[i] += s[i + half];
    return s[0];
}

#endif
