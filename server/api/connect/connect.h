/* The Connect protocol (connectrpc.com): every method of every service (server/api/services.h) at
 * POST /package.Service/Method, over HTTP/1.1 and HTTP/2, with JSON or protobuf. A method without
 * side effects is also a GET. */
#ifndef SERVER_API_CONNECT_CONNECT_H
#define SERVER_API_CONNECT_CONNECT_H

#include <stdbool.h>

struct route;

/* As struct routes' make. A method that a service of ours lacks has a route, too, which says so. */
bool connect_make_route(struct route *out, const char *path);
/* The same without the methods of administration: where another port has them. */
bool connect_make_public_route(struct route *out, const char *path);

#endif
