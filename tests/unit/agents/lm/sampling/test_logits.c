#include "agents/lm/sampling/logits.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter_rng.h"
#include "compute/numerics/scalar.h"
#include "tests/unit/base/suite.h"

enum { N = LOGITS_BLOCK };

static const size_t lengths[] = {1, 15, 16, 63, 64, 65, 200, 1000, N};

static void fill(float *x, size_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = floorf(counter_rng_uniform(seed, 1, i, 0) * 4000) / 16 - 120; /* some are equal */
}

/* The highest is found at any place, also if it occurs twice or among -inf. */
START_TEST(highest_is_the_highest)
{
    const struct logit_kernels *p;
    float x[N];

    for (size_t set = 0; (p = logit_kernels_at(set)) != NULL; set++)
        for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++)
            for (size_t at = 0; at < lengths[k]; at += 1 + at / 3) {
                fill(x, lengths[k], (uint32_t)at);
                x[lengths[k] - 1 - at] = -INFINITY;
                x[at] = 200.5f;
                ck_assert(p->highest(x, lengths[k]) == 200.5f);
                x[at] = -INFINITY;
                ck_assert(p->highest(x, 1 + at / 2) <= 130.0f);
            }
}
END_TEST

/* One value that is not finite is noticed at any place. */
START_TEST(all_must_be_finite)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const struct logit_kernels *p;
    float x[N];

    for (size_t set = 0; (p = logit_kernels_at(set)) != NULL; set++)
        for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
            fill(x, lengths[k], 5);
            ck_assert(p->are_finite(x, lengths[k]));
            for (size_t at = 0; at < lengths[k]; at++) {
                float good = x[at];

                x[at] = bad[at % 3];
                ck_assert(!p->are_finite(x, lengths[k]));
                x[at] = good;
            }
        }
}
END_TEST

/* find_from returns exactly the first group with a value of at least the bound. */
START_TEST(groups_are_found)
{
    const struct logit_kernels *p;
    float x[N] = {0};

    for (size_t set = 0; (p = logit_kernels_at(set)) != NULL; set++) {
        ck_assert_uint_eq(p->find_from(x, N, 0, 1.0f), N);
        ck_assert_uint_eq(p->find_from(x, N, 0, 0.0f), 0);
        ck_assert_uint_eq(p->find_from(x, N - 1, 0, 1.0f), N - LOGITS_GROUP); /* incomplete */
        for (size_t at = 0; at < N; at++) {
            x[at] = 1.0f;
            ck_assert_uint_eq(p->find_from(x, N, 0, 1.0f), at / LOGITS_GROUP * LOGITS_GROUP);
            ck_assert_uint_eq(p->find_from(x, N, at, 1.0f), at);
            if (at + 1 + LOGITS_GROUP < N)
                ck_assert_uint_gt(p->find_from(x, N, at + 1, 1.0f), N - LOGITS_GROUP);
            x[at] = 0.0f;
        }
    }
}
END_TEST

/* Weights and sums are scalar.h's, bit for bit, in every set. */
START_TEST(bits_are_the_same_in_every_set)
{
    const struct logit_kernels *p;
    float x[N], got[N];

    for (size_t set = 0; (p = logit_kernels_at(set)) != NULL; set++)
        for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
            float lanes[SCALAR_LANES] = {0}, sum;

            fill(x, lengths[k], (uint32_t)k);
            x[0] = -INFINITY;
            memcpy(got, x, sizeof(got));
            p->weigh(got, lengths[k], 130.0f, 1.25f, 1e-13f);
            for (size_t i = 0; i < lengths[k]; i++) {
                float e = scalar_exp((x[i] - 130.0f) * 1.25f), want = e > 1e-13f ? e : 0.0f;

                ck_assert_mem_eq(&got[i], &want, sizeof(want));
                lanes[i % SCALAR_LANES] += want;
            }
            sum = p->sum(got, lengths[k]);
            ck_assert(sum == scalar_sum_lanes(lanes));
        }
}
END_TEST

/* PARLEY_CPU names a set; an unknown name leaves the best. */
START_TEST(the_environment_chooses)
{
    ck_assert_int_eq(setenv("PARLEY_CPU", "generic", 1), 0);
    ck_assert_str_eq(logit_kernels_choose()->name, "generic");
    ck_assert_int_eq(setenv("PARLEY_CPU", "sse9", 1), 0);
    ck_assert_ptr_eq(logit_kernels_choose(), logit_kernels_at(0));
    ck_assert_int_eq(unsetenv("PARLEY_CPU"), 0);
    ck_assert_ptr_eq(logit_kernels_choose(), logit_kernels_at(0));
}
END_TEST

SUITE_MAIN("logits", highest_is_the_highest, all_must_be_finite, groups_are_found,
           bits_are_the_same_in_every_set, the_environment_chooses)
