#include "server/model/tenants.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static unsigned tenant_weight_now(const struct tenants *t, uint32_t principal)
{
    return t->weight_of == NULL ? 1 : t->weight_of(t->arg, principal);
}

void tenants_deinit(struct tenants *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->by_principal[i]);
    free(t->by_principal);
}

/* Principals are few, and numbered from 1. */
static bool tenants_reserve(struct tenants *t, uint32_t principal)
{
    size_t n = (size_t)principal + 1;
    struct tenant **all;

    if (n <= t->n)
        return true;
    all = try_realloc(t->by_principal, n, sizeof(*all));
    if (all == NULL)
        return false;
    memset(all + t->n, 0, (n - t->n) * sizeof(*all));
    t->by_principal = all;
    t->n = n;
    return true;
}

struct tenant *tenants_get(struct tenants *t, uint32_t principal)
{
    struct tenant *one;

    if (principal == 0 || !tenants_reserve(t, principal))
        return NULL;
    one = t->by_principal[principal];
    if (one != NULL)
        return one;
    one = try_alloc(1, sizeof(*one));
    if (one != NULL)
        tenant_init(one, tenant_weight_now(t, principal));
    t->by_principal[principal] = one;
    return one;
}

void tenants_reweigh(struct tenants *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->by_principal[i] != NULL)
            tenant_set_weight(t->by_principal[i], tenant_weight_now(t, (uint32_t)i));
}
