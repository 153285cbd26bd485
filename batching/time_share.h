/* Shares of a step's time. A step takes longer with each row, so rows alone are no fair share: a
 * tenant with many requests would slow down each token of the others. The tenants are filled to one
 * level of rows by weight, as far as the rows of a tenant at that level take its part of the step's
 * time. Those that ask for less are light; those that ask for more are heavy. Heavy tenants may
 * have as many rows by weight as a light one has, and more only as long as these take half of the
 * heavy tenants' part. Between two tenants of equal weights that lengthens the step of a single row
 * by a third.
 *
 * A client that waits for each answer is away for a moment between two requests. So a tenant
 * counts for some time after its last request: steps without it are short beside what its requests
 * take, and its next request begins soon. */
#ifndef BATCHING_TIME_SHARE_H
#define BATCHING_TIME_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "batching/state.h"

/* Sets max_rows of each tenant that waits or runs, and b->heavy_us: what a step with rows of heavy
 * tenants may take; 0: as long as it does. Returns whether a tenant is heavy. */
bool time_share_bound(struct batcher *b, uint64_t now_us);

/* The tenant is heavy in the step that is formed. */
static inline bool tenant_is_heavy(const struct tenant *t)
{
    return t->max_rows != SIZE_MAX;
}

#endif
