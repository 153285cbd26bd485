#include "server/replay/limiter.h"

#include <inttypes.h>
#include <math.h>

/* Whether there is a difference at which an insert and a sample of n would both be refused:
 * max_diff - samples_per_insert < d < min_diff + n. With a whole samples_per_insert d is whole. */
static bool limiter_can_stall(const struct limiter_config *c, double n)
{
    const double low = c->max_diff - c->samples_per_insert, high = c->min_diff + n;

    if (floor(c->samples_per_insert) == c->samples_per_insert)
        return floor(low) + 1.0 < high;
    return low < high;
}

enum status limiter_check(const struct limiter_config *c, uint64_t max_items, struct error *err)
{
    const double s = c->samples_per_insert;

    if (c->min_size < 1 || c->min_size > max_items)
        return error_field(err, "limiter.min_size",
                           "is %" PRIu64 ", it must be 1 to max_items, %" PRIu64, c->min_size,
                           max_items);
    if (!(s >= 0.0 && s <= 1e9) || (s > 0.0 && s < 1e-9))
        return error_field(err, "limiter.samples_per_insert",
                           "is %g, it must be 0, or from 1e-9 to 1e9", s);
    if (s == 0.0)
        return STATUS_OK;
    if (!(fabs(c->min_diff) <= 1e15))
        return error_field(err, "limiter.min_diff", "is %g, it must be from -1e15 to 1e15",
                           c->min_diff);
    if (!(fabs(c->max_diff) <= 1e15))
        return error_field(err, "limiter.max_diff", "is %g, it must be from -1e15 to 1e15",
                           c->max_diff);
    /* Below min_size inserts are always allowed, so only what comes behind it can stall. */
    if (limiter_can_stall(c, 1.0))
        return error_field(err, "limiter.max_diff",
                           "is %g, with min_diff %g and samples_per_insert %g inserts and samples "
                           "could come to wait for each other for ever",
                           c->max_diff, c->min_diff, s);
    return STATUS_OK;
}

enum status limiter_check_batch(const struct limiter_config *c, uint64_t n, struct error *err)
{
    if (c->samples_per_insert == 0.0 || !limiter_can_stall(c, (double)n))
        return STATUS_OK;
    return error_field(err, "batch_size",
                       "is %" PRIu64 ", between min_diff %g and max_diff %g so many samples could "
                       "wait for ever",
                       n, c->min_diff, c->max_diff);
}

static double limiter_diff(const struct limiter *l)
{
    return (double)l->n_inserted * l->config.samples_per_insert - (double)l->n_sampled;
}

bool limiter_allows_insert(const struct limiter *l, uint64_t n_items)
{
    const struct limiter_config *c = &l->config;

    return c->samples_per_insert == 0.0 || n_items < c->min_size ||
           limiter_diff(l) + c->samples_per_insert <= c->max_diff;
}

bool limiter_allows_sample(const struct limiter *l, uint64_t n_items, uint64_t n)
{
    const struct limiter_config *c = &l->config;

    return n_items >= c->min_size &&
           (c->samples_per_insert == 0.0 || limiter_diff(l) - (double)n >= c->min_diff);
}
