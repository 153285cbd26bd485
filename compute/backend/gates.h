/* The arithmetic of the operators that only the newer architectures need. It has the same bits on
 * ref and cpu: see scalar.h. */
#ifndef COMPUTE_BACKEND_GATES_H
#define COMPUTE_BACKEND_GATES_H

#include "compute/backend/backend.h"
#include "compute/numerics/scalar.h"

#define GATES_CLAMP 7.0f
#define GATES_CLAMPED_SLOPE 1.702f

static inline float gates_between(float x, float low, float high)
{
    x = scalar_choose(x < low, low, x);
    return scalar_choose(x > high, high, x);
}

/* 1 / (1 + e^-x); the exponent is clamped to [-86, 86]; NaN stays NaN. */
static inline float gates_sigmoid(float x)
{
    return 1.0f / (1.0f + scalar_exp2(gates_between(-x, -86.0f, 86.0f), SCALAR_LOG2_E));
}

/* Of a number x with `by` beside it; kind is a constant where this is inlined in a loop. */
static inline float gates_activated(enum activation kind, float x, float by)
{
    switch (kind) {
    case ACTIVATION_GELU:
        return scalar_gelu(x) * by;
    case ACTIVATION_GELU_ERF:
        return scalar_gelu_erf(x) * by;
    case ACTIVATION_PRODUCT:
        return x * by;
    case ACTIVATION_SIGMOID:
        return gates_sigmoid(x) * by;
    case ACTIVATION_SQUARE:
        x = scalar_choose(x < 0.0f, 0.0f, x);
        return x * x * by;
    case ACTIVATION_CLAMPED:
        x = scalar_choose(x > GATES_CLAMP, GATES_CLAMP, x);
        return x * gates_sigmoid(x * GATES_CLAMPED_SLOPE) *
               (gates_between(by, -GATES_CLAMP, GATES_CLAMP) + 1.0f);
    default:
        return scalar_silu(x) * by;
    }
}

/* One tap of a convolution of rows: the first is stored, the others are added. */
static inline void gates_add_tap(const float *taps, size_t n_taps, size_t tap, const float *row,
                                 size_t width, float *out)
{
    for (size_t c = 0; c < width; c++) {
        float y = taps[c * n_taps + tap] * row[c];

        out[c] = tap > 0 ? out[c] + y : y;
    }
}

/* Sums in sixteen lanes, as all sums of rows. bias may be NULL; out may be x. */
static inline void gates_layer_norm(const float *x, const float *gain, const float *bias, float eps,
                                    size_t width, float *out)
{
    float sums[SCALAR_LANES] = {0}, squares[SCALAR_LANES] = {0}, mean, scale;

    for (size_t i = 0; i < width; i++)
        sums[i % SCALAR_LANES] += x[i];
    mean = scalar_sum_lanes(sums) / (float)width;
    for (size_t i = 0; i < width; i++)
        squares[i % SCALAR_LANES] += (x[i] - mean) * (x[i] - mean);
    scale = 1.0f / sqrtf(scalar_sum_lanes(squares) / (float)width + eps);
    for (size_t i = 0; i < width; i++) {
        float y = (x[i] - mean) * scale * gain[i];

        out[i] = bias != NULL ? y + bias[i] : y;
    }
}

/* What of a row lies above its mean + times * its standard deviation, else 0. */
static inline void gates_cut(float times, size_t width, float *x)
{
    float sums[SCALAR_LANES] = {0}, squares[SCALAR_LANES] = {0}, mean, least;

    for (size_t i = 0; i < width; i++)
        sums[i % SCALAR_LANES] += x[i];
    mean = scalar_sum_lanes(sums) / (float)width;
    for (size_t i = 0; i < width; i++)
        squares[i % SCALAR_LANES] += (x[i] - mean) * (x[i] - mean);
    least = mean + times * sqrtf(scalar_sum_lanes(squares) / (float)width);
    for (size_t i = 0; i < width; i++)
        x[i] = x[i] > least ? x[i] - least : 0.0f;
}

#endif
