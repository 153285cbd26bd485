/* The monotonic clock, to measure real time. Code whose clock a test sets takes an env
 * (base/env.h). Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail for this clock */
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double clock_s(void)
{
    return (double)clock_ns() * 1e-9;
}

static inline uint64_t clock_ms(void)
{
    return clock_ns() / 1000000;
}

#endif
