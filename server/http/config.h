/* How the HTTP port is set up. */
#ifndef SERVER_HTTP_CONFIG_H
#define SERVER_HTTP_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "server/http/origin.h"
#include "server/http/route.h"

struct access;
struct peer_addresses;
struct server;
struct tls;

struct http_config {
    const char *listen; /* HOST:PORT or [IPV6]:PORT; port 0 picks one. NULL: none */
    /* Where routes of administration are served, and then not at listen; likewise. */
    const char *admin;
    size_t max_body_bytes;
    struct routes routes;
    uint64_t timeout_ms;         /* for a request to arrive, and for its answer to be taken */
    struct origin_rules origins; /* is_loopback is set from the socket */
    struct peer_addresses *peer_addresses; /* likewise */
    uint64_t *n_refused, *n_dropped; /* as of listeners and silents; kept. NULL: not counted */
    struct tls *tls;                 /* borrowed until http_stop; NULL: none */
    const struct access *access;     /* who may ask; kept. NULL: everybody */
    struct server *server;           /* passed to routes, never dereferenced */
    const struct env *env;           /* kept */
};

#endif
