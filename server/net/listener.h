/* The listening sockets of an address. While descriptors are short, a connection is refused, or
 * takes the place of another one. All functions are called on the loop. */
#ifndef SERVER_NET_LISTENER_H
#define SERVER_NET_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/status.h"

struct inherited;
struct listener;
struct peer_addresses;

struct listener_config {
    const char *name;    /* for the log: "grpc"; borrowed */
    const char *address; /* "127.0.0.1:8001", "[::1]:0", "unix:/path" */
    /* There is no room for a connection whose descriptor has this number or a higher one: the
     * system assigns the lowest free number, so all lower numbers are in use then. */
    size_t max_descriptors;
    unsigned user_timeout_ms; /* TCP_USER_TIMEOUT; 0: the system's */
    /* Returns whether there is room for a connection. NULL: max_descriptors alone decides. */
    bool (*has_room)(void *arg);
    /* Closes a connection that is worth less than a new one. Returns false if there is none; then
     * the new connection is refused. NULL: there never is one. */
    bool (*make_room)(void *arg);
    struct peer_addresses *peer_addresses; /* refuses connections of a peer that has many; borrowed;
                                              NULL: none is refused */
    void (*accepted)(void *arg, int fd);   /* takes fd, which does not block */
    void *arg;
    uint64_t *n_refused;         /* counts the refused connections; borrowed; NULL: not counted */
    struct inherited *inherited; /* has sockets that may be at the address; borrowed until
                                    listener_open returns; NULL: none */
};

/* Opens the sockets, or takes those that were inherited. Connections come from the loop's next
 * iteration on, at inherited sockets after listener_serve. A socket file that nobody listens at is
 * replaced. UNAVAILABLE if the port is in use; INVALID for an invalid address. */
enum status listener_open(struct listener **out, uv_loop_t *loop,
                          const struct listener_config *config, struct error *err) MUST_CHECK;
/* Accepts at inherited sockets, too, from now on: until then another process may serve there. */
void listener_serve(struct listener *l);
/* Accepts no more at inherited sockets: connections wait for the process that has them next. */
void listener_drain(struct listener *l);
/* Accepts the connections that have come already, but not at inherited sockets. */
void listener_accept_waiting(struct listener *l);
/* Stops accepting, and frees l in the loop's next iterations. NULL is fine. */
void listener_close(struct listener *l);

/* Returns the address with the port number that was bound. */
const char *listener_address(const struct listener *l);
/* Writes the address of the first socket. */
void listener_sockaddr(const struct listener *l, struct sockaddr_storage *out);

#endif
