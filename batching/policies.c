#include "batching/policy.h"

#include <assert.h>

#include "batching/adaptive.h"
#include "batching/length_buckets.h"

static size_t policies_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Rows that a step still has room for. */
static size_t n_free(const struct policy_view *v)
{
    size_t taken = v->n_running + v->n_admitted;

    return taken < v->config->max_rows ? v->config->max_rows - taken : 0;
}

static size_t min_rows(const struct policy_view *v)
{
    return v->config->min_rows != 0 ? v->config->min_rows : v->config->max_rows;
}

/* Admits exactly max_rows at once, and the next batch only when this one has ended. A batch that is
 * not full in time begins with fewer, if there are at least min_rows. */
static size_t fixed_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    uint64_t due_us = v->oldest_us + v->config->max_delay_us;

    if (v->n_running > 0 || v->n_admitted > 0)
        return 0;
    if (v->n_queued >= v->config->max_rows)
        return v->config->max_rows;
    if (v->config->max_delay_us == 0 || v->n_queued < min_rows(v))
        return 0;
    if (v->now_us >= due_us)
        return v->n_queued;
    *ret_wake_us = due_us;
    return 0;
}

/* Admitted requests have their batch; the delay counts from the oldest of the others. */
static uint64_t fixed_give_up_us(const struct policy_view *v)
{
    if (v->config->max_delay_us == 0 || v->n_admitted > 0 || v->n_queued >= min_rows(v))
        return 0;
    return v->oldest_us + v->config->max_delay_us;
}

/* Admits once min_rows wait or the oldest has waited max_delay_us. The delay counts from the
 * arrival, so requests that arrive while a step runs do not wait a second time after it. */
static size_t window_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    uint64_t due_us = v->oldest_us + v->config->max_delay_us;
    size_t room = n_free(v);

    if (room == 0 || v->n_queued == 0)
        return 0;
    if (v->n_queued >= policies_min_size(min_rows(v), room) || v->now_us >= due_us)
        return policies_min_size(v->n_queued, room);
    *ret_wake_us = due_us;
    return 0;
}

static size_t continuous_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    return policies_min_size(v->n_queued, n_free(v));
}

/* Admits the waiting requests once the clients that are expected soon are back; one at a time if
 * batches save nothing. */
static size_t adaptive_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    size_t n = policies_min_size(v->n_queued, n_free(v));
    uint64_t until_us = 0;

    if (v->n_running == 0 && v->n_admitted == 0 && n < v->config->max_rows)
        until_us = adaptive_until(v->adaptive, v->oldest_us, v->now_us);
    if (until_us == 0)
        return adaptive_rows(v->adaptive, n);
    *ret_wake_us = until_us;
    return 0;
}

static size_t hold_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    return 0;
}

const struct batch_policy_type policy_hold = {.name = "hold", .admit = hold_admit};

static const struct batch_policy_type policies[] = {
    [BATCH_FIXED] = {.name = "fixed", .admit = fixed_admit, .give_up_us = fixed_give_up_us},
    [BATCH_WINDOW] = {.name = "window", .admit = window_admit},
    [BATCH_CONTINUOUS] = {.name = "continuous", .admit = continuous_admit, .yields = true},
    [BATCH_ADAPTIVE] = {.name = "gather", .admit = adaptive_admit, .yields = true},
    [BATCH_BATCHSORT] = {.name = "batchsort", .choose = length_buckets_choose},
    [BATCH_FULL] = {.name = "full", .choose = length_buckets_choose},
};

const struct batch_policy_type *policy_of(enum batch_policy which)
{
    assert((size_t)which < sizeof(policies) / sizeof(policies[0]));
    return &policies[which];
}
