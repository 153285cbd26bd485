/* The operators on rows of floats. Their bits are those of `ref`. */
#include <math.h>

#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"

void FLOAT_NAME(rms_norm)(const float *in, const float *gain, float eps, size_t width, float *out)
{
    struct v16 squares = v16_all(0.0f), scale;
    size_t i, whole = width / LANES * LANES, rest = width % LANES;

    for (i = 0; i < whole; i += LANES) {
        struct v16 x = v16_load(in + i);

        squares = v16_add(squares, v16_mul(x, x));
    }
    if (rest > 0) {
        struct v16 x = v16_load_some(in + i, rest);

        squares = v16_add(squares, v16_mul(x, x)); /* zeros add nothing */
    }
    scale = v16_all(1.0f / sqrtf(v16_sum(squares) / (float)width + eps));
    for (i = 0; i < whole; i += LANES)
        v16_store(out + i, v16_mul(v16_mul(v16_load(in + i), scale), v16_load(gain + i)));
    if (rest > 0)
        v16_store_some(
            out + i,
            v16_mul(v16_mul(v16_load_some(in + i, rest), scale), v16_load_some(gain + i, rest)),
            rest);
}

/* cosines [n_rotated]: each twice, for its pair; sines the same, the first of a pair negated. So
 * both lanes of a pair are x * cosine + other * sine. */
void FLOAT_NAME(rope)(float *row, size_t n_heads, size_t head_dim, size_t n_rotated,
                      const float *cosines, const float *sines)
{
    size_t whole = n_rotated / LANES * LANES, rest = n_rotated % LANES;

    for (size_t h = 0; h < n_heads; h++, row += head_dim) {
        struct v16 x;
        size_t i;

        for (i = 0; i < whole; i += LANES) {
            x = v16_load(row + i);
            v16_store(row + i, v16_add(v16_mul(x, v16_load(cosines + i)),
                                       v16_mul(v16_swap_pairs(x), v16_load(sines + i))));
        }
        if (rest == 0)
            continue;
        x = v16_load_some(row + i, rest);
        x = v16_add(v16_mul(x, v16_load_some(cosines + i, rest)),
                    v16_mul(v16_swap_pairs(x), v16_load_some(sines + i, rest)));
        v16_store_some(row + i, x, rest);
    }
}

static inline struct v16 float_load(const float *from, size_t n)
{
    return n < LANES ? v16_load_some(from, n) : v16_load(from);
}

static inline void float_store(float *to, struct v16 x, size_t n)
{
    if (n < LANES)
        v16_store_some(to, x, n);
    else
        v16_store(to, x);
}

void FLOAT_NAME(rope_halves)(float *row, size_t n_heads, size_t head_dim, size_t n_rotated,
                             const float *cosines, const float *sines)
{
    size_t half = n_rotated / 2;

    for (size_t h = 0; h < n_heads; h++, row += head_dim)
        for (size_t i = 0; i < half; i += LANES) {
            size_t n = half - i;
            struct v16 a = float_load(row + i, n), b = float_load(row + half + i, n);
            struct v16 c = float_load(cosines + i, n), s = float_load(sines + i, n);

            float_store(row + i, v16_sub(v16_mul(a, c), v16_mul(b, s)), n);
            float_store(row + half + i, v16_add(v16_mul(a, s), v16_mul(b, c)), n);
        }
}

/* At most ABREAST vectors. `activate` is a constant where this is called. */
static FIXED_SIZE void gated(float *gate, const float *up, size_t n,
                             void (*activate)(struct v16 x[ABREAST]))
{
    struct v16 x[ABREAST];

    EACH_ABREAST(i)
    {
        size_t at = i * LANES, left = n > at ? n - at : 0;

        x[i] = float_load(gate + at, left);
    }
    activate(x);
    EACH_ABREAST(i)
    {
        size_t at = i * LANES, left = n > at ? n - at : 0;

        float_store(gate + at, v16_mul(x[i], float_load(up + at, left)), left);
    }
}

enum { ALL = ABREAST * LANES };

void FLOAT_NAME(swiglu)(float *gate, const float *up, size_t n)
{
    size_t i;

    for (i = 0; i + ALL <= n; i += ALL)
        gated(gate + i, up + i, ALL, v16_silu);
    if (i < n)
        gated(gate + i, up + i, n - i, v16_silu);
}

void FLOAT_NAME(geglu)(float *gate, const float *up, size_t n)
{
    size_t i;

    for (i = 0; i + ALL <= n; i += ALL)
        gated(gate + i, up + i, ALL, v16_gelu);
    if (i < n)
        gated(gate + i, up + i, n - i, v16_gelu);
}

/* At most ABREAST vectors. */
static FIXED_SIZE void cap_some(float *to, float factor, float cap, size_t n)
{
    struct v16 x[ABREAST], inverse = v16_all(1.0f / cap);

    EACH_ABREAST(i)
    {
        size_t at = i * LANES, left = n > at ? n - at : 0;

        x[i] = v16_mul(v16_mul(float_load(to + at, left), v16_all(factor)), inverse);
    }
    v16_cap_tanh(x);
    EACH_ABREAST(i)
    {
        size_t at = i * LANES, left = n > at ? n - at : 0;

        float_store(to + at, v16_mul(v16_all(cap), x[i]), left);
    }
}

void FLOAT_NAME(scale)(float *x, float factor, float cap, size_t n)
{
    if (cap > 0.0f)
        for (size_t i = 0; i < n; i += ALL)
            cap_some(x + i, factor, cap, n - i);
    else
        for (size_t i = 0; i < n; i += LANES)
            float_store(x + i, v16_mul(float_load(x + i, n - i), v16_all(factor)), n - i);
}

void FLOAT_NAME(add)(float *to, const float *from, float factor, size_t n)
{
    for (size_t i = 0; i < n; i += LANES)
        float_store(to + i,
                    v16_add(float_load(to + i, n - i),
                            v16_mul(v16_all(factor), float_load(from + i, n - i))),
                    n - i);
}
