/* How many connections each peer address has, over all ports. gRPC core does not report
 * when it closes a descriptor, so a connection is identified by its descriptor and the peer's port:
 * if the system reports another port for it, the connection has ended. This is checked only for an
 * address at its limit. Loop. */
#ifndef SERVER_NET_PEER_ADDRESSES_H
#define SERVER_NET_PEER_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>

struct env;
struct peer_addresses;

/* max: connections of an address; above 0. */
struct peer_addresses *peer_addresses_open(size_t max, const struct env *env);
void peer_addresses_close(struct peer_addresses *p); /* NULL is fine */

/* Takes note of fd, a new connection. False: its peer has as many as it may, close it. Of a unix
 * socket, and without memory, always true. */
bool peer_addresses_admit(struct peer_addresses *p, int fd);

#endif
