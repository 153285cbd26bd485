/* Routes: which handler answers a path. An API provides its routes and its error format; http/
 * knows no API. */
#ifndef SERVER_HTTP_ROUTE_H
#define SERVER_HTTP_ROUTE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"
#include "server/access/access.h"

struct exchange;

/* What all routes of an API share. */
struct http_api {
    const char *error_type; /* of an error's body: "application/json" */
    /* Appends the body, without a line end. */
    enum status (*append_error)(struct buf *out, int http_status, const struct error *err);
    const char *id_header; /* has the request's id, beside X-Request-Id; NULL: none */
    int (*status_of)(enum status status); /* HTTP's status of a failure; NULL: http_status_of */
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
    bool is_prefix;   /* a non-empty argument follows */
    unsigned methods; /* of enum method */
    bool always;      /* served also while the daemon loads or drains */
    void (*serve)(struct exchange *x);
    const struct http_api *api;
    enum access_level access; /* of the caller; zero: a key, where keys are configured */
    bool has_slashes;         /* the argument is a name that may have encoded slashes (%2F) */
};

/* Some routes of an API, defined with their handlers. */
struct route_table {
    const struct route *rows; /* [n] */
    size_t n;
};

/* All that a port serves: the caller's, kept. */
struct routes {
    const struct route_table *const *tables; /* [n_tables] */
    size_t n_tables;
    const struct http_api *api; /* of requests without a route */
    /* Makes the route of a path that no table has; static parts. False: there is none. NULL: of no
     * path. */
    bool (*make)(struct route *out, const char *path);
};

/* levels: which routes there are, bits 1 << of enum access_level. */
enum {
    ROUTES_ALL = 1 << ACCESS_KEY | 1 << ACCESS_OPEN | 1 << ACCESS_ADMIN | 1 << ACCESS_ATTACH,
    ROUTES_PUBLIC = 1 << ACCESS_KEY | 1 << ACCESS_OPEN | 1 << ACCESS_ATTACH,
    ROUTES_ADMIN = 1 << ACCESS_OPEN | 1 << ACCESS_ADMIN
};

/* NULL: there is none. It may be *made, which is the caller's. */
const struct route *route_find(struct route *made, const struct routes *all, unsigned levels,
                               const char *path);
/* "/a, /b": for the error of an unknown path. Truncated to size. */
void route_list(char *out, size_t size, const struct routes *all, unsigned levels);
/* "GET, HEAD" */
const char *route_methods(const struct route *r);

#endif
