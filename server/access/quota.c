/* Counts a principal's requests, tokens and conversations against its limits. A rate is a bucket
 * that fills with time; what a check takes can be given back where the request then fails. */
#include "server/access/quota.h"

enum { QUOTA_SLICE_US = 300000 /* until the next slice is there */ };
static const uint64_t QUOTA_MAX_SPENT = (uint64_t)1 << 61;
static const uint64_t unit = 60000000; /* of a token or a request: microseconds a minute */

/* --- a rate --- */

/* What is used at that time: it decays by `limit` a microsecond. */
static uint64_t quota_rate_used(const struct quota_rate *r, uint64_t now_us)
{
    uint64_t passed_us = now_us > r->at_us ? now_us - r->at_us : 0, back;

    if (__builtin_mul_overflow(passed_us, (uint64_t)r->limit, &back) || back >= r->used)
        return 0;
    return r->used - back;
}

static void quota_rate_refresh(struct quota_rate *r, uint64_t now_us)
{
    r->used = quota_rate_used(r, now_us);
    r->at_us = now_us;
}

static void quota_rate_configure(struct quota_rate *r, uint32_t limit, uint64_t now_us)
{
    quota_rate_refresh(r, now_us);
    r->limit = limit;
    if (limit == 0)
        r->used = 0;
}

static void quota_rate_use(struct quota_rate *r, uint64_t now_us, uint64_t n)
{
    uint64_t used, more;

    if (r->limit == 0)
        return;
    quota_rate_refresh(r, now_us);
    if (__builtin_mul_overflow(n, unit, &more) || __builtin_add_overflow(r->used, more, &used))
        used = UINT64_MAX; /* it is full for longer than anybody waits */
    more = used - r->used;
    r->used = used;
    if (!r->is_shared)
        return;
    r->spent = more > QUOTA_MAX_SPENT - r->spent ? QUOTA_MAX_SPENT : r->spent + more;
    r->slice = more > r->slice ? 0 : r->slice - more;
}

static void quota_rate_give_back(struct quota_rate *r, uint64_t now_us, uint64_t n)
{
    uint64_t less;

    quota_rate_refresh(r, now_us);
    r->used = __builtin_mul_overflow(n, unit, &less) || less > r->used ? 0 : r->used - less;
    if (r->is_shared && less <= r->spent) { /* else it was told */
        r->spent -= less;
        r->slice += less;
    }
}

struct quota_told quota_rate_take(struct quota_rate *r)
{
    const struct quota_told told = {.spent = r->spent, .wanted = r->wanted};

    r->spent = r->wanted = 0;
    return told;
}

void quota_rate_untake(struct quota_rate *r, const struct quota_told *told)
{
    r->spent = told->spent > QUOTA_MAX_SPENT - r->spent ? QUOTA_MAX_SPENT : r->spent + told->spent;
    r->wanted = told->wanted > r->wanted ? told->wanted : r->wanted;
}

void quota_rate_give(struct quota_rate *r, uint64_t now_us, uint64_t used, uint64_t slice)
{
    const uint64_t used_before = quota_rate_used(r, now_us);

    if (!r->is_shared) /* the other daemons have not been told of the use before the first slice */
        r->spent = used_before < QUOTA_MAX_SPENT ? used_before : QUOTA_MAX_SPENT;
    r->is_shared = true;
    r->at_us = now_us;
    r->used = used + r->spent;
    r->slice = slice > r->spent ? slice - r->spent : 0;
}

/* How long until n more can be taken, n at most the limit; 0: now. */
static uint64_t quota_rate_wait_us(struct quota_rate *r, uint64_t now_us, uint64_t n)
{
    uint64_t used = quota_rate_used(r, now_us), room;

    if (r->limit == 0)
        return 0;
    room = (r->limit - n) * unit;
    if (used > room)
        return (used - room - 1) / r->limit + 1;
    if (!r->is_shared || n * unit <= r->slice)
        return 0;
    if (n * unit > r->wanted)
        r->wanted = n * unit;
    return QUOTA_SLICE_US;
}

struct quota_rest quota_rate_rest(const struct quota_rate *r, uint64_t now_us)
{
    struct quota_rest rest = {.limit = r->limit};
    uint64_t used = quota_rate_used(r, now_us), whole = (uint64_t)r->limit * unit;

    if (r->limit == 0)
        return rest;
    rest.remaining = used >= whole ? 0 : (uint32_t)((whole - used) / unit);
    rest.reset_us = used == 0 ? 0 : (used - 1) / r->limit + 1;
    return rest;
}

/* --- the quota --- */

void quota_configure(struct access_quota *q, const struct quota_limits *limits, uint64_t now_us)
{
    q->limits = *limits;
    quota_rate_configure(&q->requests, limits->requests_per_minute, now_us);
    quota_rate_configure(&q->tokens, limits->tokens_per_minute, now_us);
}

bool quota_is_limited(const struct access_quota *q)
{
    return q->requests.limit != 0 || q->tokens.limit != 0 || q->limits.tokens_in_flight != 0 ||
           q->limits.conversations != 0;
}

const char *quota_kind_name(enum quota_kind kind)
{
    static const char *const names[] = {
        [QUOTA_REQUESTS] = "requests",
        [QUOTA_TOKENS] = "tokens",
        [QUOTA_IN_FLIGHT] = "in_flight",
        [QUOTA_CONVERSATIONS] = "conversations",
    };

    return names[kind];
}

static enum status quota_refuse(struct access_quota *q, enum quota_kind kind, uint64_t wait_us,
                                uint32_t limit, const char *what, struct error *err)
{
    uint64_t wait_ms = (wait_us + 999) / 1000;

    q->n_refused[kind]++;
    (void)error_because(err, STATUS_EXHAUSTED, REASON_QUOTA_EXCEEDED, NULL,
                        "the quota of %u %s is used up", limit, what);
    err->retry_after_ms = wait_ms < UINT32_MAX ? (uint32_t)wait_ms : UINT32_MAX;
    return err->status;
}

static enum status quota_check_tokens(struct access_quota *q, uint64_t now_us, uint64_t n,
                                      struct error *err)
{
    bool is_above_rate = q->tokens.limit != 0 && n > q->tokens.limit;
    uint64_t wait_us;

    if (is_above_rate || (q->limits.tokens_in_flight != 0 && n > q->limits.tokens_in_flight)) {
        q->n_refused[is_above_rate ? QUOTA_TOKENS : QUOTA_IN_FLIGHT]++;
        return error_because(err, STATUS_RANGE, REASON_QUOTA_EXCEEDED, NULL,
                             "the prompt has %llu tokens, more than the quota ever allows at once",
                             (unsigned long long)n);
    }
    wait_us = quota_rate_wait_us(&q->tokens, now_us, n);
    if (wait_us > 0)
        return quota_refuse(q, QUOTA_TOKENS, wait_us, q->tokens.limit, "tokens a minute", err);
    if (q->limits.tokens_in_flight != 0 && q->n_in_flight + n > q->limits.tokens_in_flight)
        return quota_refuse(q, QUOTA_IN_FLIGHT, 0, q->limits.tokens_in_flight, "tokens in flight",
                            err);
    return STATUS_OK;
}

static enum status quota_check_requests(struct access_quota *q, uint64_t now_us, unsigned n,
                                        struct error *err)
{
    uint64_t wait_us = n == 0 ? 0 : quota_rate_wait_us(&q->requests, now_us, n);

    if (wait_us == 0)
        return STATUS_OK;
    return quota_refuse(q, QUOTA_REQUESTS, wait_us, q->requests.limit, "requests a minute", err);
}

static enum status quota_check_for(struct access_quota *q, uint64_t now_us, unsigned n_requests,
                                   uint64_t n_prompt, struct error *err)
{
    if (quota_check_requests(q, now_us, n_requests, err) != STATUS_OK)
        return err->status;
    return quota_check_tokens(q, now_us, n_prompt, err);
}

enum status quota_check(struct access_quota *q, uint64_t now_us, unsigned n_requests,
                        struct error *err)
{
    return quota_check_for(q, now_us, n_requests, 1, err); /* no prompt has fewer */
}

enum status quota_take(struct quota_hold *hold, struct access_quota *q, uint64_t now_us,
                       unsigned n_requests, uint64_t n_prompt, struct error *err)
{
    if (quota_check_for(q, now_us, n_requests, n_prompt, err) != STATUS_OK)
        return err->status;
    quota_rate_use(&q->requests, now_us, n_requests);
    quota_rate_use(&q->tokens, now_us, n_prompt);
    q->n_in_flight += n_prompt;
    *hold = (struct quota_hold){.quota = q, .n_prompt = n_prompt, .n_requests = n_requests};
    return STATUS_OK;
}

enum status quota_take_request(struct access_quota *q, uint64_t now_us, struct error *err)
{
    if (q == NULL)
        return STATUS_OK;
    if (quota_check_requests(q, now_us, 1, err) != STATUS_OK)
        return err->status;
    quota_rate_use(&q->requests, now_us, 1);
    return STATUS_OK;
}

void quota_give_back_request(struct access_quota *q, uint64_t now_us)
{
    if (q != NULL)
        quota_rate_give_back(&q->requests, now_us, 1);
}

void quota_generated(struct quota_hold *hold, uint64_t now_us, uint64_t n_generated)
{
    uint64_t n_new;

    if (hold->quota == NULL || n_generated <= hold->n_generated)
        return;
    n_new = n_generated - hold->n_generated;
    quota_rate_use(&hold->quota->tokens, now_us, n_new);
    hold->quota->n_in_flight += n_new;
    hold->n_generated = n_generated;
}

void quota_release(struct quota_hold *hold)
{
    if (hold->quota != NULL)
        hold->quota->n_in_flight -= hold->n_prompt + hold->n_generated;
    *hold = (struct quota_hold){0};
}

void quota_undo(struct quota_hold *hold, uint64_t now_us)
{
    struct access_quota *q = hold->quota;

    if (q == NULL)
        return;
    quota_rate_give_back(&q->requests, now_us, hold->n_requests);
    quota_rate_give_back(&q->tokens, now_us, hold->n_prompt + hold->n_generated);
    quota_release(hold);
}

enum status quota_check_conversations(struct access_quota *q, size_t n, struct error *err)
{
    if (q->limits.conversations == 0 || n < q->limits.conversations)
        return STATUS_OK;
    q->n_refused[QUOTA_CONVERSATIONS]++;
    return error_because(err, STATUS_EXHAUSTED, REASON_QUOTA_EXCEEDED, NULL,
                         "the quota of %u open conversations is used up", q->limits.conversations);
}
