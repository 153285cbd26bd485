/* How the HTTP port is set up. */
#ifndef SERVER_HTTP_CONFIG_H
#define SERVER_HTTP_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "server/http/origin.h"
#include "server/http/route.h"

struct access;
struct inherited;
struct peer_addresses;
struct server;
struct tls;

struct http_config {
    const char *listen; /* HOST:PORT or [IPV6]:PORT; port 0 picks a free port. NULL: none */
    /* The address of administration, in the same form. Routes of administration are served here,
     * and then not at listen. */
    const char *admin;
    size_t max_body_bytes;
    struct routes routes;
    uint64_t timeout_ms;         /* for a request to arrive, and for its answer to be taken */
    struct origin_rules origins; /* the port sets is_loopback from its socket */
    struct inherited *inherited; /* of the listeners; borrowed until http_start returns */
    struct peer_addresses *peer_addresses; /* connections by address; borrowed until http_free */
    uint64_t *n_refused, *n_dropped;       /* see net/listeners.h, net/silents.h; NULL: no count */
    struct tls *tls;                       /* borrowed until http_stop; NULL: no TLS */
    const struct access *access;           /* who may send requests; NULL: everybody */
    struct server *server;                 /* passed to routes, never dereferenced */
    const struct env *env;
};

#endif
