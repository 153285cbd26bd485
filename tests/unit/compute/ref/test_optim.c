#include "compute/numerics/optim.h"

#include <math.h>

#include "tests/unit/base/suite.h"

/* Steps on one number with gradient 1 and rate 0.001 give known[step - 1]. */
static void check_sgd(const struct optim *o, float p, const double *known, size_t n)
{
    const float g = 1.0f;
    float m = 123.0f; /* its value before the first step does not matter */

    for (size_t step = 1; step <= n; step++) {
        optim_ref_step(o, step, 0.001f, &p, &g, &m, NULL, 1);
        ck_assert_double_eq_tol((double)p, known[step - 1], 1e-8);
    }
}

/* The momentum buffer begins as the gradient, and the rate is not part of it. */
START_TEST(momentum_gathers)
{
    const struct optim o = {.kind = OPTIM_SGD, .momentum = 0.9f};

    check_sgd(&o, 0.0f, (double[]){-0.001, -0.0029, -0.00561}, 3);
}
END_TEST

/* Dampening scales the gradient down from the second step on; nesterov looks one step ahead. */
START_TEST(dampening_and_nesterov)
{
    const struct optim damped = {.kind = OPTIM_SGD, .momentum = 0.9f, .dampening = 0.5f};
    const struct optim ahead = {.kind = OPTIM_SGD, .momentum = 0.9f, .nesterov = true};

    check_sgd(&damped, 0.0f, (double[]){-0.001, -0.0024}, 2);
    check_sgd(&ahead, 0.0f, (double[]){-0.0019, -0.00461}, 2);
}
END_TEST

/* Without momentum there is no buffer; decay shrinks the parameter. */
START_TEST(plain_and_decayed)
{
    const struct optim plain = {.kind = OPTIM_SGD};
    const struct optim decayed = {.kind = OPTIM_SGD, .weight_decay = 0.1f};
    const float g = 1.0f;
    float p = 1.0f;

    optim_ref_step(&plain, 1, 0.001f, &p, &g, NULL, NULL, 1);
    ck_assert_double_eq_tol((double)p, 0.999, 1e-7);
    p = 1.0f;
    optim_ref_step(&decayed, 1, 0.001f, &p, &g, NULL, NULL, 1);
    ck_assert_double_eq_tol((double)p, 1.0 - 0.001 * 1.1, 1e-7);
}
END_TEST

/* The formulas again, in double and by libm, over many steps with changing gradients. */
static void check_adam(enum optim_kind kind, float weight_decay)
{
    const struct optim o = {.kind = kind,
                            .weight_decay = weight_decay,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .epsilon = 1e-8f};
    const double lr = 0.01;
    float p = 1.0f, m = 0.0f, v = 0.0f;
    double want = 1.0, first = 0.0, second = 0.0;

    for (uint64_t step = 1; step <= 200; step++) {
        double g = sin((double)step) + 0.25, d;
        float given = (float)g;

        d = g + (kind == OPTIM_ADAM ? (double)weight_decay * want : 0.0);
        first = 0.9 * first + 0.1 * d;
        second = 0.999 * second + 0.001 * d * d;
        if (kind == OPTIM_ADAMW)
            want -= lr * (double)weight_decay * want;
        want -= lr * (first / (1.0 - pow(0.9, (double)step))) /
                (sqrt(second / (1.0 - pow(0.999, (double)step))) + 1e-8);
        optim_ref_step(&o, step, (float)lr, &p, &given, &m, &v, 1);
        ck_assert_double_eq_tol((double)p, want, 2e-5);
    }
}

START_TEST(adam_follows_the_formula)
{
    check_adam(OPTIM_ADAM, 0.0f);
    check_adam(OPTIM_ADAM, 0.1f);
}
END_TEST

/* Decay that is decoupled does not pass through the moments. */
START_TEST(adamw_follows_the_formula)
{
    check_adam(OPTIM_ADAMW, 0.0f);
    check_adam(OPTIM_ADAMW, 0.1f);
}
END_TEST

/* The first step of adam is the rate, whatever the gradient's size; a gradient of 0 moves
 * nothing. */
START_TEST(first_step_of_adam)
{
    const struct optim o = {.kind = OPTIM_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
    const float g[3] = {1e-3f, -40.0f, 0.0f};
    float p[3] = {0}, m[3] = {0}, v[3] = {0};

    optim_ref_step(&o, 1, 0.01f, p, g, m, v, 3);
    ck_assert_double_eq_tol((double)p[0], -0.01, 1e-6);
    ck_assert_double_eq_tol((double)p[1], 0.01, 1e-6);
    ck_assert(p[2] == 0.0f);
}
END_TEST

SUITE_MAIN("compute/ref_optim", momentum_gathers, dampening_and_nesterov, plain_and_decayed,
           adam_follows_the_formula, adamw_follows_the_formula, first_step_of_adam)
