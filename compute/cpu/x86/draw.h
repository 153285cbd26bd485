/* The draws of dropout.c in registers of AVX2 or AVX-512. Part of it. */
#ifndef COMPUTE_CPU_X86_DRAW_H
#define COMPUTE_CPU_X86_DRAW_H

#include <immintrin.h>

#include "base/counter_rng.h"
#include "compute/backend/net.h"

#if defined(__AVX512F__)
enum { WIDTH = 16, CHAINS = 2 };
#define WIDE __m512i
#define WIDE_OP(op) _mm512_##op
#define WIDE_ALL64(x) _mm512_set1_epi64(x)
#define ODD_OF(even, odd) _mm512_mask_blend_epi32(0xaaaa, even, odd)
#else
enum { WIDTH = 8, CHAINS = 2 };
#define WIDE __m256i
#define WIDE_OP(op) _mm256_##op
#define WIDE_ALL64(x) _mm256_set1_epi64x(x)
#define ODD_OF(even, odd) _mm256_blend_epi32(even, odd, 0xaa)
#endif

enum { BLOCKS = CHAINS * WIDTH, WORDS = 4 * BLOCKS };

/* The words of blocks block … block + BLOCKS - 1. */
static inline void multiply(WIDE a, uint32_t b, WIDE *ret_high, WIDE *ret_low)
{
    WIDE factor = WIDE_ALL64((long long)b);
    WIDE even = WIDE_OP(mul_epu32)(a, factor);
    WIDE odd = WIDE_OP(mul_epu32)(WIDE_OP(srli_epi64)(a, 32), factor);

    *ret_high = ODD_OF(WIDE_OP(srli_epi64)(even, 32), odd);
    *ret_low = ODD_OF(even, WIDE_OP(slli_epi64)(odd, 32));
}

static inline void dropout_draw(const struct net_draw *d, uint32_t layer, uint32_t block,
                                uint32_t words[WORDS])
{
    /* unpacking puts the blocks of lanes i, i + 4, … one after the other */
    static const uint32_t order[2][16] = {{0, 2, 4, 6, 1, 3, 5, 7},
                                          {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}};
    uint32_t k0 = (uint32_t)d->seed, k1 = (uint32_t)(d->seed >> 32);
    WIDE c0[CHAINS], c1[CHAINS], c2[CHAINS], c3[CHAINS];

    for (int i = 0; i < CHAINS; i++) {
        memcpy(&c0[i], order[WIDTH / 16], sizeof(c0[i]));
        c0[i] = WIDE_OP(add_epi32)(c0[i], WIDE_OP(set1_epi32)((int)block + i * WIDTH));
        c1[i] = WIDE_OP(set1_epi32)((int)d->step);
        c2[i] = WIDE_OP(set1_epi32)((int)d->row);
        c3[i] = WIDE_OP(set1_epi32)((int)(1 + layer));
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < CHAINS; i++) {
            WIDE high0, low0, high1, low1;

            multiply(c0[i], 0xD2511F53u, &high0, &low0);
            multiply(c2[i], 0xCD9E8D57u, &high1, &low1);
            c0[i] = high1 ^ c1[i] ^ WIDE_OP(set1_epi32)((int)k0);
            c1[i] = low1;
            c2[i] = high0 ^ c3[i] ^ WIDE_OP(set1_epi32)((int)k1);
            c3[i] = low0;
        }
    for (int i = 0; i < CHAINS; i++, words += 4 * WIDTH) {
        WIDE low = WIDE_OP(unpacklo_epi32)(c0[i], c1[i]);
        WIDE also_low = WIDE_OP(unpacklo_epi32)(c2[i], c3[i]);
        WIDE high = WIDE_OP(unpackhi_epi32)(c0[i], c1[i]);
        WIDE also_high = WIDE_OP(unpackhi_epi32)(c2[i], c3[i]);
        const WIDE done[4] = {
            WIDE_OP(unpacklo_epi64)(low, also_low), WIDE_OP(unpackhi_epi64)(low, also_low),
            WIDE_OP(unpacklo_epi64)(high, also_high), WIDE_OP(unpackhi_epi64)(high, also_high)};

        memcpy(words, done, sizeof(done));
    }
}

#endif
