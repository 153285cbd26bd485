#include "server/api/services.h"

#include "server/services_list.h"

#define SERVICES_DECLARE(table) extern const struct call_table table;
SERVICES(SERVICES_DECLARE)

const struct call_table *const *services_tables(size_t *ret_n)
{
#define SERVICES_ENTRY(table) &table,
    static const struct call_table *const tables[] = {SERVICES(SERVICES_ENTRY)};

    *ret_n = sizeof(tables) / sizeof(tables[0]);
    return tables;
}
