/* Sixteen floats, in one register, in two, in four, or in an array: what all float kernels compute
 * with, so that a kernel is written once, compiled for each instruction set, and gives the same
 * bits. All functions are static: this header is compiled with flags that not every machine can
 * run. */
#ifndef COMPUTE_CPU_LANES_H
#define COMPUTE_CPU_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compute/numerics/dtype.h"
#include "compute/numerics/scalar.h"

enum { LANES = SCALAR_LANES };

/* A function whose sizes are constants where it is called: inlined there, so that its variables
 * stay in registers. Not in plain C, which gains nothing and takes long to compile. */
#if defined(__AVX2__) || defined(LANES_NEON)
#define FIXED_SIZE inline __attribute__((always_inline))
#else
#define FIXED_SIZE __attribute__((noinline, unused))
#endif

/* ABREAST, of each set, is the number of vectors whose chains of dependent instructions are
 * interleaved. A processor looks ahead by a hundred instructions or so: chains of forty, one after
 * the other, leave most of it idle. v16_abreast is a barrier: code before it is computed before it,
 * for all vectors. Compilers would otherwise put one chain after the other again. */
#define EACH_ABREAST(i) _Pragma("GCC unroll 4") for (size_t i = 0; i < ABREAST; i++)

#if defined(__AVX512F__)
#include "compute/cpu/x86/lanes_512.h"
#elif defined(__AVX2__)
#include "compute/cpu/x86/lanes_256.h"
#elif defined(LANES_NEON)
#include "compute/cpu/arm/lanes_neon.h"
#else
#include "compute/cpu/lanes_plain.h"
#endif

/* The first n < 16 floats of p, then zeros. */
static inline struct v16 v16_load_some(const float *p, size_t n)
{
    float all[LANES] = {0};

    memcpy(all, p, n * sizeof(*p));
    return v16_load(all);
}

static inline void v16_store_some(float *p, struct v16 a, size_t n)
{
    float all[LANES];

    v16_store(all, a);
    memcpy(p, all, n * sizeof(*p));
}

#if !defined(__AVX2__)

static inline struct v16 v16_load_head(const float *p, size_t n)
{
    return v16_load_some(p, n);
}

#endif

#if !defined(V16_OWN_SUMS)

/* The v16_sum of each of LANES vectors. */
static inline struct v16 v16_sums(const struct v16 a[LANES])
{
    float sums[LANES];

    for (size_t i = 0; i < LANES; i++)
        sums[i] = v16_sum(a[i]);
    return v16_load(sums);
}

#endif

#if !defined(V16_OWN_RECIPROCAL)

/* a = 1 / a for a >= 1 or NaN */
static FIXED_SIZE void v16_reciprocal(struct v16 a[ABREAST])
{
    EACH_ABREAST(i)
    a[i] = v16_div(v16_all(1.0f), a[i]);
}

#endif

/* p = fma(p, x, c) */
static inline void v16_horner(struct v16 p[ABREAST], const struct v16 x[ABREAST], float c)
{
    EACH_ABREAST(i)
    p[i] = v16_fma(p[i], x[i], v16_all(c));
    v16_abreast(p);
}

/* x = scalar_exp2(x, scale) */
static FIXED_SIZE void v16_exp2(struct v16 x[ABREAST], float scale)
{
    const struct v16 magic = v16_all(12582912.0f + 127.0f), by = v16_all(scale);
    struct v16 t[ABREAST], p[ABREAST];

    EACH_ABREAST(i)
    t[i] = v16_fma(x[i], by, magic);
    v16_abreast(t);
    EACH_ABREAST(i)
    {
        x[i] = v16_fma(x[i], by, v16_sub(magic, t[i]));
        p[i] = v16_all(1.326472731e-3f);
    }
    v16_abreast(x);
    v16_horner(p, x, 9.671512991e-3f);
    v16_horner(p, x, 5.550733581e-2f);
    v16_horner(p, x, 2.402224243e-1f);
    v16_horner(p, x, 6.931470037e-1f);
    v16_horner(p, x, 1.0f);
    EACH_ABREAST(i)
    x[i] = v16_mul(p[i], v16_power(t[i]));
    v16_abreast(x);
}

/* x = scalar_exp2_below(x, scale) */
static FIXED_SIZE void v16_exp2_below(struct v16 x[ABREAST], float scale)
{
    const struct v16 lowest = v16_all(-125.0f / scale);

    EACH_ABREAST(i)
    x[i] = v16_max(lowest, x[i]);
    v16_exp2(x, scale);
}

/* x = scalar_silu(x); -x is written as a flipped sign there and as a product here: the same but for
 * the sign of NaN. */
static FIXED_SIZE void v16_silu(struct v16 x[ABREAST])
{
    struct v16 e[ABREAST];

    EACH_ABREAST(i)
    e[i] = v16_min(v16_all(86.0f), v16_max(v16_all(-86.0f), v16_mul(x[i], v16_all(-1.0f))));
    v16_exp2(e, SCALAR_LOG2_E);
    EACH_ABREAST(i)
    e[i] = v16_add(v16_all(1.0f), e[i]);
    v16_reciprocal(e);
    EACH_ABREAST(i)
    x[i] = v16_mul(x[i], e[i]);
}

/* x = scalar_gelu(x), with the remark of v16_silu. */
static FIXED_SIZE void v16_gelu(struct v16 x[ABREAST])
{
    struct v16 e[ABREAST];

    EACH_ABREAST(i)
    {
        e[i] = v16_fma(v16_mul(x[i], x[i]), v16_all(-0.0713548162726f), v16_all(-1.59576912161f));
        e[i] = v16_mul(x[i], e[i]);
        e[i] = v16_min(v16_all(86.0f), v16_max(v16_all(-86.0f), e[i]));
    }
    v16_exp2(e, SCALAR_LOG2_E);
    EACH_ABREAST(i)
    e[i] = v16_add(v16_all(1.0f), e[i]);
    v16_reciprocal(e);
    EACH_ABREAST(i)
    x[i] = v16_mul(x[i], e[i]);
}

/* x = scalar_cap_tanh(x) */
static FIXED_SIZE void v16_cap_tanh(struct v16 x[ABREAST])
{
    EACH_ABREAST(i)
    {
        x[i] = v16_mul(x[i], v16_all(2.0f));
        x[i] = v16_min(v16_all(86.0f), v16_max(v16_all(-86.0f), x[i]));
    }
    v16_exp2(x, SCALAR_LOG2_E);
    EACH_ABREAST(i)
    x[i] = v16_add(v16_all(1.0f), x[i]);
    v16_reciprocal(x);
    EACH_ABREAST(i)
    x[i] = v16_fma(v16_all(-2.0f), x[i], v16_all(1.0f));
}

#endif
