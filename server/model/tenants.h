/* The principals as tenants of a model's batcher: each has its share of the scheduled tokens, by
 * its weight. They are made when first asked for, and live as long as the model. Loop. */
#ifndef SERVER_MODEL_TENANTS_H
#define SERVER_MODEL_TENANTS_H

#include <stddef.h>
#include <stdint.h>

#include "batching/tenant.h"

/* The weight of a principal, 1 … TENANT_WEIGHT_MAX. */
typedef unsigned (*tenant_weight_fn)(void *arg, uint32_t principal);

struct tenants {
    tenant_weight_fn weight_of; /* NULL: 1 for all */
    void *arg;
    struct tenant **by_principal; /* [n]; NULL where it was not asked for */
    size_t n;
};

/* Zeroed but for weight_of and arg, there are none. */
void tenants_deinit(struct tenants *t);
/* NULL, which is the batcher's own tenant: without keys (principal 0), and without memory. */
struct tenant *tenants_get(struct tenants *t, uint32_t principal);
/* Asks for all weights again: the keys have changed. */
void tenants_reweigh(struct tenants *t);

#endif
