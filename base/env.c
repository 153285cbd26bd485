#include "base/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static uint64_t now_us(void *self)
{
    struct timespec t;

    (void)self;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail with this clock */
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void take_random(void *self, void *out, size_t n_bytes)
{
    unsigned char *at = out;

    (void)self;
    while (n_bytes > 0) {
        ssize_t n = getrandom(at, n_bytes, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            /* Ids that can be guessed are worse than no daemon. */
            (void)fputs("the kernel gives no random bytes\n", stderr);
            abort();
        }
        at += n;
        n_bytes -= (size_t)n;
    }
}

const struct env env_real = {.now_us = now_us, .random = take_random};
