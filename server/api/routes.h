/* Every route that the daemon's HTTP port serves. Each table is defined with its handlers in a file
 * that the build lists as one with routes: API/FILE.c defines API_FILE_routes. */
#ifndef SERVER_API_ROUTES_H
#define SERVER_API_ROUTES_H

#include "server/http/route.h"
#include "server/routes_list.h"

#define ROUTES_DECLARE(table) extern const struct route_table table;
ROUTES(ROUTES_DECLARE)

/* A request without a route gets OpenAI's error body. Static. */
extern const struct routes routes_all;

#endif
