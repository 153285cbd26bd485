/* Time and random numbers, passed in so that a test can set the clock. */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stddef.h>
#include <stdint.h>

struct env {
    uint64_t (*now_us)(void *self);                        /* monotonic */
    void (*random)(void *self, void *out, size_t n_bytes); /* unpredictable in the real one */
    void *self;
};

/* CLOCK_MONOTONIC and the kernel's generator. Any thread. */
extern const struct env env_real;

static inline uint64_t env_now_us(const struct env *e)
{
    return e->now_us(e->self);
}

static inline uint64_t env_now_ms(const struct env *e)
{
    return e->now_us(e->self) / 1000;
}

#endif
