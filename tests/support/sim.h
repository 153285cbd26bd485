/* The clock of a simulation, turned by hand, and its chance, which its seed alone decides. One of a
 * program. */
#ifndef TESTS_SUPPORT_SIM_H
#define TESTS_SUPPORT_SIM_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/env.h"

static struct sim {
    uint64_t seed, chance, now_us;
} sim;

static inline void sim_start(uint64_t seed)
{
    sim =
        (struct sim){.seed = seed, .chance = seed * UINT64_C(0x9e3779b97f4a7c15) | 1, .now_us = 1};
}

/* Ends the program: a schedule is run again by its seed. */
#define MUST(what) ((what) ? (void)0 : sim_fail(#what, __LINE__))

static inline void sim_fail(const char *what, int line)
{
    printf("seed %" PRIu64 ", line %d: %s\n", sim.seed, line, what);
    (void)fflush(stdout);
    abort();
}

static inline unsigned pick(unsigned n)
{
    sim.chance ^= sim.chance << 13;
    sim.chance ^= sim.chance >> 7;
    sim.chance ^= sim.chance << 17;
    return (unsigned)(sim.chance >> 33) % n;
}

static inline uint64_t sim_now(void *self)
{
    return sim.now_us;
}

static inline void sim_random(void *self, void *out, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        ((unsigned char *)out)[i] = (unsigned char)pick(256);
}

static const struct env sim_env = {.now_us = sim_now, .random = sim_random};

#endif
