/* How many connections each peer address has, over all ports. gRPC core does not report
 * when it closes a descriptor, so a connection is identified by its descriptor and the peer's port:
 * if the system reports another port for it, the connection has ended. This is checked only for an
 * address at its limit. All functions are called on the loop. */
#ifndef SERVER_NET_PEER_ADDRESSES_H
#define SERVER_NET_PEER_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>

struct env;
struct peer_addresses;

/* Makes a table that allows each address max connections, which is above 0. */
struct peer_addresses *peer_addresses_open(size_t max, const struct env *env);
/* Frees the table. NULL is fine. */
void peer_addresses_close(struct peer_addresses *p);

/* Counts fd, a new connection. Returns false if the peer's address has as many connections as it
 * may have; then the caller closes fd. Always returns true for a unix socket, and when memory is
 * short.
 */
bool peer_addresses_admit(struct peer_addresses *p, int fd);

#endif
