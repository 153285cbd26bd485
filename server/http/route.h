/* A route says which handler answers a path. An API provides its routes and its error format. This
 * folder knows no API. */
#ifndef SERVER_HTTP_ROUTE_H
#define SERVER_HTTP_ROUTE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"
#include "server/access/access.h"

struct exchange;

/* What all routes of an API share. */
struct http_api {
    const char *error_type; /* the Content-Type of an error's body: "application/json" */
    /* Appends an error's body, without a line end. */
    enum status (*append_error)(struct buf *out, int http_status, const struct error *err);
    const char *id_header; /* a header for the request's id beside X-Request-Id; NULL: none */
    int (*status_of)(enum status status); /* gives a failure's HTTP status; NULL: http_status_of */
};

enum method {
    METHOD_GET = 1,
    METHOD_POST = 2,
    METHOD_HEAD = 4,
    METHOD_OPTIONS = 8,
    METHOD_OTHER = 16,
    METHOD_DELETE = 32
};

struct route {
    const char *path;
    bool is_prefix;   /* a non-empty argument follows path */
    unsigned methods; /* bits of enum method */
    bool always;      /* the route is served also while the daemon loads or drains */
    void (*serve)(struct exchange *x);
    const struct http_api *api;
    enum access_level access; /* what the caller needs; zero: a key, if keys are configured */
    bool has_slashes;         /* the argument is a name that may have encoded slashes (%2F) */
    bool is_for_users; /* open, but not at an address of administration: serve asks for a key */
};

/* Some routes of an API, defined with their handlers. */
struct route_table {
    const struct route *rows; /* [n] */
    size_t n;
};

/* All routes of a port. The caller keeps them as long as the port. */
struct routes {
    const struct route_table *const *tables; /* [n_tables] */
    size_t n_tables;
    const struct http_api *api; /* the API whose errors requests without a route get */
    /* Makes the route of a path that no table has; its members are static. Returns false if the
     * path has no route. NULL: no other path has a route. */
    bool (*make)(struct route *out, const char *path);
};

/* Sets of routes by the access that they need, as bits 1 << enum access_level. */
enum {
    ROUTES_ALL = 1 << ACCESS_KEY | 1 << ACCESS_OPEN | 1 << ACCESS_ADMIN | 1 << ACCESS_ATTACH,
    ROUTES_PUBLIC = 1 << ACCESS_KEY | 1 << ACCESS_OPEN | 1 << ACCESS_ATTACH,
    ROUTES_ADMIN = 1 << ACCESS_OPEN | 1 << ACCESS_ADMIN
};

/* Returns the route of a path among the routes of these levels; NULL: there is none. The route may
 * be *made, which is the caller's. */
const struct route *route_find(struct route *made, const struct routes *all, unsigned levels,
                               const char *path);
/* Writes "/a, /b", cut to size, for the error about an unknown path. */
void route_list(char *out, size_t size, const struct routes *all, unsigned levels);
/* Returns the route's methods as "GET, HEAD". */
const char *route_methods(const struct route *r);

#endif
