/* Dropout by the same draws as net_row_dropout: eight Philox blocks (base/chance.c) side by side.
 */
#include "base/chance.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"
#include "compute/net.h"

enum { BLOCKS = 8, WORDS = 4 * BLOCKS };

/* The words of blocks block … block + BLOCKS - 1. */
#if defined(__AVX2__)

static inline void multiply(__m256i a, uint32_t b, __m256i *ret_high, __m256i *ret_low)
{
    __m256i factor = _mm256_set1_epi64x((long long)b);
    __m256i even = _mm256_mul_epu32(a, factor);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);

    *ret_high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *ret_low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

static inline void draw(const struct net_draw *d, uint32_t layer, uint32_t block,
                        uint32_t words[WORDS])
{
    __m256i c0 =
        _mm256_add_epi32(_mm256_set1_epi32((int)block), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i c1 = _mm256_set1_epi32((int)d->step), c2 = _mm256_set1_epi32((int)d->row);
    __m256i c3 = _mm256_set1_epi32((int)(1 + layer)), low, high, even, odd;
    uint32_t k0 = (uint32_t)d->seed, k1 = (uint32_t)(d->seed >> 32);

    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        __m256i high0, low0, high1, low1;

        multiply(c0, 0xD2511F53u, &high0, &low0);
        multiply(c2, 0xCD9E8D57u, &high1, &low1);
        c0 = _mm256_xor_si256(_mm256_xor_si256(high1, c1), _mm256_set1_epi32((int)k0));
        c1 = low1;
        c2 = _mm256_xor_si256(_mm256_xor_si256(high0, c3), _mm256_set1_epi32((int)k1));
        c3 = low0;
    }
    /* four words of each block, one behind the other */
    low = _mm256_unpacklo_epi32(c0, c1);
    high = _mm256_unpacklo_epi32(c2, c3);
    even = _mm256_unpacklo_epi64(low, high); /* blocks 0 and 4 */
    odd = _mm256_unpackhi_epi64(low, high);  /* 1 and 5 */
    _mm256_storeu_si256((__m256i *)words, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(words + 16), _mm256_permute2x128_si256(even, odd, 0x31));
    low = _mm256_unpackhi_epi32(c0, c1);
    high = _mm256_unpackhi_epi32(c2, c3);
    even = _mm256_unpacklo_epi64(low, high); /* 2 and 6 */
    odd = _mm256_unpackhi_epi64(low, high);  /* 3 and 7 */
    _mm256_storeu_si256((__m256i *)(words + 8), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(words + 24), _mm256_permute2x128_si256(even, odd, 0x31));
}

#else

static void draw(const struct net_draw *d, uint32_t layer, uint32_t block, uint32_t words[WORDS])
{
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};

    for (uint32_t i = 0; i < BLOCKS; i++)
        philox4x32((const uint32_t[4]){block + i, d->step, d->row, 1 + layer}, key, words + 4 * i);
}

#endif

void ISA_NAME(dropout)(const struct net_draw *d, uint32_t layer, float rate, size_t width, float *x)
{
    const uint32_t bound = (uint32_t)(rate * 0x1p24f);
    const float scale = 1.0f / (1.0f - rate);
    uint32_t words[WORDS];

    for (size_t k = 0; k < width; k += WORDS) {
        size_t n = width - k < WORDS ? width - k : WORDS;

        draw(d, layer, (uint32_t)(k / 4), words);
        for (size_t i = 0; i < n; i++)
            x[k + i] = words[i] >> 8 >= bound ? x[k + i] * scale : 0.0f;
    }
}
