#include "base/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

enum { REST_BYTES = 512 };

static uint64_t env_real_now_us(void *self)
{
    return clock_ns() / 1000;
}

static void ask_kernel(void *out, size_t n_bytes)
{
    unsigned char *at = out;

    while (n_bytes > 0) {
        ssize_t n = getrandom(at, n_bytes, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            /* Ids that can be guessed are worse than a stopped daemon. */
            (void)fputs("the kernel returned no random bytes\n", stderr);
            abort();
        }
        at += n;
        n_bytes -= (size_t)n;
    }
}

/* One call of the kernel returns bytes for many ids. Each thread has its own buffer, so none waits
 * for another; used bytes are wiped, so that they cannot be read from memory later. A child of
 * fork() without exec would draw the same bytes; this program never does that. */
static void take_random(void *self, void *out, size_t n_bytes)
{
    static _Thread_local unsigned char rest[REST_BYTES];
    static _Thread_local size_t n_left;

    if (n_bytes > sizeof(rest)) {
        ask_kernel(out, n_bytes);
        return;
    }
    if (n_left < n_bytes) {
        ask_kernel(rest, sizeof(rest));
        n_left = sizeof(rest);
    }
    n_left -= n_bytes;
    memcpy(out, rest + n_left, n_bytes);
    explicit_bzero(rest + n_left, n_bytes);
}

const struct env env_real = {.now_us = env_real_now_us, .random = take_random};
