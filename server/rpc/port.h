/* The gRPC port: a server of gRPC core, its completion queue and the threads that poll it. */
#ifndef SERVER_RPC_PORT_H
#define SERVER_RPC_PORT_H

#include <uv.h>

#include "base/env.h"
#include "base/status.h"
#include "server/call/methods.h"

struct access_key;
struct call_stats;
struct port;
struct peer_addresses;
struct tls;

/* Which methods a port serves. Every port serves health. */
enum port_part {
    PORT_EVERYTHING,
    PORT_WITHOUT_ADMIN, /* methods that do not need the role admin */
    PORT_ADMIN,         /* methods that need the role admin */
};

struct port_config {
    enum port_part part;
    const char *const *listen; /* [n_listen] "127.0.0.1:8001", "[::1]:0", "unix:/path" */
    size_t n_listen;
    size_t n_threads;         /* threads that poll the queue; 0: 1 */
    size_t max_message_bytes; /* the most bytes of a message that a peer sends; 0: 4 MiB */
    size_t max_calls;         /* calls in flight; one more is RESOURCE_EXHAUSTED; 0: 65,536 */
    /* A connection that has had no call for idle_ms, or that is age_ms old, ends as soon as its
     * calls have ended; 0: never. */
    uint64_t idle_ms, age_ms;
    /* All pointers below are borrowed until port_stop has called back. */
    const struct call_table *const *services; /* [n_services] the methods, by service */
    size_t n_services;
    struct server *server;                 /* handed to handlers, which alone look into it */
    struct call_stats *stats;              /* counts the calls of this port and of others */
    struct health *health;                 /* handed to handlers */
    struct peer_addresses *peer_addresses; /* of the listeners; NULL: none */
    uint64_t *n_refused, *n_dropped;       /* as those of listeners and silents; NULL: no count */
    struct inherited *inherited;           /* of the listeners; NULL: none */
    struct tls *tls;                       /* of all sockets but unix ones; NULL: none */
    const struct access *access;           /* who may call; NULL: everybody */
    /* Admits a call that another daemon passes on with this pass, as access_admit does. NULL: none
     * are passed on. */
    enum status (*admit_passed)(void *arg, const char *pass, size_t len, enum access_level level,
                                const struct access_key **out, struct error *err);
    void *admit_arg;
    const struct env *env;
};

/* Binds the addresses and serves on them; all callbacks come on the loop's thread. Fails with
 * UNAVAILABLE naming the address where a port is in use, and with INVALID for an address that is
 * none. A socket file without a listener is replaced. */
enum status port_start(struct port **out, uv_loop_t *loop, const struct port_config *config,
                       struct error *err) MUST_CHECK;

/* Returns the bound address of listen[i], with its real port number. */
const char *port_address(const struct port *p, size_t i);

/* Accepts connections at inherited sockets, too. */
void port_serve(struct port *p);
/* Tells long-lived calls to drain, those in flight and those that begin from now on; leaves new
 * connections at inherited sockets to the next process. */
void port_drain(struct port *p);
/* Returns how many calls in flight a drain waits for. */
size_t port_n_awaited(const struct port *p);
/* Ends the calls in flight whose key was revoked. */
void port_check_keys(struct port *p);
/* Ends the calls in flight and refuses those that come, all with UNAVAILABLE and its trailers; the
 * handlers' on_close comes later. */
void port_end(struct port *p);
/* Returns how many of the calls that were in flight at port_end have not sent their status. */
size_t port_n_unanswered(const struct port *p);
/* Cancels these calls, whose peers do not read. */
void port_cut_off(struct port *p);
/* Ends all calls, as port_end does, lets the peers leave for at most a second, shuts the server and
 * its queue down, joins the threads, frees p, then calls stopped, on the loop and never inside. */
void port_stop(struct port *p, void (*stopped)(void *arg), void *arg);

#endif
