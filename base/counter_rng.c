#include "base/counter_rng.h"

#include "base/philox.h"

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    philox_block(counter, key, out);
}

float counter_rng_uniform(uint64_t seed, uint32_t turn, uint32_t position, uint32_t draw)
{
    return philox_uniform(seed, turn, position, draw);
}
