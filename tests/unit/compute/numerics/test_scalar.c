#include "compute/numerics/scalar.h"

#include <float.h>
#include <math.h>

#include "tests/unit/base/suite.h"

/* e^x is within one unit in the last place, all over its range. */
START_TEST(exp_is_near)
{
    for (float x = -87.0f; x <= 88.0f; x += 1e-3f) {
        double known = exp((double)x);
        double unit = (double)(nextafterf((float)known, INFINITY) - (float)known);

        ck_assert_double_le(fabs((double)scalar_exp(x) - known), unit);
    }
    ck_assert(scalar_exp(0.0f) == 1.0f);
}
END_TEST

/* 2^(x * scale) for x not above 0 is within a relative 2e-7; whole numbers are exact, lower ones
 * are clamped to the end of the range, and NaN is not hidden. */
START_TEST(exp2_below_is_near)
{
    static const float scales[] = {1.0f, 0.18033688f, 11.5f};

    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i++)
        for (float y = -125.0f; y <= 0.0f; y += 1e-3f) {
            float x = y / scales[i];
            double known = exp2((double)x * (double)scales[i]);

            ck_assert_double_le(fabs((double)scalar_exp2_below(x, scales[i]) - known),
                                2e-7 * known);
        }
    for (int n = -125; n <= 0; n++)
        ck_assert(scalar_exp2_below((float)n, 1.0f) == ldexpf(1.0f, n));
    ck_assert(scalar_exp2_below(-INFINITY, 1.0f) == scalar_exp2_below(-125.0f, 1.0f));
    ck_assert(scalar_exp2_below(-FLT_MAX, 11.5f) >= FLT_MIN);
    ck_assert(isnan(scalar_exp2_below(NAN, 1.0f)));
}
END_TEST

/* Beyond its range the result is clamped, finite and normal; NaN is not hidden. */
START_TEST(exp_is_held_in_range)
{
    ck_assert(scalar_exp(-1e30f) == scalar_exp(-87.0f));
    ck_assert(scalar_exp(-INFINITY) == scalar_exp(-87.0f));
    ck_assert(scalar_exp(INFINITY) == scalar_exp(88.0f));
    ck_assert(isnormal(scalar_exp(-87.0f)) && isnormal(scalar_exp(88.0f)));
    ck_assert(isnan(scalar_exp(NAN)));
}
END_TEST

/* The bits themselves, so that a compiler or processor that computes others is detected. */
START_TEST(exp_has_known_bits)
{
    static const struct {
        float x;
        uint32_t bits;
    } known[] = {
        {1.0f, 0x402df854},   {-1.0f, 0x3ebc5ab2}, {0.1f, 0x3f8d763e},
        {-20.5f, 0x30abd1d8}, {87.3f, 0x7e76d06e}, {-86.9f, 0x00c60f89},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        ck_assert_uint_eq(scalar_bits(scalar_exp(known[i].x)), known[i].bits);
}
END_TEST

/* sigmoid(0) is a half, sigmoid(-x) = 1 - sigmoid(x), and the ends are 0 and 1. */
START_TEST(sigmoid_is_symmetric)
{
    ck_assert(scalar_sigmoid(0.0f) == 0.5f);
    for (float x = 0.0f; x < 20.0f; x += 0.37f)
        ck_assert_float_eq_tol(scalar_sigmoid(-x), 1.0f - scalar_sigmoid(x), 1e-7f);
    ck_assert(scalar_sigmoid(100.0f) == 1.0f);
    ck_assert_float_eq_tol(scalar_sigmoid(-100.0f), 0.0f, 1e-37f);
}
END_TEST

/* x * sigmoid(x) is within a relative 2e-6 inside the clamped range; beyond it is x, or almost
 * 0. */
START_TEST(silu_is_near)
{
    for (float x = -86.0f; x < 86.0f; x += 1e-3f) {
        double known = (double)x / (1.0 + exp(-(double)x));

        ck_assert_double_le(fabs((double)scalar_silu(x) - known), 2e-6 * fabs(known));
    }
    ck_assert(scalar_silu(0.0f) == 0.0f && scalar_silu(1e30f) == 1e30f);
    ck_assert_float_eq_tol(scalar_silu(-1e30f), 0.0f, 1e-6f);
    ck_assert_float_eq_tol(scalar_silu(-200.0f), 0.0f, 1e-30f);
    ck_assert(isnan(scalar_silu(NAN)));
}
END_TEST

/* Halves are folded onto one another: 0 with 8, then with 4, with 2, with 1. Numbers of very
 * different size distinguish this order from any other. */
START_TEST(lanes_are_summed_in_pairs)
{
    float lanes[SCALAR_LANES] = {0};

    lanes[0] = 1e20f;
    lanes[8] = -1e20f; /* added to lane 0 first: nothing is lost */
    lanes[4] = 3.0f;
    ck_assert(scalar_sum_lanes(lanes) == 3.0f);
    lanes[8] = 0.0f;
    lanes[4] = -1e20f;
    lanes[12] = 3.0f; /* added to lane 4 first, and lost in rounding */
    ck_assert(scalar_sum_lanes(lanes) == 0.0f);
}
END_TEST

SUITE_MAIN("compute/scalar", exp_is_near, exp2_below_is_near, exp_is_held_in_range,
           exp_has_known_bits, sigmoid_is_symmetric, silu_is_near, lanes_are_summed_in_pairs)
