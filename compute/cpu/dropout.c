/* Dropout by the same draws as net_row_dropout, many Philox blocks (base/counter_rng.c) in
 * parallel: a vector's width of them, in two chains, since each round waits for the one before. */
#include "base/counter_rng.h"
#include "compute/backend/net.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"

#if defined(__AVX2__)
#include "compute/cpu/x86/draw.h"
#else

enum { BLOCKS = 16, WORDS = 4 * BLOCKS };

/* The words of blocks block … block + BLOCKS - 1. */
static void dropout_draw(const struct net_draw *d, uint32_t layer, uint32_t block,
                         uint32_t words[WORDS])
{
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};

    for (uint32_t i = 0; i < BLOCKS; i++)
        philox4x32((const uint32_t[4]){block + i, d->step, d->row, 1 + layer}, key, words + 4 * i);
}

#endif

void FLOAT_NAME(dropout)(const struct net_draw *d, uint32_t layer, float rate, size_t width,
                         float *x)
{
    const uint32_t bound = (uint32_t)(rate * 0x1p24f);
    const float scale = 1.0f / (1.0f - rate);
    uint32_t words[WORDS];

    for (size_t k = 0; k < width; k += WORDS) {
        size_t n = width - k < WORDS ? width - k : WORDS;

        dropout_draw(d, layer, (uint32_t)(k / 4), words);
        for (size_t i = 0; i < n; i++)
            x[k + i] = words[i] >> 8 >= bound ? x[k + i] * scale : 0.0f;
    }
}
