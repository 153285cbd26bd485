/* The principals as tenants of a model's batcher: each principal has its share of the scheduled
 * tokens, by its weight. A tenant is made when it is first asked for, and lives as long as the
 * model. All functions are called on the loop. */
#ifndef SERVER_MODEL_TENANTS_H
#define SERVER_MODEL_TENANTS_H

#include <stddef.h>
#include <stdint.h>

#include "batching/tenant.h"

/* Returns the weight of a principal, 1 … TENANT_WEIGHT_MAX. */
typedef unsigned (*tenant_weight_fn)(void *arg, uint32_t principal);

struct tenants {
    tenant_weight_fn weight_of; /* NULL: each principal has the weight 1 */
    void *arg;
    struct tenant **by_principal; /* [n] by the principal's id; NULL: not made yet */
    size_t n;
};

/* A struct that is zeroed but for weight_of and arg has no tenants. tenants_deinit frees them. */
void tenants_deinit(struct tenants *t);
/* Returns the tenant of a principal. Returns NULL, which stands for the batcher's own tenant, for
 * principal 0 (there are no keys) and when memory is short. */
struct tenant *tenants_get(struct tenants *t, uint32_t principal);
/* Asks for all weights again, because the keys have changed. */
void tenants_reweigh(struct tenants *t);

#endif
