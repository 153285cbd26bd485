/* When a request that has failed is tried again. */
#ifndef BASE_FETCH_RETRY_H
#define BASE_FETCH_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { RETRY_TRIES = 6, RETRY_FIRST_MS = 250, RETRY_LONGEST_WAIT_S = 60 };

struct fetch_retry {
    unsigned n_failures; /* since the last progress */
};

/* Counts a failure. Returns whether another try may help, and *ret_delay_ms before it. after_s is
 * what the server asked for; 0: nothing. */
static inline bool fetch_retry_again(struct fetch_retry *r, const struct error *err,
                                     uint64_t after_s, uint64_t *ret_delay_ms)
{
    if (err->status != STATUS_UNAVAILABLE || ++r->n_failures >= RETRY_TRIES ||
        after_s > RETRY_LONGEST_WAIT_S)
        return false;
    *ret_delay_ms = after_s > 0 ? after_s * 1000 : (uint64_t)RETRY_FIRST_MS << (r->n_failures - 1);
    return true;
}

#endif
