/* The Connect protocol (connectrpc.com): every method of every service (server/api/services.h) at
 * POST /package.Service/Method, over HTTP/1.1 and HTTP/2, with JSON or protobuf. A method without
 * side effects is also a GET. */
#ifndef SERVER_API_CONNECT_CONNECT_H
#define SERVER_API_CONNECT_CONNECT_H

#include <stdbool.h>

struct route;

/* Makes the route of a path, as struct routes' make does. The path of a method that a known service
 * lacks has a route, too, which says so. */
bool connect_make_route(struct route *out, const char *path);
/* Makes such a route where another port has the methods of administration: these have none here. */
bool connect_make_public_route(struct route *out, const char *path);

#endif
