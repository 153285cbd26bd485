#include "agents/policy/head.h"

#include <math.h>

#include "base/counter_rng.h"
#include "base/real.h"
#include "compute/numerics/net_rows.h"

/* Draws of a step: 0 chooses among actions, 2 and 3 are of exploration, from 4 on two for each
 * number of an action. 1 is of the parameters' draw. */
enum { DRAW_CHOICE = 0, DRAW_NUMBERS = 4 };

static const float log_std_min = -5.0f, log_std_max = 2.0f;
static const float half_log_2pi = 0.918938533204672742f;

size_t head_n_outputs(const struct policy_spec *s)
{
    return s->head == POLICY_GAUSSIAN ? 2 * s->n_actions : s->n_actions;
}

size_t head_greatest(const float *x, size_t n)
{
    size_t best = 0;

    for (size_t a = 1; a < n; a++)
        best = x[a] > x[best] ? a : best;
    return best;
}

size_t head_draw_choice(const float *logp, size_t n, const struct net_draw *draw)
{
    float drawn = counter_rng_uniform(draw->seed, draw->row, draw->step, DRAW_CHOICE), sum = 0.0f;

    for (size_t a = 0; a + 1 < n; a++) {
        sum += scalar_exp(logp[a]);
        if (drawn < sum)
            return a;
    }
    return n - 1;
}

static float clamped_log_std(float x)
{
    return fminf(fmaxf(x, log_std_min), log_std_max);
}

/* Box and Muller's; the first number drawn is turned into (0, 1]. */
static float head_draw_normal(const struct net_draw *d, uint32_t which)
{
    float one = 1.0f - counter_rng_uniform(d->seed, d->row, d->step, which);
    float two = counter_rng_uniform(d->seed, d->row, d->step, which + 1);

    return sqrtf(-2.0f * scalar_log(one)) * (float)real_cos(2 * M_PI * (double)two);
}

void head_draw_numbers(const float *outputs, size_t n, const struct net_draw *draw, float *out)
{
    for (size_t k = 0; k < n; k++) {
        out[k] = outputs[k];
        if (draw != NULL)
            out[k] += scalar_exp(clamped_log_std(outputs[n + k])) *
                      head_draw_normal(draw, (uint32_t)(DRAW_NUMBERS + 2 * k));
    }
}

float head_gaussian_logp(const float *outputs, size_t n, const float *numbers)
{
    float sum = 0.0f;

    for (size_t k = 0; k < n; k++) {
        float log_std = clamped_log_std(outputs[n + k]);
        float z = (numbers[k] - outputs[k]) * scalar_exp(-log_std);

        sum += -0.5f * z * z - log_std - half_log_2pi;
    }
    return sum;
}

double head_gaussian_entropy(const float *outputs, size_t n)
{
    double sum = 0;

    for (size_t k = 0; k < n; k++)
        sum += (double)clamped_log_std(outputs[n + k]) + 0.5 + (double)half_log_2pi;
    return sum;
}

void head_gaussian_backward(const float *outputs, size_t n, const float *numbers, float weight,
                            float entropy_weight, float *doutputs)
{
    for (size_t k = 0; k < n; k++) {
        float log_std = clamped_log_std(outputs[n + k]);
        float inverse = scalar_exp(-log_std), z = (numbers[k] - outputs[k]) * inverse;

        doutputs[k] = weight * z * inverse;
        doutputs[n + k] =
            log_std == outputs[n + k] ? weight * (z * z - 1.0f) - entropy_weight : 0.0f;
    }
}

static float mean_of(const float *x, size_t n)
{
    float sum = 0.0f;

    for (size_t a = 0; a < n; a++)
        sum += x[a];
    return sum / (float)n;
}

float head_duelling_q(const float *advantages, size_t n, float value, size_t action)
{
    return value + (advantages[action] - mean_of(advantages, n));
}

void head_duelling_backward(size_t n, size_t action, float dq, float *dadvantages)
{
    for (size_t a = 0; a < n; a++)
        dadvantages[a] = dq * ((a == action ? 1.0f : 0.0f) - 1.0f / (float)n);
}
