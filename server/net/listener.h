/* The sockets of an address. Connections are accepted on the loop, and while descriptors are short,
 * refused or taken in place of others. Loop. */
#ifndef SERVER_NET_LISTENER_H
#define SERVER_NET_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/status.h"

struct listener;
struct peer_addresses;

struct listener_config {
    const char *name;    /* "grpc": for the log; kept */
    const char *address; /* "127.0.0.1:8001", "[::1]:0", "unix:/path" */
    /* There is no room for a connection whose descriptor has this number or a higher one. The
     * system assigns the lowest free number, so all below are in use. */
    size_t max_descriptors;
    unsigned user_timeout_ms; /* TCP_USER_TIMEOUT; 0: the system's */
    /* False: there is no room. NULL: max_descriptors alone decides. */
    bool (*has_room)(void *arg);
    /* Closes a connection of less worth than a new one; false: there is none, and the new one is
     * refused. NULL: there never is. */
    bool (*make_room)(void *arg);
    struct peer_addresses
        *peer_addresses; /* kept; refuses the connections of a peer that has many. NULL: none */
    void (*accepted)(void *arg, int fd); /* takes fd, which does not block */
    void *arg;
    uint64_t *n_refused; /* counts those; kept. NULL: not counted */
};

/* Connections come from the loop's next iteration on. A port in use is STATUS_UNAVAILABLE, an
 * invalid address STATUS_INVALID. A socket file without a listener is replaced. */
enum status listener_open(struct listener **out, uv_loop_t *loop,
                          const struct listener_config *config, struct error *err) MUST_CHECK;
/* Accepts whoever has connected already. */
void listener_accept_waiting(struct listener *l);
/* Accepts nothing more; frees l in the loop's next iterations. NULL is fine. */
void listener_close(struct listener *l);

/* With the bound port number. */
const char *listener_address(const struct listener *l);
/* The address of its first socket. */
void listener_sockaddr(const struct listener *l, struct sockaddr_storage *out);

#endif
