#include "base/counter_rng.h"

#include "tests/unit/base/suite.h"

/* Philox-4x32-10 gives Random123's published numbers (its kat_vectors). */
START_TEST(philox_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint32_t out[4];

        philox4x32(known[i].counter, known[i].key, out);
        for (int k = 0; k < 4; k++)
            ck_assert_uint_eq(out[k], known[i].want[k]);
    }
}
END_TEST

/* The number is the first word of the block at (position, turn, draw, 0) under the seed, its upper
 * 24 bits: replies are repeated by it, so it may never change. */
START_TEST(uniform_is_fixed)
{
    const uint64_t seed = 0x299f31d0a4093822;
    const uint32_t counter[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0};
    const uint32_t key[2] = {0xa4093822, 0x299f31d0};
    uint32_t out[4];
    float want;

    philox4x32(counter, key, out);
    want = (float)(out[0] >> 8) / 16777216.0f;
    ck_assert(counter_rng_uniform(seed, 0x85a308d3, 0x243f6a88, 0x13198a2e) == want);
    /* 0x6627e8 / 2^24, from the vector of zeros */
    ck_assert(counter_rng_uniform(0, 0, 0, 0) == 6694888.0f / 16777216.0f);
}
END_TEST

/* Every argument matters. */
START_TEST(arguments_matter)
{
    float at = counter_rng_uniform(1, 2, 3, 4);

    ck_assert(at == counter_rng_uniform(1, 2, 3, 4));
    ck_assert(at != counter_rng_uniform(2, 2, 3, 4));
    ck_assert(at != counter_rng_uniform(1 + (UINT64_C(1) << 32), 2, 3, 4));
    ck_assert(at != counter_rng_uniform(1, 3, 3, 4));
    ck_assert(at != counter_rng_uniform(1, 2, 4, 4));
    ck_assert(at != counter_rng_uniform(1, 2, 3, 5));
}
END_TEST

/* Numbers lie in [0, 1) and spread evenly: 16 bins of 65,536 numbers, chi-squared with 15 degrees
 * of freedom below 44.3 (p = 0.0001; the numbers are fixed, so this passes always or never). */
START_TEST(uniform_is_even)
{
    enum { N = 65536, N_BINS = 16 };
    int bins[N_BINS] = {0};
    double chi2 = 0;

    for (uint32_t i = 0; i < N; i++) {
        float x = counter_rng_uniform(42, 1, i, 0);

        ck_assert(x >= 0.0f && x < 1.0f);
        bins[(int)(x * N_BINS)]++;
    }
    for (int i = 0; i < N_BINS; i++) {
        double off = bins[i] - N / N_BINS;

        chi2 += off * off / (N / N_BINS);
    }
    ck_assert_double_lt(chi2, 44.3);
}
END_TEST

SUITE_MAIN("counter_rng", philox_known_answers, uniform_is_fixed, arguments_matter, uniform_is_even)
