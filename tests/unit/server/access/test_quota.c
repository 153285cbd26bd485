#include "server/access/quota.h"

#include <check.h>

#include "tests/unit/base/suite.h"

enum { SECOND_US = 1000000 };

static const uint64_t start_us = UINT64_C(1) << 40;
static struct access_quota q;
static struct error err;

static void configure(struct quota_limits limits)
{
    q = (struct access_quota){0};
    quota_configure(&q, &limits, start_us);
}

static enum status take(struct quota_hold *hold, uint64_t now_us, uint64_t n)
{
    *hold = (struct quota_hold){0};
    return quota_take(hold, &q, now_us, 1, n, &err);
}

/* A minute's requests may come at once; then one comes back after its part of a minute, and the
 * refusal says exactly when. */
START_TEST(bounds_requests)
{
    struct quota_hold hold;
    uint64_t now_us = start_us;

    configure((struct quota_limits){.requests_per_minute = 60});
    for (int i = 0; i < 60; i++)
        ck_assert_int_eq(take(&hold, now_us, 1), STATUS_OK);
    ck_assert_int_eq(take(&hold, now_us, 1), STATUS_EXHAUSTED);
    ck_assert_int_eq(err.reason, REASON_QUOTA_EXCEEDED);
    ck_assert_uint_eq(err.retry_after_ms, 1000);
    now_us += SECOND_US / 4;
    ck_assert_int_eq(quota_check(&q, now_us, 1, &err), STATUS_EXHAUSTED);
    ck_assert_uint_eq(err.retry_after_ms, 750);
    now_us += 750 * 1000;
    ck_assert_int_eq(take(&hold, now_us, 1), STATUS_OK);
    ck_assert_int_eq(take(&hold, now_us, 1), STATUS_EXHAUSTED);
    ck_assert_int_eq(take(&hold, now_us + 60 * SECOND_US, 1), STATUS_OK);
}
END_TEST

/* A reply may overdraw the minute: what comes next waits until it is made good. */
START_TEST(counts_replies)
{
    struct quota_hold hold, other;

    configure((struct quota_limits){.tokens_per_minute = 600});
    ck_assert_int_eq(take(&hold, start_us, 100), STATUS_OK);
    quota_generated(&hold, start_us, 400);
    quota_generated(&hold, start_us, 400); /* told twice, counted once */
    ck_assert_uint_eq(quota_rate_rest(&q.tokens, start_us).remaining, 100);
    ck_assert_int_eq(take(&other, start_us, 101), STATUS_EXHAUSTED);
    ck_assert_uint_eq(err.retry_after_ms, 100);
    quota_generated(&hold, start_us, 1100);
    quota_release(&hold);
    quota_release(&hold);
    ck_assert_uint_eq(q.n_in_flight, 0);
    ck_assert_uint_eq(quota_rate_rest(&q.tokens, start_us).remaining, 0);
    ck_assert_uint_eq(quota_rate_rest(&q.tokens, start_us).reset_us, 120 * SECOND_US);
    ck_assert_int_eq(take(&other, start_us, 10), STATUS_EXHAUSTED);
    ck_assert_uint_eq(err.retry_after_ms, 61000);
    ck_assert_int_eq(take(&other, start_us + 61 * SECOND_US, 10), STATUS_OK);
}
END_TEST

/* A prompt that is above the limit itself would never be taken: waiting does not help it. */
START_TEST(refuses_what_never_fits)
{
    struct quota_hold hold;

    configure((struct quota_limits){.tokens_per_minute = 100});
    ck_assert_int_eq(take(&hold, start_us, 101), STATUS_RANGE);
    ck_assert_int_eq(err.reason, REASON_QUOTA_EXCEEDED);
    ck_assert_int_eq(take(&hold, start_us, 100), STATUS_OK);
    configure((struct quota_limits){.tokens_in_flight = 100});
    ck_assert_int_eq(take(&hold, start_us, 101), STATUS_RANGE);
}
END_TEST

/* Tokens in flight are those of turns that have not ended. */
START_TEST(bounds_in_flight)
{
    struct quota_hold a, b;

    configure((struct quota_limits){.tokens_in_flight = 100});
    ck_assert_int_eq(take(&a, start_us, 60), STATUS_OK);
    ck_assert_int_eq(take(&b, start_us, 41), STATUS_EXHAUSTED);
    ck_assert_uint_gt(error_retry_ms(&err), 0);
    ck_assert_int_eq(take(&b, start_us, 30), STATUS_OK);
    quota_generated(&a, start_us, 10);
    ck_assert_int_eq(quota_check(&q, start_us, 1, &err), STATUS_EXHAUSTED);
    quota_release(&a);
    ck_assert_int_eq(quota_check(&q, start_us, 1, &err), STATUS_OK);
    quota_release(&b);
    ck_assert_uint_eq(q.n_in_flight, 0);
}
END_TEST

/* A turn that the batcher refuses leaves no trace. */
START_TEST(undoes)
{
    struct quota_hold hold;

    configure((struct quota_limits){1, 10, 10, 0});
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(take(&hold, start_us, 10), STATUS_OK);
        quota_undo(&hold, start_us);
        quota_undo(&hold, start_us);
    }
    ck_assert_int_eq(take(&hold, start_us, 10), STATUS_OK);
    ck_assert_int_eq(quota_check(&q, start_us, 1, &err), STATUS_EXHAUSTED);
}
END_TEST

/* Under another limit what was used stays used; without one nothing is counted. */
START_TEST(keeps_counts)
{
    const struct quota_limits none = {0}, more = {.requests_per_minute = 3};
    struct quota_hold hold;

    configure((struct quota_limits){.requests_per_minute = 2, .conversations = 2});
    ck_assert(quota_is_limited(&q));
    ck_assert_int_eq(take(&hold, start_us, 1), STATUS_OK);
    ck_assert_int_eq(take(&hold, start_us, 1), STATUS_OK);
    ck_assert_int_eq(quota_check(&q, start_us, 1, &err), STATUS_EXHAUSTED);
    quota_configure(&q, &more, start_us);
    ck_assert_uint_eq(quota_rate_rest(&q.requests, start_us).remaining, 1);
    quota_configure(&q, &none, start_us);
    ck_assert(!quota_is_limited(&q));
    ck_assert_int_eq(take(&hold, start_us, UINT64_MAX), STATUS_OK); /* however much */
    quota_release(&hold);
    quota_configure(&q, &more, start_us);
    ck_assert_uint_eq(quota_rate_rest(&q.requests, start_us).remaining, 3);
}
END_TEST

START_TEST(bounds_conversations)
{
    configure((struct quota_limits){.conversations = 2});
    ck_assert_int_eq(quota_check_conversations(&q, 1, &err), STATUS_OK);
    ck_assert_int_eq(quota_check_conversations(&q, 2, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(err.reason, REASON_QUOTA_EXCEEDED);
    configure((struct quota_limits){0});
    ck_assert_int_eq(quota_check_conversations(&q, SIZE_MAX, &err), STATUS_OK);
}
END_TEST

/* The largest limit, after the longest time, does not overflow. */
START_TEST(does_not_overflow)
{
    struct quota_hold hold;

    configure((struct quota_limits){QUOTA_LIMIT_MAX, QUOTA_LIMIT_MAX, QUOTA_LIMIT_MAX, 0});
    ck_assert_int_eq(take(&hold, start_us, QUOTA_LIMIT_MAX), STATUS_OK);
    quota_generated(&hold, start_us, UINT32_MAX);
    ck_assert_int_eq(quota_check(&q, start_us, 1, &err), STATUS_EXHAUSTED);
    quota_release(&hold);
    ck_assert_int_eq(quota_check(&q, UINT64_MAX, 1, &err), STATUS_OK);
    ck_assert_uint_eq(quota_rate_rest(&q.tokens, UINT64_MAX).remaining, QUOTA_LIMIT_MAX);
}
END_TEST

/* What has no tokens is bounded by its count alone; a part of a request that was counted costs
 * none. Each refusal is counted by what refused. */
START_TEST(counts_requests_apart)
{
    struct quota_hold hold = {0};

    configure((struct quota_limits){.requests_per_minute = 2, .tokens_per_minute = 10});
    ck_assert_int_eq(quota_take_request(NULL, start_us, &err), STATUS_OK);
    ck_assert_int_eq(quota_take(&hold, &q, start_us, 1, 10, &err), STATUS_OK);
    ck_assert_int_eq(quota_take_request(&q, start_us, &err), STATUS_OK);
    ck_assert_int_eq(quota_take_request(&q, start_us, &err), STATUS_EXHAUSTED);
    ck_assert_uint_eq(err.retry_after_ms, 30000);
    quota_give_back_request(&q, start_us);
    ck_assert_int_eq(quota_take_request(&q, start_us, &err), STATUS_OK);
    ck_assert_int_eq(quota_check(&q, start_us, 0, &err), STATUS_EXHAUSTED); /* the tokens */
    ck_assert_int_eq(quota_check(&q, start_us + 6 * SECOND_US, 0, &err), STATUS_OK);
    ck_assert_int_eq(quota_check(&q, start_us + 6 * SECOND_US, 1, &err), STATUS_EXHAUSTED);
    ck_assert_uint_eq(q.n_refused[QUOTA_REQUESTS], 2);
    ck_assert_uint_eq(q.n_refused[QUOTA_TOKENS], 1);
    ck_assert_uint_eq(q.n_refused[QUOTA_CONVERSATIONS], 0);
}
END_TEST

/* Of a rate that daemons share a slice may be used at once, and what was used is told once. */
START_TEST(shares)
{
    const uint64_t unit = 60000000;
    struct quota_told told;

    configure((struct quota_limits){.requests_per_minute = 10});
    ck_assert_int_eq(quota_take_request(&q, start_us, &err), STATUS_OK);
    quota_rate_give(&q.requests, start_us, 2 * unit, 4 * unit); /* three are left: one was used */
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(quota_take_request(&q, start_us, &err), STATUS_OK);
    ck_assert_int_eq(quota_take_request(&q, start_us, &err), STATUS_EXHAUSTED);
    ck_assert_uint_eq(err.retry_after_ms, 300); /* the others may give some of theirs */
    ck_assert_uint_eq(quota_rate_rest(&q.requests, start_us).remaining, 4);
    told = quota_rate_take(&q.requests);
    ck_assert_uint_eq(told.spent, 4 * unit);
    ck_assert_uint_eq(told.wanted, unit);
    quota_rate_untake(&q.requests, &told); /* it could not be told */
    told = quota_rate_take(&q.requests);
    ck_assert_uint_eq(told.spent, 4 * unit);
    quota_rate_give(&q.requests, start_us, 10 * unit, 0);
    ck_assert_int_eq(quota_take_request(&q, start_us, &err), STATUS_EXHAUSTED);
    ck_assert_uint_eq(err.retry_after_ms, 6000); /* all have used all */
    quota_rate_give(&q.requests, start_us, 9 * unit, unit);
    ck_assert_int_eq(quota_take_request(&q, start_us, &err), STATUS_OK);
    quota_give_back_request(&q, start_us);
    ck_assert_int_eq(quota_take_request(&q, start_us, &err), STATUS_OK);
    ck_assert_uint_eq(quota_rate_take(&q.requests).spent, unit);
}
END_TEST

SUITE_MAIN("server/quota", shares, bounds_requests, counts_replies, refuses_what_never_fits,
           bounds_in_flight, undoes, keeps_counts, bounds_conversations, does_not_overflow,
           counts_requests_apart)
