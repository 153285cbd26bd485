/* A counter-based random number generator: the number at (seed, turn, position, draw) is always the
 * same, in any order of calls. Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC11), test vectors of Random123. */
#ifndef BASE_COUNTER_RNG_H
#define BASE_COUNTER_RNG_H

#include <stdint.h>

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Uniform in [0, 1), a multiple of 2^-24. */
float counter_rng_uniform(uint64_t seed, uint32_t turn, uint32_t position, uint32_t draw);

#endif
