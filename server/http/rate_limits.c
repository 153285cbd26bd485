#include "server/http/rate_limits.h"

#include <inttypes.h>
#include <stdio.h>

#include "server/access/quota.h"

/* As Go writes durations, which OpenAI's clients read: "0s", "120ms", "7.66s", "6m0s". */
static void format_duration(char out[40], uint64_t us)
{
    uint64_t ms = us / 1000 + (us % 1000 != 0), s = ms / 1000;

    if (ms != 0 && ms < 1000)
        (void)snprintf(out, 40, "%" PRIu64 "ms", ms);
    else if (s < 60 && ms % 1000 != 0)
        (void)snprintf(out, 40, "%" PRIu64 ".%03us", s, (unsigned)(ms % 1000));
    else if (s < 60)
        (void)snprintf(out, 40, "%" PRIu64 "s", s);
    else
        (void)snprintf(out, 40, "%" PRIu64 "m%us", (s + (ms % 1000 != 0)) / 60,
                       (unsigned)((s + (ms % 1000 != 0)) % 60));
}

static enum status append_rate(struct buf *out, const struct quota_rate *r, const char *of,
                               uint64_t now_us)
{
    struct quota_rest rest = quota_rate_rest(r, now_us);
    char reset[40];

    if (rest.limit == 0)
        return STATUS_OK;
    format_duration(reset, rest.reset_us);
    return buf_printf(out,
                      "x-ratelimit-limit-%s: %" PRIu32 "\r\nx-ratelimit-remaining-%s: %" PRIu32
                      "\r\nx-ratelimit-reset-%s: %s\r\n",
                      of, rest.limit, of, rest.remaining, of, reset);
}

enum status rate_limits_append(struct buf *out, const struct access_quota *q, uint64_t now_us)
{
    enum status rc = append_rate(out, &q->requests, "requests", now_us);

    return rc == STATUS_OK ? append_rate(out, &q->tokens, "tokens", now_us) : rc;
}
