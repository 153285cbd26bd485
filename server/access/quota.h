/* The quotas of a principal: requests and tokens per minute, tokens in flight, open conversations.
 * The two rates are token buckets: a minute's worth at once, refilled evenly. Prompts are counted
 * before they are computed, replies as they are generated, so a rate may be overdrawn by the
 * replies in flight; later requests then wait. All functions are called on the loop. */
#ifndef SERVER_ACCESS_QUOTA_H
#define SERVER_ACCESS_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { QUOTA_LIMIT_MAX = 1000000000 };

/* The limits of a principal. 0: there is no limit. */
struct quota_limits {
    uint32_t requests_per_minute, tokens_per_minute, tokens_in_flight, conversations;
};

/* A token bucket. used counts in 1/60,000,000 of a token, so that a microsecond gives `limit` of
 * these units back. */
struct quota_rate {
    uint32_t limit; /* per minute; 0: no limit */
    uint64_t used, at_us;
    /* Of a rate that several daemons share: used is what all of them have used, as far as is known,
     * and this one may use its slice until it tells the others and gets another one. */
    bool is_shared;
    uint64_t slice, spent; /* what is left of the slice; what nobody was told of */
    uint64_t wanted;       /* what the largest request needed that the slice was too small for */
};

enum quota_kind {
    QUOTA_REQUESTS,
    QUOTA_TOKENS,
    QUOTA_IN_FLIGHT,
    QUOTA_CONVERSATIONS,
    N_QUOTA_KINDS
};

struct access_quota {
    struct quota_limits limits;
    struct quota_rate requests, tokens;
    uint64_t n_in_flight; /* tokens of the turns in flight */
    uint64_t n_refused[N_QUOTA_KINDS];
};

/* What a turn has taken. A zeroed hold has nothing. */
struct quota_hold {
    struct access_quota *quota; /* NULL: nothing was taken, or it was given back */
    uint64_t n_prompt, n_generated;
    unsigned n_requests;
};

/* Returns "requests", "tokens", "in_flight" or "conversations". */
const char *quota_kind_name(enum quota_kind kind);

/* Changes the limits. What was used of a limit counts as used of the new one. A zeroed quota has no
 * limits. */
void quota_configure(struct access_quota *q, const struct quota_limits *limits, uint64_t now_us);
bool quota_is_limited(const struct access_quota *q);

/* Checks whether a turn may begin whose prompt is not counted yet, so that a turn is refused before
 * any work. n_requests is 1, or 0 for a part of a request that was counted. EXHAUSTED, with the
 * time after which a short turn may begin. */
enum status quota_check(struct access_quota *q, uint64_t now_us, unsigned n_requests,
                        struct error *err) MUST_CHECK;
/* Takes a request and its prompt. EXHAUSTED, with the time after which the turn may begin; RANGE if
 * the prompt alone is above the limit. */
enum status quota_take(struct quota_hold *hold, struct access_quota *q, uint64_t now_us,
                       unsigned n_requests, uint64_t n_prompt, struct error *err) MUST_CHECK;
/* Takes a request that has no tokens. q may be NULL: there is no quota. EXHAUSTED. */
enum status quota_take_request(struct access_quota *q, uint64_t now_us,
                               struct error *err) MUST_CHECK;
void quota_give_back_request(struct access_quota *q, uint64_t now_us);
/* Tells how many tokens the reply has by now. */
void quota_generated(struct quota_hold *hold, uint64_t now_us, uint64_t n_generated);
/* Tells that the turn is over. Does nothing if hold has nothing. */
void quota_release(struct quota_hold *hold);
/* Gives back everything, because the turn did not begin after all. */
void quota_undo(struct quota_hold *hold, uint64_t now_us);

/* Checks whether a principal with n open conversations may open one more. EXHAUSTED. */
enum status quota_check_conversations(struct access_quota *q, size_t n,
                                      struct error *err) MUST_CHECK;

/* What the daemons tell each other of a rate, in the units of struct quota_rate. take gives what is
 * to be told, which counts as told; untake takes that back, if it could not be told. give sets what
 * all daemons have used, and the next slice, from which is deducted what was used since take. */
struct quota_told {
    uint64_t spent, wanted;
};
struct quota_told quota_rate_take(struct quota_rate *r);
void quota_rate_untake(struct quota_rate *r, const struct quota_told *told);
void quota_rate_give(struct quota_rate *r, uint64_t now_us, uint64_t used, uint64_t slice);

/* How much of a rate is left, and when the rate is whole again. */
struct quota_rest {
    uint32_t limit, remaining;
    uint64_t reset_us;
};
struct quota_rest quota_rate_rest(const struct quota_rate *r, uint64_t now_us);

#endif
