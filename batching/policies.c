#include "batching/policy.h"

#include <assert.h>

#include "batching/by_length.h"
#include "batching/gather.h"

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

static size_t min_rows(const struct policy_view *v)
{
    return v->config->min_rows != 0 ? v->config->min_rows : v->config->max_rows;
}

/* Exactly max_rows at once, and the next group only when this one is through. One that is not full
 * in time begins with fewer, if they are enough. */
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

/* Those that were admitted have their batch; of the others the oldest counts. */
static uint64_t fixed_give_up_us(const struct policy_view *v)
{
    if (v->config->max_delay_us == 0 || v->n_admitted > 0 || v->n_queued >= min_rows(v))
        return 0;
    return v->oldest_us + v->config->max_delay_us;
}

/* As soon as there are enough, or the oldest has waited for max_delay_us. The delay counts from the
 * arrival, so what comes while a step runs does not wait a second time after it. */
static size_t window_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    uint64_t due_us = v->oldest_us + v->config->max_delay_us;
    size_t room = n_free(v);

    if (room == 0 || v->n_queued == 0)
        return 0;
    if (v->n_queued >= min_size(min_rows(v), room) || v->now_us >= due_us)
        return min_size(v->n_queued, room);
    *ret_wake_us = due_us;
    return 0;
}

static size_t continuous_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    (void)ret_wake_us; /* nobody is held back */
    return min_size(v->n_queued, n_free(v));
}

/* Those who are there, once those who should be back soon are, too; one where that saves nothing.
 */
static size_t gather_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    size_t n = min_size(v->n_queued, n_free(v));
    uint64_t until_us = 0;

    if (v->n_running == 0 && v->n_admitted == 0 && n < v->config->max_rows)
        until_us = gather_until(v->gather, v->oldest_us, v->now_us);
    if (until_us == 0)
        return gather_rows(v->gather, n);
    *ret_wake_us = until_us;
    return 0;
}

static size_t hold_admit(const struct policy_view *v, uint64_t *ret_wake_us)
{
    (void)v;
    (void)ret_wake_us; /* the change, when it comes, wakes */
    return 0;
}

const struct policy policy_hold = {.name = "hold", .admit = hold_admit};

static const struct policy policies[] = {
    [BATCH_FIXED] = {.name = "fixed", .admit = fixed_admit, .give_up_us = fixed_give_up_us},
    [BATCH_WINDOW] = {.name = "window", .admit = window_admit},
    [BATCH_CONTINUOUS] = {.name = "continuous", .admit = continuous_admit},
    [BATCH_GATHER] = {.name = "gather", .admit = gather_admit},
    [BATCH_BATCHSORT] = {.name = "batchsort", .choose = by_length_choose},
    [BATCH_FULL] = {.name = "full", .choose = by_length_choose},
};

const struct policy *policy_of(enum batch_policy which)
{
    assert((size_t)which < sizeof policies / sizeof policies[0]);
    return &policies[which];
}
