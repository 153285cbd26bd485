#include "server/api/services.h"

#define SERVICES_LIST(table) &table,

const struct rpc_table *const *services_tables(size_t *ret_n)
{
    static const struct rpc_table *const tables[] = {SERVICES(SERVICES_LIST)};

    *ret_n = sizeof(tables) / sizeof(tables[0]);
    return tables;
}
