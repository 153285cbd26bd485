#include "server/api/routes.h"

#include "server/api/connect/connect.h"
#include "server/api/openai/error.h"

#define ROUTES_LIST(table) &table,

static const struct route_table *const tables[] = {ROUTES(ROUTES_LIST)};

const struct routes routes_all = {
    .tables = tables,
    .n_tables = sizeof(tables) / sizeof(tables[0]),
    .api = &openai_api,
    .make = connect_make_route,
};
