/* The operators of small networks on one row of floats: the definition, shared by the backends as
 * scalar.h is. */
#ifndef COMPUTE_NUMERICS_NET_ROWS_H
#define COMPUTE_NUMERICS_NET_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "base/philox.h"
#include "compute/numerics/net_draw.h"
#include "compute/numerics/scalar.h"

/* Natural logarithm of a normal, positive number, within 2 ulp. Cephes' logf: x = 2^e * (1 + m), m
 * from sqrt(1/2) - 1 to sqrt(2) - 1, then a polynomial in m. */
SCALAR_FN float scalar_log(float x)
{
    uint32_t bits = scalar_bits(x);
    float m = scalar_from_bits((bits & 0x007fffffu) | 0x3f000000u); /* [0.5, 1) */
    float e = (float)((int32_t)(bits >> 23) - 126), z, p;

    if (m < 0.707106781186547524f) {
        e -= 1.0f;
        m += m;
    }
    m -= 1.0f;
    z = m * m;
    p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * z;
    p = p + e * -2.12194440e-4f; /* ln 2 in two parts, as in scalar_exp */
    p = p - 0.5f * z;
    return m + p + e * 0.693359375f;
}

/* Within 1e-7, absolute. */
SCALAR_FN float scalar_tanh(float x)
{
    return 2.0f * scalar_sigmoid(2.0f * x) - 1.0f;
}

/* Numbers k … k + 3. Draws are words of Philox blocks by (block, step, row, 1 + layer); word 3 is 0
 * in counter_rng_uniform, so nothing is drawn twice. */
SCALAR_FN void net_four_dropout(const struct net_draw *d, uint32_t layer, float rate, size_t width,
                                size_t k, float *x)
{
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)(k / 4), d->step, d->row, 1 + layer};
    const uint32_t bound = (uint32_t)(rate * 0x1p24f); /* of 24 bits */
    const float scale = 1.0f / (1.0f - rate);
    uint32_t words[4];

    philox_block(counter, key, words);
    for (size_t w = 0; w < 4 && k + w < width; w++)
        x[k + w] = words[w] >> 8 >= bound ? x[k + w] * scale : 0.0f;
}

SCALAR_FN void net_row_dropout(const struct net_draw *d, uint32_t layer, float rate, size_t width,
                               float *x)
{
    for (size_t k = 0; d->drops && k < width; k += 4)
        net_four_dropout(d, layer, rate, width, k, x);
}

/* exp(in - greatest) into out, and their sum; at least 1. */
SCALAR_FN float net_row_exps(const float *in, size_t width, float *out, float *ret_greatest)
{
    float greatest = in[0], sum = 0.0f;

    for (size_t a = 1; a < width; a++)
        greatest = in[a] > greatest ? in[a] : greatest;
    for (size_t a = 0; a < width; a++) {
        out[a] = scalar_exp(in[a] - greatest);
        sum += out[a];
    }
    *ret_greatest = greatest;
    return sum;
}

SCALAR_FN void net_row_softmax(const float *in, size_t width, float *out)
{
    float greatest, sum = net_row_exps(in, width, out, &greatest);

    for (size_t a = 0; a < width; a++)
        out[a] = out[a] / sum;
}

SCALAR_FN void net_row_log_softmax(const float *in, size_t width, float *out)
{
    float greatest, log_sum = scalar_log(net_row_exps(in, width, out, &greatest));

    for (size_t a = 0; a < width; a++)
        out[a] = (in[a] - greatest) - log_sum;
}

SCALAR_FN void net_row_log_prob_backward(const float *logp, int32_t action, float weight,
                                         float entropy_weight, size_t width, float *dlogits)
{
    float negentropy = 0.0f;

    for (size_t a = 0; a < width; a++)
        negentropy += scalar_exp(logp[a]) * logp[a];
    for (size_t a = 0; a < width; a++) {
        float p = scalar_exp(logp[a]), chosen = (size_t)action == a ? 1.0f : 0.0f;

        dlogits[a] = weight * (chosen - p) + entropy_weight * (p * (logp[a] - negentropy));
    }
}

/* Number k of a cell. */
SCALAR_FN void net_one_lstm(float *gates, const float *from_h, const float *c_in, size_t width,
                            size_t k, float *c_out, float *h_out)
{
    float i = scalar_sigmoid(gates[k] + from_h[k]);
    float f = scalar_sigmoid(gates[width + k] + from_h[width + k]);
    float g = scalar_tanh(gates[2 * width + k] + from_h[2 * width + k]);
    float o = scalar_sigmoid(gates[3 * width + k] + from_h[3 * width + k]);
    float c = f * c_in[k] + i * g;

    gates[k] = i;
    gates[width + k] = f;
    gates[2 * width + k] = g;
    gates[3 * width + k] = o;
    c_out[k] = c;
    h_out[k] = o * scalar_tanh(c);
}

SCALAR_FN void net_row_lstm(float *gates, const float *from_h, const float *c_in, size_t width,
                            float *c_out, float *h_out)
{
    for (size_t k = 0; k < width; k++)
        net_one_lstm(gates, from_h, c_in, width, k, c_out, h_out);
}

SCALAR_FN void net_one_lstm_backward(const float *gates, const float *c_in, const float *c_out,
                                     const float *dh, size_t width, size_t k, float *dc,
                                     float *dgates)
{
    float i = gates[k], f = gates[width + k], g = gates[2 * width + k];
    float o = gates[3 * width + k], t = scalar_tanh(c_out[k]);
    float d = dc[k] + dh[k] * o * (1.0f - t * t);

    dgates[k] = d * g * i * (1.0f - i);
    dgates[width + k] = d * c_in[k] * f * (1.0f - f);
    dgates[2 * width + k] = d * i * (1.0f - g * g);
    dgates[3 * width + k] = dh[k] * t * o * (1.0f - o);
    dc[k] = d * f;
}

SCALAR_FN void net_row_lstm_backward(const float *gates, const float *c_in, const float *c_out,
                                     const float *dh, size_t width, float *dc, float *dgates)
{
    for (size_t k = 0; k < width; k++)
        net_one_lstm_backward(gates, c_in, c_out, dh, width, k, dc, dgates);
}

#endif
