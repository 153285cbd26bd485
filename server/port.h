/* The gRPC port: a server of gRPC core, its completion queue and the threads that poll it. */
#ifndef SERVER_PORT_H
#define SERVER_PORT_H

#include <uv.h>

#include "base/env.h"
#include "base/status.h"
#include "server/call.h"

enum { PORT_HOST_MAX = 255 };

struct port;

struct port_config {
    const char *const *listen; /* [n_listen] "127.0.0.1:8001", "[::1]:0", "unix:/path" */
    size_t n_listen;
    size_t n_threads;         /* that poll; 0: 1 */
    size_t max_message_bytes; /* of a request; 0: 4 MiB */
    size_t max_calls;         /* in flight; one more is RESOURCE_EXHAUSTED; 0: 65,536 */
    const struct rpc *rpcs;   /* [n_rpcs] the dispatcher, kept */
    size_t n_rpcs;
    struct daemon *daemon; /* handed to handlers */
    const struct env *env; /* kept */
};

struct port_stats {
    size_t n_calls;     /* in flight */
    uint64_t n_started; /* since the start, the refused ones too */
    uint64_t n_failed;  /* of those, ended with an error or left by their peer */
};

/* STATUS_INVALID for text that is no address, whether or not it could be bound. */
enum status port_check_address(const char *address, struct error *err) MUST_CHECK;

/* Splits HOST:PORT and [HOST]:PORT, likewise. */
enum status port_split_address(char host[PORT_HOST_MAX + 1], char port[6], const char *address,
                               struct error *err) MUST_CHECK;

/* Binds and serves, on loop and its thread. A taken port is STATUS_UNAVAILABLE naming the address;
 * an address that is none is STATUS_INVALID. A socket file that nobody listens on is replaced. */
enum status port_start(struct port **out, uv_loop_t *loop, const struct port_config *config,
                       struct error *err) MUST_CHECK;

/* The address that listen[i] became: with its real port number. */
const char *port_address(const struct port *p, size_t i);
void port_stats(const struct port *p, struct port_stats *out);

/* New calls are refused with UNAVAILABLE; calls in flight go on. */
void port_drain(struct port *p);
/* Cancels the calls in flight; their handlers' gone comes later. */
void port_cancel_all(struct port *p);
/* Cancels what is in flight, shuts the server and its queue down, joins the threads, frees p, then
 * calls stopped, on the loop and never inside. */
void port_stop(struct port *p, void (*stopped)(void *arg), void *arg);

#endif
