/* What the daemon is reached by: its ports of gRPC and of HTTP, with their TLS and their limit on
 * connections from one address. All functions are called on the loop, those for the stop also after
 * a failure of ports_open and without it. */
#ifndef SERVER_PORTS_H
#define SERVER_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct access;
struct http;
struct part_host;
struct peer_addresses;
struct port;
struct tls;

/* With --listen-admin there are both, else the first. */
enum { PORTS_GRPC, PORTS_GRPC_ADMIN, N_PORTS };

struct ports {
    struct part_host *host;                /* set before ports_open; the rest is zeroed */
    struct tls *tls;                       /* NULL: none */
    struct peer_addresses *peer_addresses; /* NULL: no bound */
    struct http *http;                     /* NULL: none */
    struct grpc_port {
        struct ports *ports;
        struct port *port; /* NULL: none, or it has stopped */
        bool is_stopping;
    } grpc[N_PORTS];
    uint64_t farewell_until_us;
    bool has_answered;
};

/* Calls are answered once the loop runs. access is NULL: everybody may call. */
enum status ports_open(struct ports *p, struct access *access, struct error *err) MUST_CHECK;
/* All routes of HTTP are served from now on. */
void ports_serve(struct ports *p);
/* The address that is written first. There is a port. */
const char *ports_address(const struct ports *p);
/* Writes the one line that tells other programs that the daemon serves, where, and what. */
void ports_say_ready(const struct ports *p);
/* Calls and requests of revoked keys end. */
void ports_check_keys(struct ports *p);

void ports_drain(struct ports *p);
/* How many calls and requests go on although the server drains. */
size_t ports_n_awaited(const struct ports *p);
/* All calls and requests end, with one error: else each would have that of what it waits for. */
void ports_end(struct ports *p);
/* After ports_end: whether all that was asked has its answer, or those who asked do not take it. It
 * is to be called again until then. */
bool ports_have_answered(struct ports *p);
/* After that: whether all ports of gRPC have stopped; host's go_on follows a false. */
bool ports_stop(struct ports *p);
/* The last handles are closed in the loop's next iterations. No descriptor is opened any more. */
void ports_close(struct ports *p);
/* The loop has ended. */
void ports_deinit(struct ports *p);

#endif
