/* The headers with the caller's quota, as in OpenAI's API: x-ratelimit-limit-requests,
 * -remaining-requests, -reset-requests, and the same for tokens. */
#ifndef SERVER_HTTP_RATE_LIMITS_H
#define SERVER_HTTP_RATE_LIMITS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct access_quota;

#define RATE_LIMITS_EXPOSED                                                                    \
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, " \
    "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"

/* Appends the header's lines to a response's head. A rate without a limit has none. EXHAUSTED
 * without memory. */
enum status rate_limits_append(struct buf *out, const struct access_quota *q,
                               uint64_t now_us) MUST_CHECK;

#endif
