#include "base/chance.h"

static void multiply(uint32_t a, uint32_t b, uint32_t *ret_high, uint32_t *ret_low)
{
    uint64_t product = (uint64_t)a * b;

    *ret_high = (uint32_t)(product >> 32);
    *ret_low = (uint32_t)product;
}

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint32_t high0, low0, high1, low1;

        multiply(0xD2511F53u, c0, &high0, &low0);
        multiply(0xCD9E8D57u, c2, &high1, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u; /* Weyl: the golden ratio, and sqrt(3) - 1 */
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

float chance_uniform(uint64_t seed, uint32_t turn, uint32_t position, uint32_t draw)
{
    const uint32_t counter[4] = {position, turn, draw, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];

    philox4x32(counter, key, bits);
    return (float)(bits[0] >> 8) * 0x1p-24f; /* 24 bits fit a float exactly */
}
