#include "server/http/rate_limits.h"

#include <check.h>

#include "server/access/quota.h"
#include "tests/unit/base/suite.h"

static struct error err;

/* The lines after so many tokens were used. */
static void says(struct quota_limits limits, uint64_t n_tokens, const char *lines)
{
    struct access_quota q = {0};
    struct quota_hold hold = {0};
    struct buf out;

    quota_configure(&q, &limits, 1);
    if (n_tokens > 0)
        ck_assert_int_eq(quota_take(&hold, &q, 1, 1, n_tokens, &err), STATUS_OK);
    buf_init(&out, 4096);
    ck_assert_int_eq(rate_limits_append(&out, &q, 1), STATUS_OK);
    ck_assert_int_eq(buf_append(&out, "", 1), STATUS_OK);
    ck_assert_str_eq(out.data, lines);
    buf_deinit(&out);
}

/* A rate without a limit has no lines; durations are as Go writes them. */
START_TEST(tells)
{
    says((struct quota_limits){.tokens_in_flight = 5, .conversations = 5}, 1, "");
    says((struct quota_limits){.requests_per_minute = 60}, 0,
         "x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 60\r\n"
         "x-ratelimit-reset-requests: 0s\r\n");
    says((struct quota_limits){.requests_per_minute = 60, .tokens_per_minute = 1000}, 10,
         "x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 59\r\n"
         "x-ratelimit-reset-requests: 1s\r\n"
         "x-ratelimit-limit-tokens: 1000\r\nx-ratelimit-remaining-tokens: 990\r\n"
         "x-ratelimit-reset-tokens: 600ms\r\n");
    says((struct quota_limits){.tokens_per_minute = 1000}, 126,
         "x-ratelimit-limit-tokens: 1000\r\nx-ratelimit-remaining-tokens: 874\r\n"
         "x-ratelimit-reset-tokens: 7.560s\r\n");
    says((struct quota_limits){.tokens_per_minute = 1000}, 1000,
         "x-ratelimit-limit-tokens: 1000\r\nx-ratelimit-remaining-tokens: 0\r\n"
         "x-ratelimit-reset-tokens: 1m0s\r\n");
}
END_TEST

SUITE_MAIN("server/rate_limits", tells)
