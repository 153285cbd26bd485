/* How many connections each peer address has, over all ports. gRPC core tells nobody when it closes
 * a descriptor, so a connection is known by its descriptor and the peer's port: where the system
 * says otherwise it has ended. That is asked only of an address that is at its bound. Loop. */
#ifndef SERVER_NET_PEERS_H
#define SERVER_NET_PEERS_H

#include <stdbool.h>
#include <stddef.h>

struct env;
struct peers;

/* max: connections of an address; above 0. */
struct peers *peers_open(size_t max, const struct env *env);
void peers_close(struct peers *p); /* NULL is fine */

/* Takes note of fd, a new connection. False: its peer has as many as it may, close it. Of a unix
 * socket, and without memory, always true. */
bool peers_admit(struct peers *p, int fd);

#endif
