#include "batching/tenant.h"

#include <assert.h>

/* What a token charges at weight 1: a multiple of all small weights, so that they divide exactly.
 */
static const uint64_t token_unit = 720720;

void tenant_set_weight(struct tenant *t, unsigned weight)
{
    assert(weight >= 1 && weight <= TENANT_WEIGHT_MAX);
    t->token_charge = token_unit / weight;
}

void tenant_init(struct tenant *t, unsigned weight)
{
    *t = (struct tenant){0};
    for (size_t i = 0; i < N_PRIORITIES; i++)
        list_init(&t->queues[i]);
    t->max_rows = SIZE_MAX;
    tenant_set_weight(t, weight);
}

bool tenant_is_before(const struct tenant *a, const struct tenant *b)
{
    if ((a->n_paused > 0) != (b->n_paused > 0))
        return a->n_paused == 0;
    if ((a->max_rows != SIZE_MAX) != (b->max_rows != SIZE_MAX))
        return a->max_rows == SIZE_MAX;
    return a->served < b->served;
}

void tenant_charge(struct tenant *t, size_t n)
{
    t->served += n * t->token_charge;
}

uint64_t tenant_rows(const struct tenant *t, size_t n)
{
    return n * t->token_charge;
}
