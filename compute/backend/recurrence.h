/* The arithmetic of recurrent layers beside their steps. It has the same bits on ref and cpu: see
 * scalar.h. */
#ifndef COMPUTE_BACKEND_RECURRENCE_H
#define COMPUTE_BACKEND_RECURRENCE_H

#include "compute/backend/gates.h"
#include "compute/backend/states.h"

#define RECURRENCE_UNIT_EPS 1e-6f

/* ln(1 + e^x), within a relative 1e-6: above 0 x + ln(1 + e^-x). The logarithm is 2 artanh(z) of
 * z = y / (2 + y) <= 1/3, by its series. */
static inline float recurrence_softplus(float x)
{
    const double y = (double)scalar_exp(x > 0.0f ? -x : x);
    const double z = y / (2.0 + y), square = z * z;
    double sum = 0.0;

    for (int n = 25; n > 0; n -= 2)
        sum = sum * square + 1.0 / (double)n;
    return (x > 0.0f ? x : 0.0f) + (float)(2.0 * z * sum);
}

/* Of one head: *first becomes the strength, *second the decay. */
static inline void recurrence_gate(bool corrects, float bias, float slope, float *first,
                                   float *second)
{
    float dt = recurrence_softplus(*second + bias);

    *second = scalar_exp(slope * dt);
    *first = corrects ? gates_sigmoid(*first) : dt;
}

/* A head of a key or a query. */
static inline void recurrence_unit(float *x, size_t width, float scale)
{
    float squares[SCALAR_LANES] = {0}, factor;

    for (size_t i = 0; i < width; i++)
        squares[i % SCALAR_LANES] += x[i] * x[i];
    factor = scale / sqrtf(scalar_sum_lanes(squares) + RECURRENCE_UNIT_EPS);
    for (size_t i = 0; i < width; i++)
        x[i] *= factor;
}

/* The key head of a head. */
static inline size_t recurrence_key_head(const struct recurrence *how, size_t head)
{
    return how->is_tiled ? head % how->n_key_heads : head / (how->n_heads / how->n_key_heads);
}

#endif
