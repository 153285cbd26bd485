/* The gRPC port: a server of gRPC core, its completion queue and the threads that poll it. */
#ifndef SERVER_RPC_PORT_H
#define SERVER_RPC_PORT_H

#include <uv.h>

#include "base/env.h"
#include "base/status.h"
#include "server/call/methods.h"

struct call_stats;
struct port;
struct peer_addresses;
struct tls;

/* Which methods a port serves. Health is served by all. */
enum port_part {
    PORT_EVERYTHING,
    PORT_WITHOUT_ADMIN, /* not what needs the role admin */
    PORT_ADMIN,         /* that alone */
};

struct port_config {
    enum port_part part;
    const char *const *listen; /* [n_listen] "127.0.0.1:8001", "[::1]:0", "unix:/path" */
    size_t n_listen;
    size_t n_threads;         /* that poll; 0: 1 */
    size_t max_message_bytes; /* of a request; 0: 4 MiB */
    size_t max_calls;         /* in flight; one more is RESOURCE_EXHAUSTED; 0: 65,536 */
    /* A connection without a call for so long, or of such an age, ends as soon as its calls have;
     * 0: never. */
    uint64_t idle_ms, age_ms;
    const struct call_table *const *services; /* [n_services] what it serves; kept */
    size_t n_services;
    struct server *server;                 /* passed to handlers, never dereferenced */
    struct call_stats *stats;              /* counts the calls of this port, too; kept */
    struct health *health;                 /* for calls that use it */
    struct peer_addresses *peer_addresses; /* of the listeners; NULL: none. Kept */
    uint64_t *n_refused, *n_dropped; /* as of listeners and silents; kept. NULL: not counted */
    struct tls *tls;             /* of all but unix sockets; borrowed until port_stop. NULL: none */
    const struct access *access; /* who may call; kept. NULL: everybody */
    const struct env *env;       /* kept */
};

/* Binds and serves, on loop and its thread. A port in use is STATUS_UNAVAILABLE naming the address;
 * an invalid address is STATUS_INVALID. A socket file without a listener is replaced. */
enum status port_start(struct port **out, uv_loop_t *loop, const struct port_config *config,
                       struct error *err) MUST_CHECK;

/* The bound address of listen[i], with its real port number. */
const char *port_address(const struct port *p, size_t i);

/* Tells long-lived calls to drain, those in flight and those that begin from now on. */
void port_drain(struct port *p);
/* Calls in flight that a drain waits for. */
size_t port_n_awaited(const struct port *p);
/* Ends the calls in flight whose key was revoked. */
void port_check_keys(struct port *p);
/* Ends the calls in flight and refuses those that come, all with UNAVAILABLE and its trailers; the
 * handlers' on_close comes later. */
void port_end(struct port *p);
/* Of the calls that were in flight at port_end, those whose status is not sent. */
size_t port_n_unanswered(const struct port *p);
/* Cancels those: their peers do not read. */
void port_cut_off(struct port *p);
/* Ends all calls, as port_end does, lets the peers leave for at most a second, shuts the server and
 * its queue down, joins the threads, frees p, then calls stopped, on the loop and never inside. */
void port_stop(struct port *p, void (*stopped)(void *arg), void *arg);

#endif
