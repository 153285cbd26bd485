#include "compute/numerics/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"

struct vector {
    enum dtype type;
    const uint8_t *in;
    size_t size_bytes;
    const uint32_t *out; /* [n] bits of floats */
    size_t n;
};

#include "tests/unit/compute/numerics/dtype_vectors.inc"

enum { N_VECTORS = sizeof(vectors) / sizeof(vectors[0]) };

static uint32_t bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static float from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

/* Each format's blocks decode to the bits of its definition, and nothing is read past them, at any
 * alignment. */
START_TEST(blocks_decode)
{
    for (size_t v = 0; v < N_VECTORS; v++) {
        const struct vector *want = &vectors[v];

        ck_assert_uint_eq(dtype_row_bytes(want->type, want->n), want->size_bytes);
        for (size_t shift = 0; shift < 2; shift++) {
            uint8_t *in = malloc(want->size_bytes + shift);
            float *out = calloc(want->n, sizeof(*out));

            memcpy(in + shift, want->in, want->size_bytes);
            dtype_decode(want->type, in + shift, want->n, out);
            for (size_t i = 0; i < want->n; i++)
                if (bits(out[i]) != want->out[i])
                    ck_abort_msg("%s value %zu is %a, not %a", dtype_name(want->type), i,
                                 (double)out[i], (double)from_bits(want->out[i]));
            free(out);
            free(in);
        }
    }
}
END_TEST

/* One Q4_K block, computed by hand: its groups' scales are their own numbers, the mins zero. */
START_TEST(q4_k_by_hand)
{
    uint8_t block[144] = {0x00, 0x3c}; /* scale 1.0, min 0.0 */
    float out[256];

    memcpy(block + 4, (const uint8_t[]){0, 1, 2, 3, 0, 0, 0, 0, 4, 5, 6, 7}, 12);
    memset(block + 16, 0x21, 128); /* low nibbles 1: even groups; high nibbles 2: odd groups */
    dtype_decode(DTYPE_Q4_K, block, 256, out);
    for (int i = 0; i < 256; i++)
        ck_assert(out[i] == (float)(i / 32 * (1 + i / 32 % 2)));
}
END_TEST

/* Names, blocks and bytes are those of GGUF, and no other number has a name. */
START_TEST(formats_are_ggufs)
{
    static const struct {
        enum dtype type;
        const char *name;
        size_t values, bytes;
    } formats[] = {
        {DTYPE_F32, "F32", 1, 4},           {DTYPE_F16, "F16", 1, 2},
        {DTYPE_Q4_0, "Q4_0", 32, 18},       {DTYPE_Q4_1, "Q4_1", 32, 20},
        {DTYPE_Q5_0, "Q5_0", 32, 22},       {DTYPE_Q5_1, "Q5_1", 32, 24},
        {DTYPE_Q8_0, "Q8_0", 32, 34},       {DTYPE_Q4_K, "Q4_K", 256, 144},
        {DTYPE_Q5_K, "Q5_K", 256, 176},     {DTYPE_Q6_K, "Q6_K", 256, 210},
        {DTYPE_BF16, "BF16", 1, 2},         {DTYPE_Q2_K, "Q2_K", 256, 84},
        {DTYPE_Q3_K, "Q3_K", 256, 110},     {DTYPE_IQ4_NL, "IQ4_NL", 32, 18},
        {DTYPE_IQ4_XS, "IQ4_XS", 256, 136}, {DTYPE_MXFP4, "MXFP4", 32, 17},
    };
    enum { N = sizeof(formats) / sizeof(formats[0]) };
    size_t n_named = 0;

    for (size_t i = 0; i < N; i++) {
        ck_assert_str_eq(dtype_name(formats[i].type), formats[i].name);
        ck_assert_uint_eq(dtype_block_values(formats[i].type), formats[i].values);
        ck_assert_uint_eq(dtype_block_bytes(formats[i].type), formats[i].bytes);
        ck_assert_uint_eq(dtype_row_bytes(formats[i].type, 768),
                          768 / formats[i].values * formats[i].bytes);
    }
    for (unsigned t = 0; t < 1000; t++)
        n_named += dtype_name((enum dtype)t) != NULL;
    ck_assert_uint_eq(n_named, N);
    ck_assert_ptr_null(dtype_name((enum dtype)UINT32_MAX));
}
END_TEST

/* Every half is the number of its three fields, and survives a round trip; a NaN becomes quiet. */
START_TEST(halves_go_round)
{
    for (uint32_t h = 0; h <= UINT16_MAX; h++) {
        int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 0x3ff);
        float f = f16_to_f32((uint16_t)h);
        double want = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);

        ck_assert_int_eq(signbit(f) != 0, (int)(h >> 15));
        if (exponent == 31 && fraction != 0) {
            ck_assert(isnan(f));
            ck_assert_uint_eq(f32_to_f16(f), h | 0x200);
            continue;
        }
        if (exponent == 31)
            ck_assert(isinf(f));
        else
            ck_assert(fabs((double)f) == want);
        ck_assert_uint_eq(f32_to_f16(f), h);
    }
}
END_TEST

/* Between two neighbouring halves, the nearer one is taken, and the even one from the middle. */
START_TEST(halves_round_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float low = f16_to_f32((uint16_t)h);
        /* the largest half's upper neighbour would be 65536, which is infinity's place */
        float high = h == 0x7bff ? 65536.0F : f16_to_f32((uint16_t)(h + 1));
        float middle = (low + high) / 2; /* exact: it has one bit more than they have */

        ck_assert_uint_eq(f32_to_f16(middle), h + (h & 1));
        ck_assert_uint_eq(f32_to_f16(nextafterf(middle, 0.0F)), h);
        ck_assert_uint_eq(f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        ck_assert_uint_eq(f32_to_f16(-middle), 0x8000 | (h + (h & 1)));
    }
    ck_assert_uint_eq(f32_to_f16(INFINITY), 0x7c00);
    ck_assert_uint_eq(f32_to_f16(-INFINITY), 0xfc00);
    ck_assert_uint_eq(f32_to_f16(0x1p127F), 0x7c00);
    ck_assert_uint_eq(f32_to_f16(0x1p-149F), 0);
    ck_assert_uint_eq(f32_to_f16(from_bits(0x7f800001)), 0x7e00); /* no NaN becomes infinity */
}
END_TEST

/* A bfloat16 is the upper half of a float's bits, whatever they are. */
START_TEST(bfloats_are_upper_halves)
{
    for (uint32_t h = 0; h <= UINT16_MAX; h++)
        ck_assert_uint_eq(bits(bf16_to_f32((uint16_t)h)), h << 16);
}
END_TEST

/* dtype_is_finite is true exactly where all decoded numbers are finite, for any bytes. */
START_TEST(finite_is_what_decodes_so)
{
    uint64_t chance = 1;

    for (unsigned type = 0; type < 64; type++) {
        size_t n_broken = 0, n_blocks = 4000, n, size;
        uint8_t block[256];
        float out[DTYPE_BLOCK_VALUES_MAX];

        if (dtype_name((enum dtype)type) == NULL)
            continue;
        n = dtype_block_values((enum dtype)type);
        size = dtype_block_bytes((enum dtype)type);
        ck_assert(n <= DTYPE_BLOCK_VALUES_MAX && size <= sizeof(block));
        for (size_t b = 0; b < n_blocks; b++) {
            bool is_finite = true;

            for (size_t i = 0; i < size; i++)
                block[i] = (uint8_t)((chance = chance * 6364136223846793005u + 1) >> 56);
            dtype_decode((enum dtype)type, block, n, out);
            for (size_t i = 0; i < n; i++)
                is_finite = is_finite && isfinite(out[i]);
            ck_assert_int_eq(dtype_is_finite((enum dtype)type, block, n), is_finite);
            n_broken += !is_finite;
        }
        ck_assert_uint_gt(n_broken, 0);
        ck_assert_uint_lt(n_broken, n_blocks / 2);
    }
}
END_TEST

SUITE_MAIN("compute/dtype", blocks_decode, q4_k_by_hand, formats_are_ggufs, halves_go_round,
           halves_round_to_nearest_even, bfloats_are_upper_halves, finite_is_what_decodes_so)
