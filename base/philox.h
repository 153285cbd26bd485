/* Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11), test vectors
 * of Random123; for the host (counter_rng.h) and for a device's kernels. */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include <stdint.h>

#if defined(__CUDACC__)
#define PHILOX_FN static __host__ __device__ inline
#else
#define PHILOX_FN static inline
#endif

PHILOX_FN void philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t product1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += 0x9E3779B9u; /* Weyl: the golden ratio, and sqrt(3) - 1 */
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform in [0, 1), a multiple of 2^-24: 24 bits fit a float exactly. */
PHILOX_FN float philox_uniform(uint64_t seed, uint32_t turn, uint32_t position, uint32_t draw)
{
    const uint32_t counter[4] = {position, turn, draw, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];

    philox_block(counter, key, bits);
    return (float)(bits[0] >> 8) * 0x1p-24f;
}

#endif
