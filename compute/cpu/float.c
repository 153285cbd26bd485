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

/* cosines [head_dim]: each twice, for its pair; sines the same, the first of a pair negated. So
 * both lanes of a pair are x * cosine + other * sine. */
void FLOAT_NAME(rope)(float *row, size_t n_heads, size_t head_dim, const float *cosines,
                      const float *sines)
{
    size_t whole = head_dim / LANES * LANES, rest = head_dim % LANES;

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

/* At most ABREAST vectors. */
static FIXED_SIZE void gated(float *gate, const float *up, size_t n)
{
    struct v16 x[ABREAST];

    EACH_ABREAST(i)
    {
        size_t at = i * LANES, left = n > at ? n - at : 0;

        x[i] = left < LANES ? v16_load_some(gate + at, left) : v16_load(gate + at);
    }
    v16_silu(x);
    EACH_ABREAST(i)
    {
        size_t at = i * LANES, left = n > at ? n - at : 0;

        if (left < LANES)
            v16_store_some(gate + at, v16_mul(x[i], v16_load_some(up + at, left)), left);
        else
            v16_store(gate + at, v16_mul(x[i], v16_load(up + at)));
    }
}

void FLOAT_NAME(swiglu)(float *gate, const float *up, size_t n)
{
    enum { ALL = ABREAST * LANES };
    size_t i;

    for (i = 0; i + ALL <= n; i += ALL)
        gated(gate + i, up + i, ALL);
    if (i < n)
        gated(gate + i, up + i, n - i);
}
