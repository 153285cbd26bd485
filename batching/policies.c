#include "batching/policy.h"

#include <assert.h>

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Rows that a step still has room for. */
static size_t n_free(const struct policy_view *v)
{
    size_t taken = v->n_running + v->n_admitted;

    return taken < v->config->max_rows ? v->config->max_rows - taken : 0;
}

/* Exactly max_rows at once, and the next group only when this one is through. */
static size_t fixed_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    (void)ret_wake_us; /* only an arrival releases a batch */
    if (v->n_running > 0 || v->n_admitted > 0 || v->n_queued < v->config->max_rows)
        return 0;
    return v->config->max_rows;
}

/* As soon as the step would be full, or the oldest has waited for max_delay_us. The delay counts
 * from the arrival, so what comes while a step runs does not wait a second time after it. */
static size_t window_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    size_t room = n_free(v);

    if (room == 0 || v->n_queued == 0)
        return 0;
    if (v->n_queued >= room)
        return room;
    if (v->now_us - v->oldest_us >= v->config->max_delay_us)
        return v->n_queued;
    *ret_wake_us = v->oldest_us + v->config->max_delay_us;
    return 0;
}

static size_t continuous_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    (void)ret_wake_us; /* nobody is held back */
    return min_size(v->n_queued, n_free(v));
}

static const struct policy policies[] = {
    [BATCH_FIXED] = {.name = "fixed", .admit = fixed_admit},
    [BATCH_WINDOW] = {.name = "window", .admit = window_admit},
    [BATCH_CONTINUOUS] = {.name = "continuous", .admit = continuous_admit},
};

const struct policy *policy_of(enum batch_policy which)
{
    assert((size_t)which < sizeof policies / sizeof policies[0]);
    return &policies[which];
}
