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
struct inherited;
struct part_host;
struct peer_addresses;
struct port;
struct tls;

/* The ports of gRPC. The second is there only with --listen-admin. */
enum { PORTS_GRPC, PORTS_GRPC_ADMIN, N_PORTS };

struct ports {
    struct part_host *host;                /* set before ports_open; the rest is zeroed */
    struct tls *tls;                       /* NULL: none */
    struct peer_addresses *peer_addresses; /* NULL: no bound */
    struct http *http;                     /* NULL: none */
    struct inherited *inherited;           /* while the addresses are bound */
    struct grpc_port {
        struct ports *ports;
        struct port *port; /* NULL: none, or it has stopped */
        bool is_stopping;
    } grpc[N_PORTS];
    uint64_t farewell_until_us;
    bool has_answered;
};

/* Binds the addresses. Calls are answered once the loop runs. access is who may call, or NULL where
 * everybody may. */
enum status ports_open(struct ports *p, struct access *access, struct error *err) MUST_CHECK;
/* Serves all routes of HTTP from now on. */
void ports_serve(struct ports *p);
/* Returns the address that is written first. There is a port. */
const char *ports_address(const struct ports *p);
/* Writes the one line that tells other programs that the daemon serves, where, and what. */
void ports_say_ready(const struct ports *p);
/* Ends the calls and requests whose keys were revoked. */
void ports_check_keys(struct ports *p);

/* Tells all long-lived calls and requests to drain. */
void ports_drain(struct ports *p);
/* Returns how many calls and requests go on although the server drains. */
size_t ports_n_awaited(const struct ports *p);
/* Ends all calls and requests with one error. Otherwise each would end with the error of what it
 * waits for. */
void ports_end(struct ports *p);
/* Returns whether, after ports_end, every call and request has its answer, or its peer does not
 * take the answer. The caller asks again until it is so. */
bool ports_have_answered(struct ports *p);
/* Returns whether, after that, all ports of gRPC have stopped. After false, host's go_on is called
 * once it may be so. */
bool ports_stop(struct ports *p);
/* Closes the last handles, in the loop's next iterations. No descriptor is opened any more. */
void ports_close(struct ports *p);
/* Frees what is left, once the loop has ended. */
void ports_deinit(struct ports *p);

#endif
